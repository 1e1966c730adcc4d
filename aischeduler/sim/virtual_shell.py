"""The shell of one scheduler in the virtual cluster: what daemon and kube do in production, without sockets and tasks.

Laws:
- It decides nothing: what is written and what an answer means comes from `kube`'s pure modules, as in production.
- An answer takes time and can be lost; a Binding whose answer is lost is settled by reading the pod, an eviction
  whose answer is lost is sent again.
- Reports are written at once; a report that is refused is dropped.
"""

from dataclasses import dataclass
from typing import Any, Final, Protocol, assert_never

import msgspec

from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube import event_messages, pod_writes, pool_writes, watched_resources
from aischeduler.kube.api_types import Metadata, PodDocument
from aischeduler.kube.backoff import Chance
from aischeduler.kube.decode import read_pod
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.eviction import Evicted, Eviction, Left, Marked, lost
from aischeduler.model.actions import (
    Action,
    Bind,
    CreatePool,
    Evict,
    ListPools,
    Nominate,
    ReadPool,
    Refresh,
    ReportInternalError,
    ReportPool,
    ReportWaiting,
    Settle,
    TellEdited,
    TellTurned,
    Warn,
)
from aischeduler.model.events import BindRefused, Event, EvictRefused, PoolRead, PoolsListed, Refreshed
from aischeduler.model.pod import Pod
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import JSON, Request, Response
from aischeduler.sandbox.watches import WatchStream
from aischeduler.sim.in_process_reflector import Feed
from aischeduler.sim.timer_heap import TimerHeap

ATTEMPTS: Final = 64
"""Attempts of one call of `decide`."""
ANSWER_WITHIN_SECONDS: Final = 10.0
"""After so long without an answer the pod is read."""
UNAUTHENTICATED_SECONDS: Final = 1.0

_POD = msgspec.json.Decoder(PodDocument)


@dataclass(frozen=True, slots=True)
class Network:
    """What lies between scheduler and API server.

    `bind_seconds` pass until a Binding has its answer, `evict_seconds` until each request of an eviction has; of
    `lost_share` of them (0 to 1) the answer never comes, and half of those never arrived either.
    """

    bind_seconds: float = 0.01
    evict_seconds: float = 0.01
    lost_share: float = 0.0


class World(Protocol):
    """The cluster as its inhabitants see it."""

    server: ApiServer
    agenda: TimerHeap
    now: float


@dataclass(frozen=True, slots=True)
class Logged:
    """One action and when it was taken, in virtual seconds."""

    at: float
    action: Action


class VirtualShell:
    """Lets one scheduler live in a cluster. `log` holds every action so far.

    `honours_budgets` evicts by the Eviction API, as `eviction: Evict` does in production.
    """

    def __init__(self, world: World, scheduler: Scheduler, name: str, network: Network, chance: Chance) -> None:
        self.scheduler = scheduler
        self.log: list[Logged] = []
        self.stopped = False
        self.honours_budgets = False
        self._world = world
        self._network = network
        self._chance = chance
        self._reporter = event_messages.ReportingController(name, f"{name}-virtual")
        self._specs = SpecCache()
        self._pods = Feed(world.server, watched_resources.pods(self._specs))
        self._pools = Feed(world.server, watched_resources.pools())
        others = (watched_resources.namespaces(), watched_resources.nodes(), watched_resources.budgets())
        storage = (watched_resources.claims(), watched_resources.volumes())
        feeds: tuple[Feed[Any], ...] = tuple(Feed(world.server, one) for one in (*others, *storage))
        self._others = (*feeds, self._pools)
        self._told: dict[str, str] = {}
        self._since: dict[str, str] = {}
        self._notes = 0

    def step(self) -> bool:
        """Take in what has happened, decide what is ready, and say whether anything moved."""
        now = self._world.now
        heard = self._take_in()
        ready = self.scheduler.ready(now)
        for pool in ready:
            for action in self.scheduler.decide(pool, now, ATTEMPTS):
                self.log.append(Logged(now, action))
                self._perform(action)
        return heard or bool(ready)

    def _take_in(self) -> bool:
        """Take in what has happened; say whether anything has."""
        now = self._world.now
        events = [event for feed in (*self._others, self._pods) for event in feed.read(now)]
        for event in events:
            self.scheduler.observe(event, now)
        return bool(events)

    def stop(self) -> None:
        """End as a process ends: what is in flight has no one to hear its answer."""
        self.stopped = True
        for feed in (*self._others, self._pods):
            feed.close()

    def _perform(self, action: Action) -> None:
        match action:
            case Bind():
                self._later(self._network.bind_seconds, action, 0)
            case ReportWaiting():
                self._say(event_messages.failed_scheduling(action))
                self._write_condition(action.pod, event_messages.why_waiting(action))
            case Evict():
                eviction = Eviction(action, self._reporter.controller, honour_budgets=self.honours_budgets)
                self._evict_later(self._network.evict_seconds, action, eviction)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                self._send("PATCH", path.decode(), body, pod_writes.MERGE_PATCH)
            case Settle(pod):
                refused = lost(action, self._read(pod))
                if refused is not None:
                    self.scheduler.observe(refused, self._world.now)
            case ReadPool() | ListPools() | Refresh():
                self._world.agenda.put(self._world.now + self._network.bind_seconds, lambda: self._look(action))
            case Warn():
                self._say(event_messages.warning(action))
            case ReportPool():
                self._write_pool(action)
            case CreatePool(name, switches):
                self._send("POST", pool_writes.pools_path(), pool_writes.new_pool(name, switches), JSON)
            case TellTurned() | TellEdited() | ReportInternalError():
                pass  # there is no log; the world has these actions themselves
            case _:
                assert_never(action)

    def _later(self, seconds: float, action: Bind, tries: int) -> None:
        self._world.agenda.put(self._world.now + seconds, lambda: self._bind(action, tries))

    def _bind(self, action: Bind, tries: int) -> None:
        """Send a Binding once and follow its answer to the one outcome or to the next try."""
        if self.stopped:
            return
        if self._loses():
            if self._arrives():
                self._post(action)
            when = self._world.now + ANSWER_WITHIN_SECONDS
            self._world.agenda.put(when, lambda: self._settle(action, tries, "no answer came"))
            return
        answer = self._post(action)
        meaning = pod_writes.read_bind_answer(action, answer.status, _retry_after(answer), answer.body)
        match meaning:
            case pod_writes.BindAccepted() | BindRefused():
                self._conclude(action, meaning)
            case pod_writes.Throttled(seconds):
                self._later(seconds, action, tries)
            case pod_writes.Unauthenticated():
                self._later(UNAUTHENTICATED_SECONDS, action, tries)
            case pod_writes.Unknown(message):
                self._settle(action, tries, message)
            case _:
                assert_never(meaning)

    def _post(self, action: Bind) -> Response:
        path, body = pod_writes.binding(action)
        return self._send("POST", path.decode(), body, JSON)

    def _settle(self, action: Bind, tries: int, why: str) -> None:
        """Read the pod of a Binding whose answer says nothing."""
        if self.stopped:
            return
        outcome = pod_writes.settle(action, self._read(action.pod), why)
        if outcome is None and tries + 1 >= pod_writes.BIND_TRIES_MAX:
            outcome = pod_writes.unavailable(action, why)
        if outcome is not None:
            self._conclude(action, outcome)
        else:
            self._later(self._network.bind_seconds, action, tries + 1)

    def _conclude(self, action: Bind, outcome: pod_writes.BindAccepted | BindRefused) -> None:
        if isinstance(outcome, BindRefused):
            self.scheduler.observe(outcome, self._world.now)
        else:
            self._told.pop(action.pod.uid, None)
            self._say(event_messages.scheduled(action))

    def _evict_later(self, seconds: float, action: Evict, eviction: Eviction) -> None:
        self._world.agenda.put(self._world.now + seconds, lambda: self._evict(action, eviction))

    def _evict(self, action: Evict, eviction: Eviction) -> None:
        """Send the next request of an eviction and follow its answer to the end or to the next request."""
        if self.stopped:
            return
        write = eviction.request(self._time("seconds"))
        if self._loses():
            if self._arrives():
                self._send(write.method, write.path, write.body, write.content_type)
            meaning, seconds = eviction.unanswered("no answer came"), ANSWER_WITHIN_SECONDS
        else:
            answer = self._send(write.method, write.path, write.body, write.content_type)
            meaning = eviction.hear(answer.status, _retry_after(answer), answer.body)
            seconds = self._network.evict_seconds
        match meaning:
            case Evicted():
                self._say(event_messages.preempted(action))
            case EvictRefused():
                self.scheduler.observe(meaning, self._world.now)
            case Left():
                pass  # the watch says that it is gone
            case Marked() | pod_writes.Unknown():
                self._evict_later(seconds, action, eviction)
            case pod_writes.Throttled(wait):
                self._evict_later(wait, action, eviction)
            case pod_writes.Unauthenticated():
                self._evict_later(UNAUTHENTICATED_SECONDS, action, eviction)
            case _:
                assert_never(meaning)

    def _loses(self) -> bool:
        """Say whether the answer to a request never comes."""
        return self._network.lost_share > 0 and self._chance.random() < self._network.lost_share

    def _arrives(self) -> bool:
        """Say whether a request whose answer is lost took effect."""
        return self._chance.random() < 0.5

    def _read(self, pod: Pod) -> Pod | None:
        """Return the pod as it now is, and tell the scheduler; None where there is none of its name."""
        answer = self._send("GET", pod_writes.pod_path(pod), b"", JSON)
        if answer.status == 404:
            metadata = Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid)
            self._observe(self._pods.missing(metadata))
            return None
        self._observe(self._pods.told(answer.body))
        return read_pod(_POD.decode(answer.body), self._specs)

    def _look(self, action: ReadPool | ListPools | Refresh) -> None:
        """Read a Pool that pods name, or make sure that everything was heard: here no watch lags behind another."""
        if self.stopped:
            return
        if not isinstance(action, ReadPool):
            self._take_in()
            self._observe((Refreshed(action.pool) if isinstance(action, Refresh) else PoolsListed(),))
            return
        answer = self._send("GET", pool_writes.pool_path(action.name), b"", JSON)
        if answer.status == 200:
            self._observe(self._pools.told(answer.body))
        self._observe((PoolRead(action.name, found=answer.status == 200),))

    def _observe(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.scheduler.observe(event, self._world.now)

    def _say(self, note: event_messages.EventMessage) -> None:
        self._notes += 1
        number = int(self._world.now * 1e6) + self._notes
        path, body = event_messages.event(note, number, self._reporter, self._time("microseconds"))
        self._send("POST", path.decode(), body, JSON)

    def _write_condition(self, pod: Pod, message: str) -> None:
        if self._told.get(pod.uid) == message:
            return
        self._told[pod.uid] = message
        since = self._since.setdefault(pod.uid, self._time("seconds"))
        path, body = pod_writes.waiting_condition(pod, message, since)
        self._send("PATCH", path.decode(), body, pod_writes.STRATEGIC_PATCH)

    def _write_pool(self, report: ReportPool) -> None:
        path = pool_writes.pool_path(report.name)
        document = msgspec.json.decode(self._send("GET", path, b"", JSON).body)
        writer = pool_writes.Writer(self._reporter.controller, self._world.now)
        patch = pool_writes.status_patch(report, document, writer)
        if patch is not None:
            self._send("PATCH", f"{path}/status", patch, pod_writes.MERGE_PATCH)

    def _send(self, method: str, path: str, body: bytes, content_type: str) -> Response:
        request = Request(method, path, {}, JSON, content_type, body)
        answer = self._world.server.handle(request, self._world.now)
        assert not isinstance(answer, WatchStream)
        return answer

    def _time(self, precision: str) -> str:
        return pod_writes.time_text(self._world.now, precision)


def _retry_after(answer: Response) -> str | None:
    return str(answer.retry_after_seconds) if answer.retry_after_seconds else None
