"""API objects as an API server sends them; each test writes the fields that matter to it."""

import json
from typing import Any


def pod(
    name: str = "p", *, uid: str = "", version: int = 1, namespace: str = "default", **parts: Any
) -> dict[str, Any]:
    """Return a pending pod, with `metadata`, `spec` and `status` merged over its fields."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            **parts.get("metadata", {}),
        },
        "spec": {"schedulerName": "ai-scheduler", "containers": [{"name": "c"}], **parts.get("spec", {})},
        "status": {"phase": "Pending", **parts.get("status", {})},
    }


def node(name: str = "n", *, version: int = 1, **parts: Any) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **parts.get("metadata", {}),
        },
        "spec": parts.get("spec", {}),
        "status": parts.get("status", {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}),
    }


def pool(name: str = "cpu", *, version: int = 1, spec: Any = None) -> dict[str, Any]:
    return {
        "kind": "Pool",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 3},
        "spec": {} if spec is None else spec,
    }


def listing(*items: dict[str, Any], version: int = 100, rest: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": str(version), **({"continue": rest} if rest else {})}
    return {"kind": "List", "metadata": metadata, "items": list(items)}


def line(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line(
        "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}}
    )


def trouble(code: int, reason: str, message: str = "") -> bytes:
    document = {"kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    return line("ERROR", document | {"message": message})
