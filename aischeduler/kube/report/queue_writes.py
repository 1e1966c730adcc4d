"""The request bodies of writes to the statuses of our own Queues.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- Amounts are Kubernetes quantities; `columns` has the texts for people.
- Whatever pods ask for, the schema accepts the status.
- The time of the condition Ready is that of the reason Draining while it has it: `drainAfter` counts from there.
"""

from collections.abc import Mapping
from typing import Any, Final

from aischeduler.kube.http.paths import object_path
from aischeduler.kube.report.status_writes import (
    COLUMN_LENGTH_MAX,
    StatusWriter,
    amounts_text,
    conditions,
    cores,
    joined,
    quantities,
    rounded_bytes,
)
from aischeduler.model.actions import ReportQueue
from aischeduler.model.card_shares import whole_cards
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, GPU_SHARE, GROUP, MEMORY, VERSION
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import CARDS_MAX, CardUse, QueueSummary

CARDS_SHOWN_MAX: Final = 2 * CARDS_MAX
"""The most cards of a status: those of a quota, and as many that it does not name."""
AMOUNTS: Final = ("used", "pending", "borrowed")
"""The resource lists of a status, which are fields of QueueSummary."""


def queue_path(name: str, subresource: str = "") -> str:
    """Return the path of a Queue, or of its subresource."""
    return object_path(f"{GROUP}/{VERSION}", "queues", name, subresource=subresource)


def queue_status(report: ReportQueue, before: Mapping[str, Any], writer: StatusWriter) -> dict[str, Any]:
    """Return the status of a Queue; a condition with the same status as `before` keeps its transition time."""
    summary = report.summary
    return {
        "observedGeneration": report.generation,
        "scheduler": writer.scheduler,
        "renewTime": writer.time_text,
        "state": str(report.state),
        "pods": summary.pods,
        "pendingPods": summary.pending_pods,
        **{name: quantities(getattr(summary, name), summary.quota) for name in AMOUNTS},
        "cards": [_card(card) for card in _shown(summary)],
        "columns": columns(summary),
        "conditions": conditions(
            report.conditions, report.generation, before, writer.time_text, timed=(ConditionReason.DRAINING,)
        ),
    }


def columns(summary: QueueSummary) -> dict[str, str]:
    """Return the texts of the printer columns: what is used of the quota, or only what is used without one."""
    used, quota, borrowed = summary.used, summary.quota, summary.borrowed
    return {
        "cards": joined([_use(card) for card in summary.cards], ",", COLUMN_LENGTH_MAX),
        "cpu": cores(used.get(CPU, 0)) + (f"/{cores(quota[CPU])}" if CPU in quota else ""),
        "memory": rounded_bytes(used.get(MEMORY, 0)) + (f"/{rounded_bytes(quota[MEMORY])}" if MEMORY in quota else ""),
        "borrowed": joined(amounts_text(borrowed, _devices(borrowed)).split(", "), ", ", COLUMN_LENGTH_MAX),
    }


def _shown(summary: QueueSummary) -> tuple[CardUse, ...]:
    """Return the cards of a status, those with a quota first where there are too many."""
    if len(summary.cards) <= CARDS_SHOWN_MAX:
        return summary.cards
    return tuple(sorted(summary.cards, key=lambda card: card.quota is None)[:CARDS_SHOWN_MAX])


def _card(card: CardUse) -> dict[str, Any]:
    quota = {"quota": card.quota} if card.quota is not None else {}
    return {"name": card.card, "used": whole_cards(card.used_hundredths), **quota}


def _use(card: CardUse) -> str:
    return f"{card.card} {card.used}" + (f"/{card.quota}" if card.quota is not None else "")


def _devices(amounts: ResourceList) -> list[str]:
    """Return the resources of devices: all names with a prefix; shares are parts of nvidia.com/gpu."""
    return sorted({NVIDIA_GPU if name == GPU_SHARE else name for name in amounts if "/" in name})
