"""The request bodies of writes to Pools: the object and its status.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- A status is written only if it differs from the stored one or must be renewed; a condition with the same status keeps
  its transition time.
- A status names its writer; another scheduler does not write it until the hold expires.
- Amounts are Kubernetes quantities under real resource names; `columns` has the texts for people.
- Whatever resources nodes and pods have, the schema accepts the status.

Source: conventions of Kubernetes conditions; merge patches of RFC 7386.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.model.actions import Condition, ReportPool
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GROUP, MEMORY, PODS, VERSION
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary
from aischeduler.model.quantity import quantity_text, scaled_bytes, trimmed
from aischeduler.model.resources import ResourceList
from aischeduler.model.times import time_text

AMOUNTS: Final = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
"""The resource lists of a status, which are fields of PoolSummary."""
SWITCHES: Final = ("preemption", "borrowing", "sharing")
"""The switches of a status, which are fields of PoolSummary."""
RENEW_SECONDS: Final = 60.0
"""An unchanged status is written again after this long, to renew the hold."""
STATUS_EXPIRY_SECONDS: Final = 180.0
"""A status that was not renewed for this long is free, and its numbers may be outdated."""
SKEW_SECONDS: Final = 600.0
"""A renewal further in the future than this does not count; clocks differ less."""
RESOURCES_MAX: Final = 64
COLUMN_LENGTH_MAX: Final = 128
REFUSED_FLAGS: Final = "refused"
"""The flags of a pool whose spec is rejected."""

_MORE: Final = ", ..."
_FIRST_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


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


class StatusWriter(Struct, frozen=True):
    """The schedulerName of a writer, and its time in unix seconds."""

    scheduler: str
    now: float

    @property
    def time_text(self) -> str:
        """The time in RFC 3339, to seconds."""
        return time_text(self.now)


def status_holder(status: Any, now: float) -> str:
    """Return the scheduler that wrote this status and renewed it recently; empty if there is none."""
    if not isinstance(status, dict):
        return ""
    scheduler, age = status.get("scheduler"), now - _renewed_at(status.get("renewTime"))
    return scheduler if isinstance(scheduler, str) and -SKEW_SECONDS < age < STATUS_EXPIRY_SECONDS else ""


def _renewed_at(time: Any) -> float:
    """Return an RFC 3339 time in unix seconds; minus infinity for anything else."""
    try:
        return msgspec.convert(time, datetime).timestamp()
    except (msgspec.ValidationError, ValueError, OverflowError):
        return float("-inf")


def status_patch(report: ReportPool, document: Mapping[str, Any], writer: StatusWriter) -> bytes | None:
    """Return the merge patch that updates a Pool's status; None if it is current, or the Pool has another uid.

    `document` is the Pool as read; the patch holds only for its resource version.
    """
    metadata, before = document.get("metadata") or {}, document.get("status") or {}
    if metadata.get("uid") != report.uid:
        return None
    patch = _difference(before, pool_status(report, before, writer))
    age = writer.now - _renewed_at(before.get("renewTime"))
    if not patch.keys() - {"renewTime"} and -SKEW_SECONDS < age < RENEW_SECONDS:
        return None
    return msgspec.json.encode({"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": patch})


def pool_status(report: ReportPool, before: Mapping[str, Any], writer: StatusWriter) -> dict[str, Any]:
    """Return the status of a Pool; a condition with the same status as `before` keeps its transition time."""
    summary = report.summary
    previous = {
        condition.get("type"): condition for condition in before.get("conditions") or () if isinstance(condition, dict)
    }
    return {
        "observedGeneration": report.generation,
        "scheduler": writer.scheduler,
        "renewTime": writer.time_text,
        "nodes": summary.nodes,
        "pods": summary.pods,
        "pendingPods": summary.pending_pods,
        **{name: getattr(summary, name) for name in SWITCHES},
        **{name: quantities(getattr(summary, name), summary.capacity) for name in AMOUNTS},
        "gpus": {name: getattr(summary, name).get(GPU, 0) for name in AMOUNTS},
        "cardsByType": [{"type": card.type, "total": card.total, "used": card.used} for card in summary.cards],
        "columns": columns(report),
        "conditions": [
            _condition(condition, report.generation, previous.get(condition.type, {}), writer.time_text)
            for condition in report.conditions
        ],
    }


def quantities(amounts: ResourceList, capacity: ResourceList) -> dict[str, str]:
    """Return a resource list as quantities, sorted, without the sum of all GPUs.

    If there are too many resources, those of the pool's nodes come first: pods may request anything.
    """
    names = sorted(amounts.keys() - {GPU}, key=lambda name: (name not in _FIRST_RESOURCES, name not in capacity, name))
    return {name: quantity_text(name, amounts[name]) for name in sorted(names[:RESOURCES_MAX])}


def columns(report: ReportPool) -> dict[str, str]:
    """Return the texts of the printer columns."""
    summary = report.summary
    used, allocatable = summary.used, summary.allocatable
    return {
        "cpu": f"{_cores(used.get(CPU, 0))}/{_cores(allocatable.get(CPU, 0))}",
        "memory": f"{_rounded_bytes(used.get(MEMORY, 0))}/{_rounded_bytes(allocatable.get(MEMORY, 0))}",
        "gpu": f"{used.get(GPU, 0)}/{allocatable.get(GPU, 0)}",
        "shared": _amounts_text(summary.shared),
        "borrowed": _amounts_text(summary.borrowed),
        "flags": _flags(summary) if _accepted(report) else REFUSED_FLAGS,
        "own": _amounts_text(summary.own),
        "system": _amounts_text(summary.system),
        "free": _amounts_text(summary.free),
        "cards": cards_text(summary.cards, COLUMN_LENGTH_MAX),
    }


def cards_text(cards: Sequence[CardCount], length_max: int) -> str:
    """Return used and total GPUs by type, as A100 6/8, V100 0/4; types that do not fit are left out, with dots."""
    text = ", ".join(f"{card.type} {card.used}/{card.total}" for card in cards) or "-"
    if len(text) <= length_max:
        return text
    return text[: length_max - len(_MORE)].rpartition(", ")[0] + _MORE


def _accepted(report: ReportPool) -> bool:
    return all(condition.status for condition in report.conditions if condition.type == "Accepted")


def _flags(summary: PoolSummary) -> str:
    return f"p{_check_mark(summary.preemption)} b{_check_mark(summary.borrowing)} s{_check_mark(summary.sharing)}"


def _check_mark(allowed: bool) -> str:
    return "✓" if allowed else "✗"


def _amounts_text(amounts: ResourceList) -> str:
    """Return CPU and GPUs as text, or else memory, or else pods."""
    parts = [f"{_cores(amounts[CPU])} cpu"] if amounts.get(CPU) else []
    parts += [f"{amounts[GPU]} gpu"] if amounts.get(GPU) else []
    if not parts and amounts.get(MEMORY):
        parts = [f"{_rounded_bytes(amounts[MEMORY])} memory"]
    if not parts and amounts.get(PODS):
        parts = [f"{amounts[PODS]} pods"]
    return ", ".join(parts) or "-"


def _cores(milli: int) -> str:
    return trimmed(f"{milli / 1000:.2f}")


def _rounded_bytes(amount: int) -> str:
    """Return bytes with at most one decimal, in the largest unit that is not below one."""
    number, suffix = scaled_bytes(amount)
    return trimmed(f"{number:.1f}") + suffix


def _condition(condition: Condition, generation: int, before: Mapping[str, Any], now_text: str) -> dict[str, Any]:
    status = "True" if condition.status else "False"
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": condition.type,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now_text,
        "reason": condition.reason,
        "message": condition.message,
    }


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch between two documents: changed fields, and None for removed ones."""
    patch: dict[str, Any] = dict.fromkeys(sorted(before.keys() - after.keys()))
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = _difference(old, value)
            if inner:
                patch[name] = inner
        elif value != old:
            patch[name] = value
    return patch
