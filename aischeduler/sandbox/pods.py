"""Pods: what the server fills in and keeps, and how long they stay when they are deleted.

Source: `pkg/registry/core/pod` of Kubernetes 1.36.
"""

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.strategies import Strategy, Write


def _create(write: Write) -> None:
    write.obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _grace_seconds(obj: JsonObject, asked: int | None) -> int:
    """Return the pod's grace; a pod without node, or that has ended, goes at once."""
    spec = obj["spec"]
    if not spec.get("nodeName") or obj["status"].get("phase") in {"Failed", "Succeeded"}:
        return 0
    seconds: int = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return 1 if seconds < 0 else seconds


PODS = Strategy(
    counts_generations=True,
    resets_status=True,
    shows_deleted=True,
    create=_create,
    grace_seconds=_grace_seconds,
)
