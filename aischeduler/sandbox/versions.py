"""One stored form, several shown forms: events in two API groups, custom resources in several versions.

Law: what is stored is in one version; conversion happens at the edge. Source: `pkg/apis/events/v1/conversion.go`.
"""

from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.store import Entry

EVENT_RENAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK = {stored: shown for shown, stored in EVENT_RENAMES.items()}
# Fields that the core form always shows, with what they are when absent.
_CORE_EVENT_ABSENT: JsonObject = {"reportingComponent": "", "reportingInstance": ""}


def _is_core_event(resource: Resource) -> bool:
    return resource.kind == "Event" and not resource.group


def to_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return an object as it is stored."""
    if _is_core_event(resource):
        renamed = {EVENT_RENAMES.get(key, key): value for key, value in obj.items()}
        return {**renamed, "kind": "Event", "apiVersion": "events.k8s.io/v1"}
    if resource.custom is not None:
        obj["apiVersion"] = f"{resource.group}/{resource.custom.stored_version}"
    return obj


def from_stored(resource: Resource, obj: JsonObject) -> JsonObject:
    """Return a stored object as this resource shows it."""
    if _is_core_event(resource):
        renamed = {_BACK.get(key, key): value for key, value in obj.items()}
        return {
            **renamed,
            **{key: one for key, one in _CORE_EVENT_ABSENT.items() if key not in renamed},
            "apiVersion": "v1",
        }
    if resource.custom is not None:
        obj["apiVersion"] = resource.api_version
    return obj


def shown_bytes(resource: Resource, entry: Entry) -> bytes:
    """Return the JSON of a stored object as this resource shows it; nothing is encoded again where forms are one."""
    differs = resource.custom is not None and resource.custom.stored_version != resource.version
    if differs or _is_core_event(resource):
        return encode(from_stored(resource, entry.decoded()))
    return entry.raw
