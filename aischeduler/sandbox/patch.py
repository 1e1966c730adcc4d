"""The patch formats: which one a request speaks, and the two that know no types: JSON patch and JSON merge patch.

Source: RFC 6902 and RFC 7386.
"""

from typing import Any

from aischeduler.sandbox.applying import applied
from aischeduler.sandbox.bodies import as_object, parse
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.status import bad_request, failure, unsupported_media_type
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.strategic import strategic_merge
from aischeduler.sandbox.types import type_of_kind
from aischeduler.sandbox.versions import from_stored

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
OPERATIONS_MAX = 10_000


def patched(call: Call, entry: Entry | None) -> JsonObject:
    """Return what a patch request makes of an object (None: it does not exist)."""
    media = call.content_type.partition(";")[0].strip()
    current = from_stored(call.resource, entry.decoded()) if entry is not None else {}
    custom = call.resource.custom is not None
    if media == JSON_PATCH:
        result = json_patch(current, parse(call.body, call.content_type))
    elif media == MERGE_PATCH:
        result = merge_patch(current, _as_map(parse(call.body, call.content_type)))
    elif media == APPLY_PATCH:
        result = applied(call, entry)
    elif media == STRATEGIC_PATCH and not custom:
        change = _as_map(parse(call.body, call.content_type))
        result = strategic_merge(current, change, type_of_kind(call.resource.kind, call.resource.group))
    else:
        if custom:
            raise unsupported_media_type(media, (JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
        raise failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return as_object(call, result)


def _as_map(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into an object")
    return value


def merge_patch(target: Any, change: Any) -> Any:
    """Return a JSON merge patch applied: null removes, maps merge, anything else replaces."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(document: Any, operations: Any) -> Any:
    """Return a JSON patch applied in place; an operation that cannot be done is refused with 422."""
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    if len(operations) > OPERATIONS_MAX:
        message = f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        raise failure(413, "RequestEntityTooLarge", message)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = "the server rejected our request due to an error in our request"
            raise failure(422, "Invalid", message, {}) from error
    return document


def _operate(document: Any, operation: JsonObject) -> Any:
    steps = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, steps, operation["value"])
        case "remove":
            return _remove(document, steps)
        case "replace":
            _find(document, steps)
            return _put(document, steps, operation["value"])
        case "test":
            if _find(document, steps) != operation["value"]:
                raise ValueError("test failed")
            return document
        case "move" | "copy" as verb:
            source = _steps(operation["from"])
            value = _find(document, source)
            if verb == "move":
                document = _remove(document, source)
            return _add(document, steps, value)
        case other:
            raise ValueError(f"unexpected kind: {other}")


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _find(document: Any, steps: list[str]) -> Any:
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    parent = _find(document, steps[:-1])
    if isinstance(parent, list):
        position = len(parent) if steps[-1] == "-" else int(steps[-1])
        if position > len(parent):
            raise IndexError("index out of bounds")
        parent.insert(position, value)
    else:
        parent[steps[-1]] = value
    return document


def _put(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    parent = _find(document, steps[:-1])
    parent[int(steps[-1]) if isinstance(parent, list) else steps[-1]] = value
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    parent = _find(document, steps[:-1])
    del parent[int(steps[-1]) if isinstance(parent, list) else steps[-1]]
    return document
