"""Events: what the newer API refuses and the older takes.

Source: `pkg/apis/core/validation/events.go` of Kubernetes 1.36. Paths name the fields of the older form, as there.
"""

from aischeduler.sandbox.objects import JsonObject, qualified_name_errors
from aischeduler.sandbox.status import Cause, invalid_value, required
from aischeduler.sandbox.strategies import Strategy, Write

TEXT_MAX = 128
NOTE_MAX = 1024
TYPES = ("Normal", "Warning")
SYSTEM_NAMESPACES = frozenset({"default", "kube-system"})
IMMUTABLE = {
    "regarding": "involvedObject",
    "reason": "reason",
    "note": "message",
    "type": "type",
    "eventTime": "eventTime",
    "action": "action",
    "related": "related",
    "reportingController": "reportingController",
    "reportingInstance": "reportingInstance",
}


def _validate(write: Write) -> list[Cause]:
    newer = bool(write.call.resource.group)
    causes = _place_errors(write.obj)
    if write.obj.get("eventTime"):
        causes += _report_errors(write.obj, "reportingController" if newer else "reportingComponent")
    if not newer:
        return causes
    if write.old is not None:
        old, obj = write.old, write.obj
        changed = [shown for key, shown in IMMUTABLE.items() if obj.get(key) != old.get(key)]
        return causes + [invalid_value(shown, "", "field is immutable") for shown in changed]
    return causes + _strict_errors(write.obj)


def _place_errors(event: JsonObject) -> list[Cause]:
    namespace, about = event["metadata"].get("namespace", ""), (event.get("regarding") or {}).get("namespace", "")
    allowed = SYSTEM_NAMESPACES if event.get("eventTime") else {"default"}
    if (about and about != namespace and not event.get("eventTime")) or (not about and namespace not in allowed):
        return [invalid_value("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def _report_errors(event: JsonObject, reporter: str) -> list[Cause]:
    causes = []
    name = event.get("reportingController", "")
    if not name:
        causes.append(required(reporter))
    if (wrong := qualified_name_errors(name)) is not None:
        causes.append(invalid_value(reporter, name, wrong))
    for key in ("reportingInstance", "action", "reason"):
        text = event.get(key, "")
        if not text:
            causes.append(required(key))
        if len(text) > TEXT_MAX:
            causes.append(invalid_value(key, "", f"can have at most {TEXT_MAX} characters"))
    if len(event.get("note", "").encode()) > NOTE_MAX:
        causes.append(invalid_value("message", "", f"can have at most {NOTE_MAX} characters"))
    return causes


def _strict_errors(event: JsonObject) -> list[Cause]:
    causes = []
    series = event.get("series")
    if series is not None:
        if series.get("count", 0) < 2:
            causes.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            causes.append(required("series.lastObservedTime"))
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    if event.get("type") not in TYPES:
        causes.append(invalid_value("type", "", f"has invalid value: {event.get('type', '')}"))
    older = {"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp"}
    older |= {"deprecatedCount": "count", "deprecatedSource": "source"}
    causes += [invalid_value(shown, "", "needs to be unset") for key, shown in older.items() if event.get(key)]
    return causes


def _create(write: Write) -> None:
    write.obj.setdefault("deprecatedSource", {})


EVENTS = Strategy(create_on_update=True, create=_create, validate=_validate)
