"""Reports about Queues with written-out numbers."""

from aischeduler.model.actions import Condition, ReportQueue
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.tenant_queue import CardUse, QueueState, QueueSummary

GIB = 2**30
READY = Condition("Ready", status=True, reason=ConditionReason.OPEN, message="open")
CLOSED = Condition("Ready", status=False, reason=ConditionReason.CLOSED, message="closed")
DRAINING = Condition("Ready", status=False, reason=ConditionReason.DRAINING, message="drains")
EMPTY = QueueSummary(used={}, pending={}, borrowed={}, quota={})
BUSY = QueueSummary(
    used={CPU: 3000, MEMORY: 3 * GIB, "nvidia.com/gpu": 6},
    pending={CPU: 500},
    borrowed={CPU: 1500, "nvidia.com/gpu": 2},
    quota={CPU: 4000, MEMORY: 4 * GIB},
    cards=(CardUse("H200", 0, 4), CardUse("RTX-4090", 600, 8), CardUse("V100", 100)),
    pods=5,
    pending_pods=2,
)


def a_queue_report(
    name: str = "q",
    *,
    uid: str = "u-q",
    generation: int = 3,
    conditions: tuple[Condition, ...] = (READY,),
    summary: QueueSummary = EMPTY,
    state: QueueState = QueueState.OPEN,
) -> ReportQueue:
    return ReportQueue(name, uid, generation, conditions, summary, state, "", 0)
