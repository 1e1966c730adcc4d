"""The request bodies of writes to Pools: the object and its status.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- Amounts are Kubernetes quantities under real resource names; `columns` has the texts for people.
- Whatever resources nodes and pods have, the schema accepts the status.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.kube.report.status_writes import (
    COLUMN_LENGTH_MAX,
    StatusWriter,
    amounts_text,
    conditions,
    cores,
    gpus_text,
    joined,
    quantities,
    rounded_bytes,
)
from aischeduler.model.actions import ReportPool
from aischeduler.model.card_shares import whole_cards
from aischeduler.model.names import CPU, GROUP, MEMORY, VERSION
from aischeduler.model.pool_summary import CardCount, PoolSummary, gpus

AMOUNTS: Final = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
"""The resource lists of a status, which are fields of PoolSummary."""
SWITCHES: Final = ("preemption", "borrowing", "sharing")
"""The switches of a status, which are fields of PoolSummary."""
REFUSED_FLAGS: Final = "refused"
"""The flags of a pool whose spec is rejected."""


def pool_path(name: str, subresource: str = "") -> str:
    """Return the path of a Pool, or of its subresource."""
    return object_path(f"{GROUP}/{VERSION}", "pools", name, subresource=subresource)


def pools_path() -> str:
    """Return the path of all Pools."""
    return collection_path(f"{GROUP}/{VERSION}", "pools")


def new_pool(name: str, switches: Iterable[str] = ()) -> bytes:
    """Return the body that creates a Pool; `switches` are the fields of the spec that are true."""
    spec = dict.fromkeys(switches, True)
    return msgspec.json.encode(
        {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Pool", "metadata": {"name": name}, "spec": spec}
    )


def pool_status(report: ReportPool, before: Mapping[str, Any], writer: StatusWriter) -> dict[str, Any]:
    """Return the status of a Pool; a condition with the same status as `before` keeps its transition time."""
    summary = report.summary
    return {
        "observedGeneration": report.generation,
        "scheduler": writer.scheduler,
        "renewTime": writer.time_text,
        "nodes": summary.nodes,
        "pods": summary.pods,
        "pendingPods": summary.pending_pods,
        **{name: getattr(summary, name) for name in SWITCHES},
        **{name: quantities(getattr(summary, name), summary.capacity) for name in AMOUNTS},
        "gpus": {name: whole_cards(gpus(getattr(summary, name))) for name in AMOUNTS},
        "cardsByType": [_card(card) for card in summary.cards],
        "columns": columns(report),
        "conditions": conditions(report.conditions, report.generation, before, writer.time_text),
    }


def columns(report: ReportPool) -> dict[str, str]:
    """Return the texts of the printer columns."""
    summary = report.summary
    used, allocatable = summary.used, summary.allocatable
    return {
        "cpu": f"{cores(used.get(CPU, 0))}/{cores(allocatable.get(CPU, 0))}",
        "memory": f"{rounded_bytes(used.get(MEMORY, 0))}/{rounded_bytes(allocatable.get(MEMORY, 0))}",
        "gpu": f"{gpus_text(used)}/{gpus_text(allocatable)}",
        "shared": amounts_text(summary.shared),
        "borrowed": amounts_text(summary.borrowed),
        "flags": _flags(summary) if _accepted(report) else REFUSED_FLAGS,
        "own": amounts_text(summary.own),
        "system": amounts_text(summary.system),
        "free": amounts_text(summary.free),
        "cards": cards_text(summary.cards, COLUMN_LENGTH_MAX),
    }


def _card(card: CardCount) -> dict[str, Any]:
    return {"type": card.type, "total": card.total, "used": whole_cards(card.used_hundredths)}


def cards_text(cards: Sequence[CardCount], length_max: int) -> str:
    """Return used and total GPUs by type, as A100 6/8, V100 0/4; types that do not fit are left out, with dots."""
    return joined([f"{card.type} {card.used}/{card.total}" for card in cards], ", ", length_max)


def _accepted(report: ReportPool) -> bool:
    return all(condition.status for condition in report.conditions if condition.type == "Accepted")


def _flags(summary: PoolSummary) -> str:
    return f"p{_check_mark(summary.preemption)} b{_check_mark(summary.borrowing)} s{_check_mark(summary.sharing)}"


def _check_mark(allowed: bool) -> str:
    return "✓" if allowed else "✗"
