"""An engine and a shell with constant numbers, which the test sets."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import asdict

from aischeduler.engine.counters import Counters
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.report.reporter import ReportCounts
from aischeduler.kube.watch.watched_resources import ReflectorCounts
from aischeduler.model.actions import Bind, Condition, ReportQueue
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary
from aischeduler.model.resources import PodRequest
from aischeduler.model.tenant_queue import CardUse, QueueState, QueueSummary
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.observability.metrics import DaemonCollector, MetricsRecorder, PoolLabels, Sources
from aischeduler.observability.metrics_server import Form, encode

NOTHING: Mapping[str, int] = {CPU: 0, MEMORY: 0, EPHEMERAL_STORAGE: 0, PODS: 0, GPU: 0}
SPEC = PodSpec(key=b"", request=PodRequest({CPU: 100}, 100, 0))


def summary(
    name: str,
    *,
    nodes: int = 0,
    sharing: bool = True,
    cards: tuple[CardCount, ...] = (),
    **amounts: Mapping[str, int],
) -> PoolSummary:
    """Return a summary; amounts that are not given are zero."""
    kinds = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
    given = {kind: {**NOTHING, **amounts.get(kind, {})} for kind in kinds}
    return PoolSummary(
        name=name,
        nodes=nodes,
        pods=given["used"][PODS],
        pending_pods=given["pending"][PODS],
        preemption=True,
        borrowing=True,
        sharing=sharing,
        cards=cards,
        **given,
    )


def pod(uid: str, pool: str = "") -> Pod:
    return Pod(uid=uid, namespace="team", name=uid, spec=SPEC, scheduler_name="ai-scheduler", pool=pool)


def bind(uid: str, pool: str, *, home: str | None = None, waited_seconds: float = 0.0) -> Bind:
    return Bind(pod(uid), "node", pool, home or pool, f"d-{uid}", 1, waited_seconds)


def queue_report(name: str, *cards: CardUse, pending_pods: int = 0, over: bool = False, uid: str = "u") -> ReportQueue:
    """Return the report of a tenant queue; amounts that are not given are zero."""
    told = QueueSummary(used={}, pending={}, borrowed={}, quota={}, cards=cards, pending_pods=pending_pods)
    reason = ConditionReason.OVER_QUOTA if over else ConditionReason.WITHIN_QUOTA
    condition = Condition("OverQuota", status=over, reason=reason, message="")
    return ReportQueue(name, uid, 1, (condition,), told, QueueState.OPEN, "", 0)


class StillEngine:
    """An engine that returns the given numbers."""

    def __init__(self, *pools: PoolSummary) -> None:
        self.counters = Counters()
        self.summaries = pools
        self.queues: dict[str, dict[str, int]] = {}
        self.lent: dict[tuple[str, str], int] = {}
        self.held_pods: dict[tuple[str, ConstraintKind], int] = {}
        self.conflicting: dict[str, int] = {}

    def pools(self) -> tuple[str, ...]:
        return tuple(pool.name for pool in self.summaries)

    def summary(self) -> tuple[PoolSummary, ...]:
        return self.summaries

    def waiting(self) -> dict[str, dict[str, int]]:
        return self.queues

    def held(self) -> dict[tuple[str, ConstraintKind], int]:
        return self.held_pods

    def loans(self) -> dict[tuple[str, str], int]:
        return self.lent

    def conflicts(self) -> dict[str, int]:
        return self.conflicting


class StillReflector:
    watch_open_seconds = 60.0
    watch_idle_seconds = 5.0

    def __init__(self, objects: int, counts: ReflectorCounts) -> None:
        self.counts = counts
        self._objects = objects

    def __len__(self) -> int:
        return self._objects


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class World:
    """The sources of the metrics."""

    leading = True

    def leads(self) -> bool:
        return self.leading

    def __init__(self, *pools: PoolSummary, limit: int = 1000) -> None:
        self.engine = StillEngine(*pools)
        self.recorder = MetricsRecorder(PoolLabels(limit))
        self.reports = ReportCounts()
        self.reflectors: dict[str, Any] = {
            "Pod": StillReflector(3, ReflectorCounts()),
            "Node": StillReflector(2, ReflectorCounts()),
        }
        engine, backlogs = cast("Scheduler", self.engine), {"inbox": lambda: 5, "binds": lambda: 2}
        self.queues: list[str] = []
        """The tenant queues that exist."""
        sources = Sources(
            engine,
            lambda: asdict(self.reports),
            self.reflectors,
            self.leads,
            backlogs,
            lambda: 1.5,
            lambda: self.queues,
        )
        self.collector = DaemonCollector(sources, self.recorder)

    def scrape(self, form: Form) -> bytes:
        """Return a page with the numbers as they are now."""
        self.collector.take()
        return encode(self.recorder.registry, form)
