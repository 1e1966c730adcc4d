"""The columns that `kubectl get` shows for each kind, and how their cells are made.

Source: `pkg/printers/internalversion` and, for custom resources, `additionalPrinterColumns`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from aischeduler.sandbox.api_resources import Resource
from aischeduler.sandbox.objects import JsonObject, condition_of, encode, is_true, seconds

NONE, UNKNOWN = "<none>", "<unknown>"
ROLE_PREFIX = "node-role.kubernetes.io/"
PATHS_CACHED = 1024
_NAME: JsonObject = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}
_STEP = re.compile(r"""\.([^.\[\]]+)|\[\?\(\s*@\.([\w-]+)\s*==\s*['"]([^'"]*)['"]\s*\)\]""")


def table_heads(resource: Resource) -> list[JsonObject]:
    """Return the column definitions of a Table."""
    return [
        {
            "name": one["name"],
            "type": "string" if one["type"] == "date" else one["type"],
            "format": one.get("format", ""),
            "description": "",
            "priority": one.get("priority", 0),
        }
        for one in (_NAME, *resource.columns)
    ]


def table_cells(resource: Resource, obj: JsonObject, now: float) -> list[Any]:
    """Return the cells of one object in the order of the heads."""
    return [_cell(one, obj, now, absent=None if resource.is_custom else NONE) for one in (_NAME, *resource.columns)]


def _cell(column: JsonObject, obj: JsonObject, now: float, absent: str | None) -> Any:
    path = column["jsonPath"]
    if path in _COMPUTED and absent is not None:
        return _COMPUTED[path](obj, now)
    value = find_path(obj, path)
    if column["type"] == "date":
        return age(value, now)
    if value is None or isinstance(value, str | int | float):
        return absent if value is None else value
    return encode(value).decode()


@lru_cache(maxsize=PATHS_CACHED)
def _steps(path: str) -> list[tuple[str, str, str]]:
    return _STEP.findall(path) if re.fullmatch(f"({_STEP.pattern})+", path) else []


def find_path(obj: Any, path: str) -> Any:
    """Return what lies at `.a.b` or `.list[?(@.key=="value")].c`; None where nothing does, or for another path."""
    steps = _steps(path)
    for name, key, wanted in steps:
        if name:
            obj = obj.get(name) if isinstance(obj, dict) else None
        else:
            items = obj if isinstance(obj, list) else ()
            obj = next((one for one in items if isinstance(one, dict) and one.get(key) == wanted), None)
    return obj if steps else None


def human_duration(span: float) -> str:
    """Return a span of seconds in the largest unit that says enough."""
    total = max(0, int(span))
    units = (("s", 1, 120), ("m", 60, 10_800), ("h", 3_600, 172_800))
    return next((f"{total // size}{unit}" for unit, size, limit in units if total < limit), f"{total // 86_400}d")


def age(text: Any, now: float) -> str:
    """Return how long ago a timestamp was."""
    try:
        return human_duration(now - seconds(str(text)))
    except ValueError:
        return UNKNOWN


def _pod_ready(pod: JsonObject, _now: float) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return f"{sum(1 for one in statuses if one.get('ready'))}/{len(pod['spec'].get('containers') or ())}"


def _pod_restarts(pod: JsonObject, _now: float) -> str:
    return str(sum(one.get("restartCount", 0) for one in pod.get("status", {}).get("containerStatuses") or ()))


def _pod_status(pod: JsonObject, _now: float) -> str:
    """Return the one word that says most about a pod."""
    status = pod.get("status") or {}
    word: str = status.get("reason") or status.get("phase") or "Unknown"
    if pod["metadata"].get("deletionTimestamp") and word not in {"Succeeded", "Failed"}:
        return "Terminating"
    if (condition_of(status, "PodScheduled") or {}).get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        word = (state.get("waiting") or state.get("terminated") or {}).get("reason") or word
    return word


def _node_status(node: JsonObject, _now: float) -> str:
    ready = condition_of(node.get("status") or {}, "Ready")
    word = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else word


def _node_roles(node: JsonObject, _now: float) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)}
    return ",".join(sorted(filter(None, {*roles, labels.get("kubernetes.io/role", "")}))) or NONE


def _job_status(job: JsonObject, _now: float) -> str:
    kinds = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((kind for kind in kinds if is_true(job.get("status") or {}, kind)), "Running")


def _job_completions(job: JsonObject, _now: float) -> str:
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{job['spec'].get('completions', 1)}"


def _event_last_seen(event: JsonObject, now: float) -> str:
    last = (event.get("series") or {}).get("lastObservedTime") or event.get("deprecatedLastTimestamp")
    return age(last or event.get("eventTime") or event["metadata"].get("creationTimestamp"), now)


def _event_object(event: JsonObject, _now: float) -> str:
    about = event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


_COMPUTED: dict[str, Callable[[JsonObject, float], str]] = {
    "event_last_seen": _event_last_seen,
    "event_object": _event_object,
    "job_completions": _job_completions,
    "job_status": _job_status,
    "node_roles": _node_roles,
    "node_status": _node_status,
    "pod_ready": _pod_ready,
    "pod_restarts": _pod_restarts,
    "pod_status": _pod_status,
}
