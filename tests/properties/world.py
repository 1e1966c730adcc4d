"""The state of a cluster as an API server has it, and the connection between it and one engine.

The actions of the engine take effect when a test lets them: binds and evictions are in flight until then. The engine
gets events through a watch that can stall: then it decides on an older state.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Action, Bind, CreatePool, Evict, Nominate, ReadPod, Refresh
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    Event,
    EvictRefusal,
    EvictRefused,
    Refreshed,
    Seen,
    gone,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import Labels, label_selector, node_requirement
from tests.build import replace
from tests.checked_scheduler import CheckedScheduler, answers

ROUNDS_MAX = 1000
"""Rounds within one instant; more rounds count as endless work."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The parts of the world that act after each step; the others act when a test lets them, or with another timing."""

    decides: bool = True
    hears: bool = True
    binds: bool = True
    evicts: bool = True
    ends: bool = True


class World:
    """Objects by name (pods by uid), the engine that observes them, and its clock."""

    def profile(self) -> Profile:
        """Return the profile of every engine."""
        return default_profile()

    def __init__(self, *, often: bool = False) -> None:
        self.runs = 0
        self._often = often
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.pools: dict[str, Pool] = {}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.namespaces: dict[str, Labels] = {}
        self.binds: list[Bind] = []
        self.evictions: list[Evict] = []
        self.refused: set[str] = set()
        """Pods whose Bindings a policy refuses, until the faults stop."""
        self.said: list[Action] = []
        self.timing = Timing()
        self._unheard: list[Event] = []
        self._pods_made = 0
        self._changed = True
        """Whether the engine was called since its state was checked."""
        self.scheduler = self._start()

    def _start(self) -> CheckedScheduler:
        self.runs += 1
        return CheckedScheduler(self.profile(), f"run{self.runs}", often=self._often)

    # Changes of the world.

    def put(self, thing: Pod | Node | Pool | DisruptionBudget) -> None:
        """Create or change an object."""
        match thing:
            case Pod():
                self.pods[thing.uid] = thing
                self._happens(Seen(thing))
            case Node():
                self.nodes[thing.name] = thing
                self._happens(Seen(thing))
            case Pool():
                self.pools[thing.name] = thing
                self._happens(Seen(thing))
            case DisruptionBudget():
                self.budgets[thing.name] = thing
                self._happens(Seen(thing))

    def label_namespace(self, name: str, labels: Labels) -> None:
        """Create or change a namespace."""
        self.namespaces[name] = labels
        self._happens(Seen(Namespace(name, labels)))

    def next_pod_name(self) -> str:
        """Return a name that no pod had yet."""
        self._pods_made += 1
        return f"p{self._pods_made}"

    def end_pod(self, uid: str, *, finished: bool = False) -> None:
        """Remove a pod, or let it finish, which is final too."""
        pod = self.pods.pop(uid)
        self._happens(Seen(replace(pod, phase="Succeeded")) if finished else gone(Pod, uid))

    def delete_pod(self, uid: str, grace_seconds: int) -> None:
        """Delete a pod as a user does: a pod on a node has a grace period."""
        pod = self.pods[uid]
        if not pod.node_name:
            self.end_pod(uid)
        elif not pod.terminating:
            self.put(replace(pod, terminating=True, grace_seconds=grace_seconds))

    def end_node(self, name: str) -> None:
        """Delete a node; its pods stay until they are deleted."""
        if self.nodes.pop(name, None) is not None:
            self._happens(gone(Node, name))

    def end_pool(self, name: str) -> None:
        """Delete a Pool."""
        if self.pools.pop(name, None) is not None:
            self._happens(gone(Pool, name))

    def end_budget(self, name: str) -> None:
        """Delete a budget."""
        budget = self.budgets.pop(name, None)
        if budget is not None:
            self._happens(gone(DisruptionBudget, budget.namespace, budget.name))

    # Events for the engine.

    def _happens(self, event: Event) -> None:
        if not self.timing.hears:
            self._unheard.append(event)
        else:
            self._tell(event)

    def hear(self) -> None:
        """Deliver all events of the watch."""
        unheard, self._unheard = self._unheard, []
        for event in unheard:
            self._tell(event)

    def list_again(self, things: Iterable[Event] = ()) -> None:
        """Deliver every object again, as after a restart of the API server."""
        self.hear()
        for event in (*things, *self._everything()):
            self._tell(event)

    def tell_again(self, uid: str, *, old: bool) -> None:
        """Deliver a pod again, if `old` first as it was before it was bound."""
        pod = self.pods[uid]
        if not self._unheard:
            if old:
                self._tell(Seen(replace(pod, node_name="", terminating=False)))
            self._tell(Seen(pod))

    def _everything(self) -> list[Event]:
        return [
            *(Seen(Namespace(name, labels)) for name, labels in sorted(self.namespaces.items())),
            *(Seen(pool) for _, pool in sorted(self.pools.items())),
            *(Seen(node) for _, node in sorted(self.nodes.items())),
            *(Seen(budget) for _, budget in sorted(self.budgets.items())),
            *(Seen(pod) for _, pod in sorted(self.pods.items())),
        ]

    def _tell(self, event: Event) -> None:
        self._changed = True
        self.scheduler.observe(event, self.now)

    # Actions of the engine.

    def decide(self, limit: int = 1, rounds: int = 1) -> int:
        """Let every ready pool decide, this many times; return the number of actions."""
        count = 0
        for _ in range(rounds):
            pools = self.scheduler.ready(self.now)
            if not pools:
                break
            self._changed = True
            for pool in pools:
                actions = self.scheduler.decide(pool, self.now, limit)
                count += len(actions)
                for action in actions:
                    self._take(action)
        return count

    def _take(self, action: Action) -> None:
        self.said.append(action)
        match action:
            case Bind():
                self.binds.append(action)
            case Evict():
                self.evictions.append(action)
            case CreatePool(name):
                if name not in self.pools:
                    self.put(Pool(name, uid=f"uid-{name}", generation=1))
            case Refresh() | ReadPod():
                self._look(action)
            case Nominate(pod, node):
                if pod.uid in self.pods and not self.pods[pod.uid].node_name:
                    self.put(replace(self.pods[pod.uid], nominated_node=node))
            case _:
                pass

    def _look(self, action: Refresh | ReadPod) -> None:
        """Carry out a read that the engine requests, beside the watch."""
        match action:
            case Refresh(pool):
                self.hear()
                self._tell(Refreshed(pool))
            case ReadPod(pod, evicted=True):
                self._read(pod.uid)
                if pod.uid in self.pods and not self.pods[pod.uid].terminating:
                    self._tell(EvictRefused(pod.uid, EvictRefusal.LOST, "nothing was heard"))
            case ReadPod(pod):
                if all(bind.pod.uid != pod.uid for bind in self.binds):
                    self._read(pod.uid)

    def _read(self, uid: str) -> None:
        """Read a pod beside the watch."""
        pod = self.pods.get(uid)
        self._tell(gone(Pod, uid) if pod is None else Seen(pod))

    def conclude(self, number: int, wish: BindRefusal | None) -> None:
        """Conclude a bind in flight; `wish` is a refusal, if the state of the world allows it."""
        if not self.binds:
            return
        bind = self.binds.pop(number % len(self.binds))
        uid, pod = bind.pod.uid, self.pods.get(bind.pod.uid)
        refusal = BindRefusal.INVALID if uid in self.refused else wish
        if pod is None:
            refusal = BindRefusal.GONE
        elif pod.node_name and pod.node_name != bind.node:
            refusal = BindRefusal.TAKEN
        elif pod.terminating or pod.gates:
            refusal = BindRefusal.HELD
        elif pod.node_name:
            refusal = None
        if refusal is None and pod is not None:
            started = 1 + int(self.now)
            if not pod.node_name:
                self.put(replace(pod, node_name=bind.node, started_seconds=started, nominated_node=""))
        elif refusal is not None:
            if refusal is BindRefusal.INVALID:
                self.refused.add(uid)
            self._tell(BindRefused(uid, bind.node, refusal, "no"))

    def lose(self, number: int) -> None:
        """Carry out a bind and lose its answer; the engine learns the outcome from the watch or a read."""
        if self.binds and self.binds[number % len(self.binds)].pod.uid not in self.refused:
            bind = self.binds.pop(number % len(self.binds))
            pod = self.pods.get(bind.pod.uid)
            if pod is None:
                self._tell(BindRefused(bind.pod.uid, bind.node, BindRefusal.GONE, "no"))
            elif not pod.node_name and not pod.gates:
                self.put(replace(pod, node_name=bind.node, started_seconds=1 + int(self.now), nominated_node=""))
            else:
                self.binds.append(bind)

    def evict(self, number: int, wish: EvictRefusal | None, grace_seconds: int) -> None:
        """Conclude an eviction in flight."""
        if not self.evictions:
            return
        evict = self.evictions.pop(number % len(self.evictions))
        pod = self.pods.get(evict.victim.uid)
        if pod is None or pod.terminating:
            return
        if wish is not None:
            self._tell(EvictRefused(pod.uid, wish, "no"))
        else:
            self.delete_pod(pod.uid, grace_seconds)

    def lose_eviction(self, number: int) -> None:
        """Lose an eviction in flight: it has no effect and no outcome."""
        if self.evictions:
            self.evictions.pop(number % len(self.evictions))

    def restart_scheduler(self) -> None:
        """End the engine; its requests in flight may or may not take effect; a new engine lists everything."""
        for number in range(len(self.binds)):
            if number % 2:
                self.lose(0)
        self.binds.clear()
        self.evictions.clear()
        self._unheard.clear()
        self.scheduler, self._changed = self._start(), True
        self.list_again()

    # The end.

    def calm_down(self, seconds: float) -> None:
        """Stop the faults, and let time pass until nothing changes."""
        self.timing = Timing()
        self.refused.clear()
        self.hear()
        self._let_budgets_allow()
        end = self.now + seconds
        while self.now < end:
            self.settle()
            self.now += 6.0
        self.settle()

    def _let_budgets_allow(self) -> None:
        """Let all budgets allow evictions, so that pods are not spared for a budget any longer."""
        for _, budget in sorted(self.budgets.items()):
            self.put(replace(budget, disruptions_allowed=1000))
        every_pod = label_selector(
            "spec.selector", {}, (node_requirement("key", "nobody-has-this", "DoesNotExist", ()),)
        )
        for namespace in sorted({pod.namespace for pod in self.pods.values()}):
            self._tell(Seen(DisruptionBudget(namespace, "calm", "uid-calm", every_pod, disruptions_allowed=1000)))
            self._tell(gone(DisruptionBudget, namespace, "calm"))

    def settle(self) -> None:
        """Let every part of the world act until nothing changes."""
        for _ in range(ROUNDS_MAX):
            if not self._round(1000):
                return
        raise AssertionError(f"the world does not come to rest: {self.said[-10:]}")

    def go_on(self) -> None:
        """Let the parts that act by themselves act for a few rounds; check the state if the engine was called."""
        for _ in range(3):
            if not self._round(3):
                break
        if self._changed:
            self.scheduler.look()
            self._changed = False

    def _round(self, most: int) -> bool:
        """Let each part of the world act at most `most` times; return whether something changed."""
        timing, moved = self.timing, False
        if timing.hears:
            self.hear()
        if timing.decides:
            moved = bool(self.decide(rounds=most))
        for _ in range(min(most, len(self.binds)) if timing.binds else 0):
            self.conclude(0, None)
            moved = True
        for _ in range(min(most, len(self.evictions)) if timing.evicts else 0):
            self.evict(0, None, 0)
            moved = True
        for uid in [uid for uid, pod in sorted(self.pods.items()) if pod.terminating and timing.ends][:most]:
            self.end_pod(uid)
            moved = True
        return moved

    def fresh(self) -> tuple[CheckedScheduler, list[Action]]:
        """Return a new engine that tried all pods, and its actions."""
        scheduler = CheckedScheduler(self.profile(), "fresh", often=False)
        for event in self._everything():
            scheduler.observe(event, self.now)
        said: list[Action] = []
        while pools := scheduler.ready(self.now):
            for pool in pools:
                actions = scheduler.decide(pool, self.now, 1)
                said += actions
                for event in answers(actions):
                    scheduler.observe(event, self.now)
        return scheduler, [action for action in said if isinstance(action, Bind | Evict)]
