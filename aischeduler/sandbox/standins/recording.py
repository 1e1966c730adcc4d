"""Events that stand-ins write about what they did."""

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import JsonObject, timestamp
from aischeduler.sandbox.standins.following import send


def record_event(server: ApiServer, about: JsonObject, what: tuple[str, str, str], component: str, now: float) -> None:
    """Write an event about an object: `what` is its type, reason and note."""
    kind, reason, note = what
    metadata = about["metadata"]
    namespace = metadata.get("namespace") or "default"
    moment = f"{timestamp(now)[:-1]}.{int(now * 1e6) % 1_000_000:06d}Z"
    event: JsonObject = {
        "metadata": {"generateName": f"{metadata['name'][:50]}."},
        "regarding": {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "eventTime": moment,
        "type": kind,
        "reason": reason,
        "action": reason,
        "note": note,
        "reportingController": component,
        "reportingInstance": component,
    }
    send(server, "POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event, now)
