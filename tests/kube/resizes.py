"""Resizes of elastic jobs, as the engine asks for them."""

from typing import Any

from aischeduler.model.actions import Resize, ResizeReason

AT = "2026-01-02T03:04:05.250000Z"
AT_SECONDS = 1_767_323_045.25


def a_resize(kind: str = "Job", **parts: Any) -> Resize:
    """Return a resize of `team/train` from 4 instances to 6."""
    found = Resize(
        kind,
        "team",
        "train",
        "uid-train",
        "7",
        before=4,
        instances=6,
        reason=ResizeReason.GROWN,
        message="there is room for 2 more",
        decision="d-1",
        service=1200,
        now_seconds=AT_SECONDS,
    )
    return Resize(**{name: parts.get(name, getattr(found, name)) for name in Resize.__struct_fields__})
