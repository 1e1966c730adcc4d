"""Reports about Pools with written-out numbers."""

from collections.abc import Mapping

from aischeduler.kube.report.status_writes import StatusWriter
from aischeduler.model.actions import Condition, ReportPool
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, PoolSummary
from tests.build import replace

ACCEPTED = Condition("Accepted", status=True, reason=ConditionReason.VALID, message="fine")
NOTHING: Mapping[str, int] = {CPU: 0, MEMORY: 0, EPHEMERAL_STORAGE: 0, PODS: 0, GPU: 0}
WRITER = StatusWriter("ai-scheduler", 1_767_323_045.25)
"""2026-01-02T03:04:05Z."""
EMPTY = PoolSummary(
    name="cpu",
    nodes=0,
    pods=0,
    pending_pods=0,
    capacity=NOTHING,
    allocatable=NOTHING,
    used=NOTHING,
    own=NOTHING,
    shared=NOTHING,
    system=NOTHING,
    borrowed=NOTHING,
    free=NOTHING,
    pending=NOTHING,
    preemption=True,
    borrowing=True,
    sharing=True,
)


def a_report(
    name: str = "cpu",
    *,
    uid: str = "u-cpu",
    generation: int = 3,
    conditions: tuple[Condition, ...] = (ACCEPTED,),
    summary: PoolSummary = EMPTY,
) -> ReportPool:
    return ReportPool(name, uid, generation, conditions, replace(summary, name=name))
