"""The views of objects: as they are stored, or as rows of a Table with the columns that `kubectl get` prints.

Invariants:
- A whole object costs no encoding: its stored bytes are sent.
- Events are stored as events.k8s.io/v1; the core group shows them under its own field names.
- The column definitions of a Table are in a list and in the first event of a watch.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from aischeduler.model.times import unix_seconds
from aischeduler.sandbox.api_resources import Resource
from aischeduler.sandbox.objects import JsonObject, condition_of, encode, is_true
from aischeduler.sandbox.request import JSON, Call
from aischeduler.sandbox.store import Entry

NONE, UNKNOWN = "<none>", "<unknown>"
ROLE_PREFIX = "node-role.kubernetes.io/"
PATHS_CACHED = 1024
_NAME: JsonObject = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}
_STEP = re.compile(r"""\.([^.\[\]]+)|\[\?\(\s*@\.([\w-]+)\s*==\s*['"]([^'"]*)['"]\s*\)\]""")
_STORED_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_EVENT_FIELDS = {stored: shown for shown, stored in _STORED_EVENT_FIELDS.items()}


def _is_core_event(resource: Resource) -> bool:
    return resource.kind == "Event" and not resource.group


def to_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return an object as it is stored."""
    if not _is_core_event(resource):
        return obj
    renamed = {_STORED_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def from_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return a stored object as this resource shows it."""
    if not _is_core_event(resource):
        return obj
    renamed = {_CORE_EVENT_FIELDS.get(key, key): value for key, value in obj.items()}
    return {"reportingComponent": "", "reportingInstance": "", **renamed, "apiVersion": "v1"}


class View:
    """Objects as they are stored."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        # The items of a list of built-in objects have no kind.
        lead = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        self._lead = b"" if resource.is_custom else lead

    def at(self, now: float) -> None:
        """Set the time for ages; whole objects show no ages."""

    def shown(self, entry: Entry) -> bytes:
        """Return one object."""
        if _is_core_event(self._resource):
            return encode(from_stored(self._resource, entry.decoded()))
        return entry.raw

    def bookmark(self, revision: int) -> bytes:
        """Return the object of a bookmark, which has only a revision."""
        kind = {"kind": self._resource.kind, "apiVersion": self._resource.api_version}
        return encode({**kind, "metadata": {"resourceVersion": str(revision)}})

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a list."""
        raws = [self.shown(entry) for entry in entries]
        lead, skip = self._lead, len(self._lead)
        if skip:
            raws = [b"{" + raw[skip:] if raw.startswith(lead) else raw for raw in raws]
        head = encode({"kind": f"{self._resource.kind}List", "apiVersion": self._resource.api_version})
        return b'%b,"metadata":%b,"items":[%b]}' % (head[:-1], encode(list_metadata), b",".join(raws))


class TableView(View):
    """Objects as rows of a Table; `whole_objects` says whether a row has the whole object or its metadata."""

    def __init__(self, resource: Resource, now: float, *, whole_objects: bool) -> None:
        super().__init__(resource)
        self._now = now
        self._whole_objects = whole_objects
        self._heads = _table_heads(resource)

    def at(self, now: float) -> None:
        """Set the time for ages."""
        self._now = now

    def shown(self, entry: Entry) -> bytes:
        """Return a table of one row."""
        return encode(self._table([self._row(entry)], {"resourceVersion": str(entry.revision)}))

    def bookmark(self, revision: int) -> bytes:
        """Return a Table with one row that has only a revision."""
        metadata = {"resourceVersion": str(revision)}
        row = {"cells": [], "object": _metadata_object(metadata)}
        return encode(self._table([row], metadata))

    def listed(self, entries: Iterable[Entry], list_metadata: JsonObject) -> bytes:
        """Return a table of all rows."""
        return encode(self._table([self._row(entry) for entry in entries], list_metadata))

    def _table(self, rows: list[JsonObject], metadata: JsonObject) -> JsonObject:
        heads, self._heads = self._heads, []
        table: JsonObject = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return {**table, "columnDefinitions": heads, "rows": rows}

    def _row(self, entry: Entry) -> JsonObject:
        obj = entry.decoded()
        cells = _table_cells(self._resource, obj, self._now)
        shown = from_stored(self._resource, obj) if self._whole_objects else _metadata_object(obj["metadata"])
        return {"cells": cells, "object": shown}


def _metadata_object(metadata: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def choose_view(call: Call) -> View:
    """Return the first view of the `Accept` header that is served here; whole objects when none is."""
    for media in call.asked.accept.split(","):
        name, *parameters = [part.strip() for part in media.split(";")]
        if name == JSON and "as=Table" in parameters and "v=v1" in parameters:
            whole_objects = call.query.get("includeObject") == "Object"
            return TableView(call.resource, call.now, whole_objects=whole_objects)
        if name == JSON and not any(parameter.startswith("as=") for parameter in parameters):
            break
    return View(call.resource)


def _columns(resource: Resource) -> Sequence[JsonObject]:
    """Return all columns; the name is the first one unless the resource has a column for it, as events do."""
    named = any(column.get("format") == "name" for column in resource.columns)
    return resource.columns if named else (_NAME, *resource.columns)


def _table_heads(resource: Resource) -> list[JsonObject]:
    """Return the column definitions of a Table."""
    heads = [{"format": "", "description": "", "priority": 0, **column} for column in _columns(resource)]
    return [{**head, "type": "string" if head["type"] == "date" else head["type"]} for head in heads]


def _table_cells(resource: Resource, obj: JsonObject, now: float) -> list[Any]:
    """Return the cells of one object in the order of the heads."""
    return [_cell(column, obj, now, absent=None if resource.is_custom else NONE) for column in _columns(resource)]


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
    """Return the value at `.a.b` or `.list[?(@.key=="value")].c`; None without a value, or for another kind of path."""
    steps = _steps(path)
    for name, key, wanted in steps:
        if name:
            obj = obj.get(name) if isinstance(obj, dict) else None
        else:
            items = obj if isinstance(obj, list) else ()
            obj = next((item for item in items if isinstance(item, dict) and item.get(key) == wanted), None)
    return obj if steps else None


def human_duration(span: float) -> str:
    """Return a duration in one or two units, as kubectl prints it."""
    total = max(0, int(span))
    units = (("s", 1, 120), ("m", 60, 10_800), ("h", 3_600, 172_800))
    return next((f"{total // size}{unit}" for unit, size, limit in units if total < limit), f"{total // 86_400}d")


def age(text: Any, now: float) -> str:
    """Return how long ago a timestamp was."""
    try:
        return human_duration(now - unix_seconds(str(text)))
    except ValueError:
        return UNKNOWN


def _pod_ready(pod: JsonObject, _now: float) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return f"{sum(1 for status in statuses if status.get('ready'))}/{len(pod['spec'].get('containers') or ())}"


def _pod_restarts(pod: JsonObject, _now: float) -> str:
    return str(sum(status.get("restartCount", 0) for status in pod.get("status", {}).get("containerStatuses") or ()))


def _pod_status(pod: JsonObject, _now: float) -> str:
    """Return the status of a pod in one word, as kubectl prints it."""
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
"""The columns of built-in kinds that no path gives, by the name that `api_resources.yaml` has in its place."""
