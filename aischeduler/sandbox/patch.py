"""JSON patch (RFC 6902 without move and copy), JSON merge patch (RFC 7386), and strategic merge patch."""

from typing import Any

from aischeduler.sandbox.objects import JsonObject, without_nulls
from aischeduler.sandbox.request import Call, as_object, parse
from aischeduler.sandbox.status_errors import bad_request, failure, unsupported_media_type
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.views import from_stored

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
OPERATIONS_MAX = 1_000

MERGE_KEYS = {
    **dict.fromkeys(("containers", "initContainers", "ephemeralContainers", "env", "imagePullSecrets"), "name"),
    **dict.fromkeys(("resourceClaims", "schedulingGates", "volumes"), "name"),
    **dict.fromkeys(("conditions", "addresses"), "type"),
    "ownerReferences": "uid",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
"""The key by which a strategic merge patch merges each list; other lists, such as taints, are replaced."""
SETS = frozenset({"finalizers"})
"""Lists that a strategic merge patch adds to."""
_DELETE_FROM_SET = "$deleteFromPrimitiveList/"


def patch_format(call: Call) -> str:
    """Return the format of a patch request; 415 for one that the sandbox does not read."""
    media = call.asked.content_type.partition(";")[0].strip()
    read = (JSON_PATCH, MERGE_PATCH) if call.resource.is_custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
    if media == APPLY_PATCH:
        message = "the sandbox has no server-side apply: use kubectl apply without --server-side"
        raise failure(415, message)
    if media not in read:
        raise unsupported_media_type(media, read)
    return media


def patched(call: Call, entry: Entry, media: str) -> JsonObject:
    """Return the object after a patch request of this format."""
    current = from_stored(call.resource, entry.decoded())
    change = parse(call, media)
    if media == JSON_PATCH and isinstance(change, list):
        return as_object(call, without_nulls(_json_patch(current, change)))
    if media == JSON_PATCH or not isinstance(change, dict):
        raise bad_request(f"the body is no patch of the format {media}")
    return as_object(call, without_nulls(_merge(current, change, strategic=media == STRATEGIC_PATCH)))


def _merge(target: Any, change: JsonObject, *, strategic: bool) -> JsonObject:
    """Apply a merge patch to an object: null removes, maps merge, anything else replaces."""
    result: JsonObject = dict(target) if isinstance(target, dict) else {}
    if strategic and change.get("$patch") in {"replace", "delete"}:
        result = {}
    for key, value in change.items():
        if strategic and key.startswith("$"):
            _direct(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge(result.get(key), value, strategic=strategic)
        elif strategic and isinstance(value, list) and (key in MERGE_KEYS or key in SETS):
            old = result.get(key)
            result[key] = _merge_list(old if isinstance(old, list) else [], value, MERGE_KEYS.get(key))
        else:
            result[key] = value
    return result


def _direct(result: JsonObject, directive: str, value: Any) -> None:
    """Apply a directive about this map; `$setElementOrder`, the order of list items, is ignored."""
    if directive == "$retainKeys" and isinstance(value, list):
        for key in [key for key in result if key not in value]:
            del result[key]
    elif directive.startswith(_DELETE_FROM_SET) and isinstance(value, list):
        key = directive.removeprefix(_DELETE_FROM_SET)
        if isinstance(result.get(key), list):
            result[key] = [item for item in result[key] if item not in value]


def _merge_list(target: list[Any], change: list[Any], key: str | None) -> list[Any]:
    if key is None:
        return [*target, *(item for item in change if item not in target)]
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in change):
        return [item for item in change if item.get("$patch") != "replace"]
    result = list(target)
    for item in change:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of the patch does not contain the merge key {key}")
        place = next((at for at, old in enumerate(result) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            result[slice(place, None if place is None else place + 1)] = [] if place is not None else result[:]
        elif place is None:
            result.append(_merge({}, item, strategic=True))
        else:
            result[place] = _merge(result[place], item, strategic=True)
    return result


def _json_patch(document: JsonObject, operations: list[Any]) -> Any:
    if len(operations) > OPERATIONS_MAX:
        raise failure(413, f"a JSON patch may have at most {OPERATIONS_MAX} operations")
    root: Any = {"": document}
    for number, operation in enumerate(operations):
        try:
            _operate(root, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise failure(422, f"operation {number} of the JSON patch cannot be applied") from error
    return root[""]


def _operate(root: JsonObject, operation: JsonObject) -> None:
    verb = operation["op"]
    steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")]
    parent: Any = root
    for step in steps[:-1]:
        parent = parent[int(step) if isinstance(parent, list) else step]
    last: Any = steps[-1]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
        if not 0 <= last <= len(parent):
            raise IndexError(last)
    match verb:
        case "add" if isinstance(parent, list):
            parent.insert(last, operation["value"])
        case "add":
            parent[last] = operation["value"]
        case "remove":
            del parent[last]
        case "replace":
            parent[last]
            parent[last] = operation["value"]
        case "test":
            if parent[last] != operation["value"]:
                raise ValueError("test failed")
        case _:
            raise ValueError(f"{verb} is not a supported operation")
