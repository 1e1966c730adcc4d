"""What the statuses of Pools and Queues have in common: who holds them, their conditions, and their texts.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- A status is written only if it differs from the stored one or must be renewed; a condition with the same status keeps
  its transition time.
- A status names its writer; another scheduler does not write it until the hold expires.

Source: conventions of Kubernetes conditions; merge patches of RFC 7386.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from aischeduler.model.actions import Condition
from aischeduler.model.card_shares import CARD, counted, unit_of
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_SHARE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, gpus
from aischeduler.model.quantity import quantity_text, scaled_bytes, trimmed
from aischeduler.model.resources import ResourceList
from aischeduler.model.times import time_text

RENEW_SECONDS: Final = 60.0
"""An unchanged status is written again after this long, to renew the hold."""
STATUS_EXPIRY_SECONDS: Final = 180.0
"""A status that was not renewed for this long is free, and its numbers may be outdated."""
SKEW_SECONDS: Final = 600.0
"""A renewal further in the future than this does not count; clocks differ less."""
RESOURCES_MAX: Final = 64
COLUMN_LENGTH_MAX: Final = 128

_MORE: Final = ", ..."
_FIRST_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


class Report(Protocol):
    """A report of a status."""

    @property
    def name(self) -> str:
        """The name of the object."""

    @property
    def uid(self) -> str:
        """The uid of the object."""


R = TypeVar("R", bound=Report)


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


def status_patch(
    status: Callable[[R, Mapping[str, Any], StatusWriter], Mapping[str, Any]],
    report: R,
    document: Mapping[str, Any],
    writer: StatusWriter,
) -> bytes | None:
    """Return the merge patch that updates a status; None if it is current, or the object has another uid.

    `document` is the object as read; the patch holds only for its resource version. `status` returns the new status of
    a report, given that of the document.
    """
    metadata, before = document.get("metadata") or {}, document.get("status") or {}
    if metadata.get("uid") != report.uid:
        return None
    patch = _difference(before, status(report, before, writer))
    age = writer.now - _renewed_at(before.get("renewTime"))
    if not patch.keys() - {"renewTime"} and -SKEW_SECONDS < age < RENEW_SECONDS:
        return None
    return msgspec.json.encode({"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": patch})


def conditions(
    reported: Sequence[Condition],
    generation: int,
    before: Mapping[str, Any],
    now_text: str,
    timed: Sequence[ConditionReason] = (),
) -> list[dict[str, Any]]:
    """Return the conditions of a status; one with the same status as `before` keeps its transition time.

    A condition that begins or ceases to have a reason of `timed` has a new one: something counts from that time.
    """
    previous = {
        condition.get("type"): condition for condition in before.get("conditions") or () if isinstance(condition, dict)
    }
    return [
        _condition(condition, generation, previous.get(condition.type, {}), now_text, timed) for condition in reported
    ]


def _condition(
    condition: Condition,
    generation: int,
    before: Mapping[str, Any],
    now_text: str,
    timed: Sequence[ConditionReason],
) -> dict[str, Any]:
    status = "True" if condition.status else "False"
    reason = before.get("reason")
    begins = condition.reason != reason and (condition.reason in timed or reason in timed)
    since = before.get("lastTransitionTime") if before.get("status") == status and not begins else None
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


def quantities(amounts: ResourceList, capacity: ResourceList) -> dict[str, str]:
    """Return a resource list as quantities, sorted, without the sum of all GPUs; shares are parts of nvidia.com/gpu.

    If there are too many resources, those of `capacity` come first: pods may request anything.
    """
    shares = amounts.get(GPU_SHARE, 0)
    texts = {name: quantity_text(name, amount) for name, amount in amounts.items() if name not in (GPU, GPU_SHARE)}
    if shares:
        texts[NVIDIA_GPU] = gpu_quantity(counted(NVIDIA_GPU, amounts))
    names = sorted(texts, key=lambda name: (name not in _FIRST_RESOURCES, name not in capacity, name))
    return {name: texts[name] for name in sorted(names[:RESOURCES_MAX])}


def gpu_quantity(hundredths: int) -> str:
    """Return an amount of GPUs as a quantity in the form in which the API server keeps it: 2, 2500m."""
    return f"{hundredths * 1000 // CARD}m" if hundredths % CARD else str(hundredths // CARD)


def gpus_text(amounts: ResourceList) -> str:
    """Return the sum of all GPUs with their shares for people: 2.5."""
    return quantity_text(GPU_SHARE, gpus(amounts))


def amounts_text(amounts: ResourceList, devices: Sequence[str] = (GPU,)) -> str:
    """Return CPU and devices as text, or else memory, or else pods."""
    parts = [f"{cores(amounts[CPU])} cpu"] if amounts.get(CPU) else []
    texts = ((name, _device_text(name, amounts)) for name in devices)
    parts += [f"{text} {name}" for name, text in texts if text != "0"]
    if not parts and amounts.get(MEMORY):
        parts = [f"{rounded_bytes(amounts[MEMORY])} memory"]
    if not parts and amounts.get(PODS):
        parts = [f"{amounts[PODS]} pods"]
    return ", ".join(parts) or "-"


def _device_text(name: str, amounts: ResourceList) -> str:
    return gpus_text(amounts) if name == GPU else quantity_text(unit_of(name)[0], counted(name, amounts))


def joined(parts: Sequence[str], between: str, length_max: int) -> str:
    """Return parts as one text, a dash for none; parts that do not fit are left out, with dots."""
    text = between.join(parts) or "-"
    if len(text) <= length_max:
        return text
    return (text[: length_max - len(_MORE)].rpartition(between)[0] + _MORE).lstrip(", ")


def cores(milli: int) -> str:
    """Return cores with at most two decimals."""
    return trimmed(f"{milli / 1000:.2f}")


def rounded_bytes(amount: int) -> str:
    """Return bytes with at most one decimal, in the largest unit that is not below one."""
    number, suffix = scaled_bytes(amount)
    return trimmed(f"{number:.1f}") + suffix
