"""The daemon of one scheduler in the virtual cluster: the work of `daemon` and `kube`, without sockets and tasks.

Invariants:
- It decides nothing: requests and the meaning of responses come from the pure modules of `kube`, as in production.
- A response takes time and can be lost. After a lost response to a Binding the daemon reads the pod; after a lost
  response to an eviction it sends the request again.
- Events, conditions and statuses are written at once; the daemon drops them when the server refuses them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, assert_never

import msgspec
from msgspec import Struct

from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.meta_types import Metadata
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.kube.http.backoff import RandomSource
from aischeduler.kube.report import event_messages, gang_writes, pool_writes, queue_writes
from aischeduler.kube.report.status_writes import StatusWriter, status_patch
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.device_resources import devices
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.storage_resources import storage_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.kube.write import elastic_writes, job_writes, pod_writes, volume_writes
from aischeduler.kube.write.eviction_writes import (
    Evicted,
    Eviction,
    EvictionOutcome,
    NextRequest,
    NotNeeded,
    Rehearsals,
    Rehearsed,
    lost_eviction,
)
from aischeduler.model.actions import (
    Action,
    Bind,
    BindVolumes,
    CreatePool,
    Evict,
    LogLoanChange,
    LogPoolEdit,
    Nominate,
    ReadPod,
    Refresh,
    ReportGang,
    ReportInternalError,
    ReportPool,
    ReportQueue,
    ReportWaiting,
    Resize,
    ResizeReason,
    ResumeJob,
    Warn,
)
from aischeduler.model.events import (
    BindRefused,
    Event,
    EvictRefused,
    Refreshed,
    ResizeRefused,
    VolumesRefused,
    VolumesWritten,
)
from aischeduler.model.gang import GangKey, GangPhase, GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.times import time_text
from aischeduler.model.workload import JobRef
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.request import JSON, Response, request
from aischeduler.sandbox.watches import WatchStream
from tests.virtual.in_process_reflector import InProcessReflector
from tests.virtual.timer_heap import TimerHeap

ATTEMPTS_PER_DECISION: Final = 64
"""The attempts of one call of `decide`."""
RESPONSE_TIMEOUT_SECONDS: Final = 10.0
"""A response that takes longer counts as lost."""
UNAUTHENTICATED_SECONDS: Final = 1.0

MERGE: Final = pod_writes.MERGE_PATCH
_POD = msgspec.json.Decoder(PodDocument)


class Network(Struct, frozen=True):
    """The network between scheduler and API server.

    A Binding takes `bind_seconds`, each request of an eviction takes `evict_seconds`. `lost_share` (0 to 1) is the
    share of responses that are lost; half of their requests do not reach the server.
    """

    bind_seconds: float = 0.01
    evict_seconds: float = 0.01
    lost_share: float = 0.0


class Environment(Protocol):
    """The parts of the virtual cluster that a daemon uses."""

    server: ApiServer
    timers: TimerHeap
    now: float


class LoggedAction(Struct, frozen=True):
    """One action of the scheduler and its virtual time."""

    at: float
    action: Action


class VirtualDaemon:
    """Runs one scheduler in a cluster. `log` has every action so far.

    With `honours_budgets` it evicts by the Eviction API, as `eviction: Evict` does in production.
    """

    def __init__(
        self, environment: Environment, scheduler: Scheduler, name: str, network: Network, chance: RandomSource
    ) -> None:
        self.scheduler = scheduler
        self.log: list[LoggedAction] = []
        self.stopped = False
        self.honours_budgets = False
        self._environment = environment
        self._network = network
        self._chance = chance
        self._reporter = event_messages.ReportingController(name, f"{name}-virtual")
        self._specs = SpecCache()
        self._pods = InProcessReflector(environment.server, watched_resources.pods(self._specs))
        self._pools = InProcessReflector(environment.server, watched_resources.pools())
        others = (watched_resources.namespaces(), watched_resources.nodes(), watched_resources.budgets())
        resources: tuple[WatchedResource[Any], ...] = (
            *others,
            devices(),
            *queue_resources(),
            *storage_resources(),
            *gang_resources(self._specs.owners),
            *pod_set_resources(),
        )
        reflectors: tuple[InProcessReflector[Any], ...] = tuple(
            InProcessReflector(environment.server, one) for one in resources
        )
        self._specs.owners.listed = {
            GangSource(one.kind): one.served for one in reflectors if one.kind in (GangSource.JOB, GangSource.JOB_SET)
        }
        self._others = (*reflectors, self._pools)
        self._written_messages: dict[str, str] = {}
        self._gang_phases: dict[GangKey, GangPhase] = {}
        self._waiting_since: dict[str, str] = {}
        self._event_count = 0
        self._rehearsals: Rehearsals[tuple[Evict, Eviction]] = Rehearsals()
        self._job_writes = job_writes.JobWrites()

    def step(self) -> bool:
        """Observe the new events and run every pool that is ready; returns whether there was any work."""
        now = self._environment.now
        observed = self._observe_watches()
        ready = self.scheduler.ready(now)
        for pool in ready:
            for action in self.scheduler.decide(pool, now, ATTEMPTS_PER_DECISION):
                self.log.append(LoggedAction(now, action))
                self._perform(action)
        return observed or bool(ready)

    def _observe_watches(self) -> bool:
        """Observe the new events of all watches; returns whether there were any."""
        now = self._environment.now
        events = [event for reflector in (*self._others, self._pods) for event in reflector.read(now)]
        events += self._specs.owners.overdue(now)
        for event in events:
            self.scheduler.observe(event, now)
        return bool(events)

    def stop(self) -> None:
        """Stop as a killed process does: requests under way get no response."""
        self.stopped = True
        for reflector in (*self._others, self._pods):
            reflector.close()

    def _perform(self, action: Action) -> None:
        match action:
            case Bind():
                self._bind_later(self._network.bind_seconds, action, 0)
            case ReportWaiting():
                self._write_event(event_messages.failed_scheduling(action))
                self._write_condition(action.pod, event_messages.waiting_message(action))
            case Evict():
                eviction = Eviction(
                    action,
                    self._reporter.controller,
                    honour_budgets=self.honours_budgets,
                    job_write=self._job_writes.of(action),
                )
                self._evict_later(self._network.evict_seconds, action, eviction)
            case Nominate(pod, node):
                path, body = pod_writes.nomination(pod, node)
                self._send("PATCH", path.decode(), body, pod_writes.MERGE_PATCH)
            case ReadPod(pod):
                refused = lost_eviction(action, self._read(pod))
                if refused is not None:
                    self.scheduler.observe(refused, self._environment.now)
            case Refresh():
                self._environment.timers.put(
                    self._environment.now + self._network.bind_seconds, lambda: self._read_pools(action)
                )
            case BindVolumes():
                when = self._environment.now + self._network.bind_seconds
                self._environment.timers.put(when, lambda: self._bind_volumes(action))
            case Resize():
                self._resize_later(self._network.bind_seconds, action)
            case LogLoanChange() | LogPoolEdit() | ReportInternalError():
                pass  # production logs these; here they are in `log`
            case _:
                self._report(action)

    def _report(self, action: Warn | ReportPool | ReportQueue | ResumeJob | ReportGang | CreatePool) -> None:
        match action:
            case Warn():
                self._write_event(event_messages.warning(action))
            case ReportPool():
                self._write_status(
                    pool_writes.pool_path(action.name), partial(status_patch, pool_writes.pool_status, action)
                )
            case ReportQueue():
                self._write_status(
                    queue_writes.queue_path(action.name), partial(status_patch, queue_writes.queue_status, action)
                )
            case ResumeJob(job):
                self._send("PATCH", job_writes.job_path(job), job_writes.resume_patch(job), pod_writes.JSON_PATCH)
            case ReportGang():
                self._write_gang(action)
            case CreatePool(name, switches):
                self._send("POST", pool_writes.pools_path(), pool_writes.new_pool(name, switches), JSON)
            case _:
                assert_never(action)

    def _bind_later(self, seconds: float, action: Bind, attempt: int) -> None:
        self._environment.timers.put(self._environment.now + seconds, lambda: self._bind(action, attempt))

    def _bind(self, action: Bind, attempt: int) -> None:
        """Send a Binding once; its response leads to the outcome or to the next attempt."""
        if self.stopped:
            return
        if self._response_is_lost():
            if self._request_arrives():
                self._post(action)
            when = self._environment.now + RESPONSE_TIMEOUT_SECONDS
            self._environment.timers.put(when, lambda: self._settle(action, attempt, "no response"))
            return
        response = self._post(action)
        meaning = pod_writes.read_bind_answer(action, response.status, _retry_after(response), response.body)
        match meaning:
            case pod_writes.BindAccepted() | BindRefused():
                self._finish_bind(action, meaning)
            case pod_writes.Throttled(seconds):
                self._bind_later(seconds, action, attempt)
            case pod_writes.Unauthenticated():
                self._bind_later(UNAUTHENTICATED_SECONDS, action, attempt)
            case pod_writes.Unknown(message):
                self._settle(action, pod_writes.BIND_TRIES_MAX, message)
            case _:
                assert_never(meaning)

    def _post(self, action: Bind) -> Response:
        path, body = pod_writes.binding(action)
        return self._send("POST", path.decode(), body, JSON)

    def _settle(self, action: Bind, attempt: int, why: str) -> None:
        """Read the pod of a Binding without a conclusive response."""
        if self.stopped:
            return
        outcome = pod_writes.settle(action, self._read(action.pod), why)
        if outcome is None and attempt + 1 >= pod_writes.BIND_TRIES_MAX:
            outcome = pod_writes.unavailable(action, why)
        if outcome is not None:
            self._finish_bind(action, outcome)
        else:
            self._bind_later(self._network.bind_seconds, action, attempt + 1)

    def _finish_bind(self, action: Bind, outcome: pod_writes.BindAccepted | BindRefused) -> None:
        if isinstance(outcome, BindRefused):
            self.scheduler.observe(outcome, self._environment.now)
        else:
            self._written_messages.pop(action.pod.uid, None)
            self._write_event(event_messages.scheduled(action))

    def _bind_volumes(self, action: BindVolumes) -> None:
        """Write the volumes of a pod, one after the other, as far as they are written."""
        versions: list[str] = []
        for write in action.writes if not self.stopped else ():
            body = volume_writes.write_body(write, withdraw=action.withdraw)
            response = self._send("PATCH", volume_writes.write_path(write.choice), body, MERGE)
            answer = volume_writes.read_answer(response.status, _retry_after(response), response.body)
            if not isinstance(answer, volume_writes.Written):
                refused = VolumesRefused(action.pod.uid, action.decision, f"the API server answered {response.status}")
                self._observe(() if action.withdraw else (refused,))
                return
            versions.append(answer.version)
        if versions and not action.withdraw:
            self._observe((VolumesWritten(action.pod.uid, action.decision, tuple(versions)),))

    def _evict_later(self, seconds: float, action: Evict, eviction: Eviction) -> None:
        self._environment.timers.put(self._environment.now + seconds, lambda: self._evict(action, eviction))

    def _evict(self, action: Evict, eviction: Eviction) -> None:
        """Send the next request of an eviction; its response leads to the outcome or to the next request."""
        if self.stopped:
            return
        withheld = eviction.withheld(self.scheduler)
        if isinstance(withheld, NotNeeded | EvictRefused):
            self._go_on(action, eviction, withheld)
            return
        if withheld is not None:
            self._evict_later(self._network.evict_seconds, action, eviction)
            return
        write = eviction.request(self._time("seconds"))
        if self._response_is_lost():
            if self._request_arrives():
                self._send(write.method, write.path, write.body, write.content_type)
            meaning, seconds = eviction.no_answer("no response"), RESPONSE_TIMEOUT_SECONDS
        else:
            response = self._send(write.method, write.path, write.body, write.content_type)
            meaning = eviction.read_answer(response.status, _retry_after(response), response.body)
            seconds = self._network.evict_seconds
        if (written := eviction.news()) is not None:
            self._job_written(action, written)
        match meaning:
            case NextRequest() | pod_writes.Unknown():
                self._evict_later(seconds, action, eviction)
            case pod_writes.Throttled(wait):
                self._evict_later(wait, action, eviction)
            case pod_writes.Unauthenticated():
                self._evict_later(UNAUTHENTICATED_SECONDS, action, eviction)
            case Rehearsed() | Evicted() | NotNeeded() | EvictRefused():
                self._go_on(action, eviction, meaning)
            case _:
                assert_never(meaning)

    def _go_on(self, action: Evict, eviction: Eviction, outcome: Rehearsed | EvictionOutcome) -> None:
        """Conclude an eviction, or send those that are rehearsed together once all of them are."""
        settled = [((action, eviction), outcome)]
        if eviction.rehearses:
            settled = self._rehearsals.answered(action, (action, eviction), outcome)
        for (one, its), said in settled:
            if said != Rehearsed():
                its.release()
            match said:
                case Rehearsed():
                    its.go_on()
                    self._evict_later(self._network.evict_seconds, one, its)
                case Evicted(not_suspended):
                    self._write_event(event_messages.preempted(one, not_suspended))
                case EvictRefused():
                    self.scheduler.observe(said, self._environment.now)
                case NotNeeded():
                    pass  # the watch reports the deletion
                case _:
                    assert_never(said)

    def _job_written(self, action: Evict, write: job_writes.JobWrite) -> None:
        """Say that the Job of evicted pods was suspended, or what became of its smaller size."""
        match write.change:
            case JobRef() as job:
                if write.accepted:
                    self._write_event(event_messages.suspended(action, job))
            case Resize() as resize:
                refused = elastic_writes.refused(resize, write.failed, 0.0)
                if write.changed:
                    refused = elastic_writes.changed(resize, write.failed)
                self._finish_resize(resize, elastic_writes.Resized() if write.accepted else refused)
            case _:
                assert_never(write.change)

    def _resize_later(self, seconds: float, action: Resize) -> None:
        self._environment.timers.put(self._environment.now + seconds, lambda: self._resize(action))

    def _resize(self, action: Resize) -> None:
        """Write a size once; sent again after a lost response, it finds the object changed."""
        if self.stopped:
            return
        path, content_type = elastic_writes.resize_path(action), elastic_writes.content_type(action)
        if self._response_is_lost():
            if self._request_arrives():
                self._send("PATCH", path, elastic_writes.resize_patch(action), content_type)
            self._resize_later(RESPONSE_TIMEOUT_SECONDS, action)
            return
        response = self._send("PATCH", path, elastic_writes.resize_patch(action), content_type)
        meaning = elastic_writes.read_answer(action, response.status, _retry_after(response), response.body)
        match meaning:
            case elastic_writes.Resized() | ResizeRefused():
                self._finish_resize(action, meaning)
            case pod_writes.Throttled(seconds):
                self._resize_later(seconds, action)
            case pod_writes.Unauthenticated():
                self._resize_later(UNAUTHENTICATED_SECONDS, action)
            case pod_writes.Unknown():
                self._resize_later(self._network.bind_seconds, action)
            case _:
                assert_never(meaning)

    def _finish_resize(self, action: Resize, outcome: elastic_writes.Resized | ResizeRefused) -> None:
        if isinstance(outcome, ResizeRefused):
            self.scheduler.observe(outcome, self._environment.now)
        elif action.reason is not ResizeReason.NOTED:
            self._write_event(event_messages.resized(action))

    def _response_is_lost(self) -> bool:
        """Return whether the response to a request is lost."""
        return self._network.lost_share > 0 and self._chance.random() < self._network.lost_share

    def _request_arrives(self) -> bool:
        """Return whether a request with a lost response reached the server."""
        return self._chance.random() < 0.5

    def _read(self, pod: Pod) -> Pod | None:
        """Read a pod and let the scheduler observe it; None when no pod has its name."""
        response = self._send("GET", pod_writes.pod_path(pod), b"", JSON)
        if response.status == 404:
            metadata = Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid)
            self._observe(self._pods.gone(metadata))
            return None
        self._observe(self._pods.seen(response.body))
        return read_pod(_POD.decode(response.body), self._specs)

    def _read_pools(self, action: Refresh) -> None:
        """Observe all watches, none of which lags behind another here."""
        if not self.stopped:
            self._observe_watches()
            self._observe((Refreshed(action.pool),))

    def _observe(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.scheduler.observe(event, self._environment.now)

    def _write_event(self, message: event_messages.EventMessage) -> None:
        self._event_count += 1
        number = int(self._environment.now * 1e6) + self._event_count
        path, body = event_messages.event(message, number, self._reporter, self._time("microseconds"))
        self._send("POST", path.decode(), body, JSON)

    def _write_condition(self, pod: Pod, message: str) -> None:
        if self._written_messages.get(pod.uid) == message:
            return
        self._written_messages[pod.uid] = message
        since = self._waiting_since.setdefault(pod.uid, self._time("seconds"))
        path, body = pod_writes.waiting_condition(pod, message, since)
        self._send("PATCH", path.decode(), body, pod_writes.STRATEGIC_PATCH)

    def _write_status(self, path: str, patch_of: Callable[[Any, StatusWriter], bytes | None]) -> None:
        document = msgspec.json.decode(self._send("GET", path, b"", JSON).body)
        patch = patch_of(document, StatusWriter(self._reporter.controller, self._environment.now))
        if patch is not None:
            self._send("PATCH", f"{path}/status", patch, pod_writes.MERGE_PATCH)

    def _write_gang(self, report: ReportGang) -> None:
        message = gang_writes.phase_event(report, self._gang_phases.get(report.gang.key))
        self._gang_phases[report.gang.key] = report.status.phase
        if message is not None:
            self._write_event(message)
        for path in gang_writes.object_paths(report.gang):
            found = self._send("GET", path, b"", JSON)
            if found.status == 200:
                patch = gang_writes.status_patch(report, msgspec.json.decode(found.body), self._time("seconds"))
                for place in gang_writes.status_paths(path, report.gang.key.source):
                    if patch is None or self._send("PATCH", place, patch, MERGE).status != 404:
                        return
                return

    def _send(self, method: str, path: str, body: bytes, content_type: str) -> Response:
        response = self._environment.server.handle(request(method, path, body, content_type), self._environment.now)
        assert not isinstance(response, WatchStream)
        return response

    def _time(self, precision: str) -> str:
        return time_text(self._environment.now, precision)


def _retry_after(response: Response) -> str | None:
    return str(response.retry_after_seconds) if response.retry_after_seconds else None
