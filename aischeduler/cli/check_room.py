"""Whether a pod could ever run: the engine is asked, with all nodes empty and the pod alone.

Law: nothing is judged here; what the engine does with the pod, and says of it, is the answer.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, ListPools, ReadPool, Refresh, ReportPool
from aischeduler.model.events import (
    Event,
    NamespaceSeen,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolRead,
    PoolSeen,
    PoolsListed,
    Refreshed,
)
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool

TURNS_MAX: Final = 10_000
"""Decisions after which the engine would never come to rest: a pod visits each pool once."""
CONFLICT: Final = "Conflict"


class Room:
    """Empty nodes, and the pools that have them."""

    def __init__(self, profile: Profile, events: Iterable[Event]) -> None:
        self._scheduler = Scheduler(profile, run="check")
        self._namespaces: set[str] = set()
        self.nodes = 0
        self.pools: dict[str, Pool] = {DEFAULT_POOL: profile.default_pool}
        for event in events:
            self._take(event)
        self._settled = tuple(self._decide())

    def conflicts(self) -> dict[str, str]:
        """Return of each pool, sorted, which nodes another one selects too, in a sentence."""
        return {
            report.name: condition.message
            for report in self._settled
            if isinstance(report, ReportPool)
            for condition in report.conditions
            if condition.type == CONFLICT and condition.status
        }

    def refuses(self, pod: Pod) -> str:
        """Return why a pod could not run although all nodes are empty; nothing where it could, or nobody knows."""
        home = self.pools.get(pod.pool, self.pools[DEFAULT_POOL])
        if not self.nodes or pod.node_name or (home.allowed_namespaces and pod.namespace not in self._namespaces):
            return ""
        self._scheduler.observe(PodSeen(msgspec.structs.replace(pod, gates=())), 0.0)
        placed = any(isinstance(action, Bind) for action in tuple(self._decide()))
        why = "" if placed else self._scheduler.why(pod.uid)
        self._scheduler.observe(PodGone(pod.uid), 0.0)
        return why

    def _take(self, event: Event) -> None:
        match event:
            case NodeSeen():
                self.nodes += 1
            case PoolSeen(pool):
                self.pools[pool.name] = pool
            case NamespaceSeen(name):
                self._namespaces.add(name)
            case _:
                pass
        self._scheduler.observe(event, 0.0)

    def _decide(self) -> Iterator[Action]:
        for _ in range(TURNS_MAX):
            ready = self._scheduler.ready(0.0)
            if not ready:
                return
            for pool in ready:
                for action in self._scheduler.decide(pool, 0.0, 1):
                    self._answer(action)
                    yield action

    def _answer(self, action: Action) -> None:
        """Say that there is nothing but what was given."""
        if isinstance(action, ReadPool):
            self._scheduler.observe(PoolRead(action.name, found=False), 0.0)
        elif isinstance(action, ListPools):
            self._scheduler.observe(PoolsListed(), 0.0)
        elif isinstance(action, Refresh):
            self._scheduler.observe(Refreshed(action.pool), 0.0)
