"""All that the engine believes: nodes, pools, pod records, queues, and what is waiting to be said.

Laws:
- Every pool has exactly one queue; a waiting pod is in exactly one.
- A pod counts in the node table exactly while its record has a row.
"""

from collections import OrderedDict
from typing import Final

from cachetools import LRUCache

from aischeduler.engine.profile import Profile
from aischeduler.framework.runner import Runner
from aischeduler.model.actions import Action, ReportPool
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import PodSpec
from aischeduler.state.nodes import NodeTable
from aischeduler.state.pools import PoolTable
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import NOWHERE, Place, PodRecord

WARNINGS_MAX: Final = 10_000
"""Objects of which we remember what they were warned of; the oldest may be warned again."""


class Cluster:
    """The state of one engine. `run` makes decision ids unique over restarts."""

    def __init__(self, profile: Profile, run: str) -> None:
        self.profile = profile
        self.nodes = NodeTable()
        self.pools = PoolTable(self.nodes)
        self.runner = Runner(profile.plugins, self.nodes)
        self.records: dict[str, PodRecord] = {}
        self.queues: dict[str, PoolQueue] = {DEFAULT_POOL: PoolQueue(DEFAULT_POOL)}
        self.unsettled: OrderedDict[str, float] = OrderedDict()
        """Assumed pods by uid -> when to read them if nothing was heard by then; in order of time."""
        self.outbox: dict[str, list[Action]] = {}
        """Pool -> actions that the next decision of its loop carries out."""
        self.reported: dict[str, ReportPool] = {}
        """Pool -> the conditions that it was told last."""
        self._warned: LRUCache[str, str] = LRUCache(WARNINGS_MAX)
        self._run = run
        self._decisions = 0
        self._arrivals = 0

    def next_decision(self) -> str:
        """Return the id of a new decision."""
        self._decisions += 1
        return f"{self._run}-{self._decisions}"

    def next_arrival(self) -> int:
        """Return the arrival number of a new pod."""
        self._arrivals += 1
        return self._arrivals

    def say(self, pool: str, action: Action) -> None:
        """Leave an action for the loop of this pool, or of the default pool when there is no such pool."""
        self.outbox.setdefault(pool if pool in self.queues else DEFAULT_POOL, []).append(action)

    def warned(self, about: str, message: str) -> bool:
        """Say whether this warning is news for the object, and remember it."""
        news = self._warned.get(about) != message
        self._warned[about] = message
        return news

    def count(self, record: PodRecord, node: str) -> None:
        """Count a pod on the node of this name; a node that was never seen gets a stub."""
        spec = record.pod.spec
        record.row = self.nodes.row(node)
        record.counted = spec
        self.nodes.add(spec, record.row)

    def adopt(self, record: PodRecord, row: int) -> None:
        """Note that a committed trial already counts the pod on this row."""
        record.row = row
        record.counted = record.pod.spec

    def uncount(self, record: PodRecord) -> int:
        """Count a pod on its node no more; return the row that has room now."""
        row, spec = record.row, record.counted
        assert spec is not None
        record.row, record.counted = NOWHERE, None
        self.nodes.remove(spec, row)
        return row

    def queue_of(self, record: PodRecord) -> PoolQueue:
        """Return the queue in which the pod waits."""
        return self.queues[record.queue]

    def leave_queue(self, record: PodRecord, now: float) -> None:
        """Take a waiting pod out; one that was about to be tried hands its chance to the next alike."""
        queue = self.queue_of(record)
        tried = record.place in (Place.ACTIVE, Place.BACKOFF)
        queue.remove(record)
        if tried:
            self.wake_alike(queue, record.pod.spec, now)

    def wake_alike(self, queue: PoolQueue, spec: PodSpec, now: float) -> None:
        """Wake the next parked pod of this class in the queue: what helped one may help another."""
        queue.wake_next(spec, now)
