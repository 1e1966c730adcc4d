"""The refusals of an API server: a `Status` object, its HTTP code, and the words clients match on.

`Refusal` is the one error tree of the package: it is raised where a request turns out to be wrong and becomes the
answer in `ApiServer.handle`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aischeduler.sandbox.objects import JsonObject, encode


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing wrong with an object: a field's path, the reason word, and the sentence behind the path."""

    field: str
    reason: str
    message: str


class Refusal(Exception):  # noqa: N818  (the server refuses; nothing went wrong here)
    """A request that the server answers with a failure."""

    def __init__(self, status: JsonObject) -> None:
        super().__init__(status["message"])
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP status."""
        code: int = self.status["code"]
        return code


def failure(code: int, reason: str, message: str, details: JsonObject | None = None) -> Refusal:
    """Return a refusal with a `Status` in the field order of the real server."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = details
    body["code"] = code
    return Refusal(body)


def success(details: JsonObject | None = None, code: int | None = None) -> JsonObject:
    """Return the `Status` of a request that worked and has no object to show."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    if code is not None:
        body["code"] = code
    return body


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str) -> JsonObject:
    pairs = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in pairs.items() if value}


def not_found(plural: str, group: str, name: str) -> Refusal:
    """404 NotFound for an object of a known resource."""
    return failure(404, "NotFound", f'{_qualified(plural, group)} "{name}" not found', _details(name, group, plural))


def no_such_path() -> Refusal:
    """404 for a path that is no resource."""
    return failure(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str, *, going: bool) -> Refusal:
    """409 AlreadyExists; `going`: the one that is there is being deleted."""
    lead = "object is being deleted: " if going else ""
    message = f'{lead}{_qualified(plural, group)} "{name}" already exists'
    return failure(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str) -> Refusal:
    """409 Conflict: a precondition does not hold."""
    message = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}'
    return failure(409, "Conflict", message, _details(name, group, plural))


def forbidden(plural: str, group: str, name: str, why: str) -> Refusal:
    """403 Forbidden, as admission answers."""
    subject = f'{_qualified(plural, group)} "{name}"' if name else _qualified(plural, group)
    return failure(403, "Forbidden", f"{subject} is forbidden: {why}", _details(name, group, plural))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422 Invalid with one cause for each field."""
    sentences = [f"{cause.field}: {cause.message}" for cause in causes]
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details = _details(name, group, kind)
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return failure(422, "Invalid", f'{_qualified(kind, group)} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> Refusal:
    """400 BadRequest."""
    return failure(400, "BadRequest", message)


def expired(message: str) -> Refusal:
    """410 Expired: history is gone, list again."""
    return failure(410, "Expired", message)


def too_large_resource_version(asked: int, current: int) -> Refusal:
    """504 Timeout: this server has not seen that revision (yet)."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return failure(504, "Timeout", f"Timeout: Too large resource version: {asked}, current: {current}", details)


def method_not_allowed() -> Refusal:
    """405 MethodNotAllowed."""
    return failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(given: str, supported: Sequence[str]) -> Refusal:
    """415 for a body in a format that is not spoken here."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
    return failure(415, "UnsupportedMediaType", message if given else "no content type was given; " + message)


def required(field: str, detail: str = "") -> Cause:
    """Blame a field that must be there."""
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, value: object, detail: str) -> Cause:
    """Blame a wrong value; texts are shown in quotes."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> Cause:
    """Blame a value that is none of the known ones."""
    known = ", ".join(f'"{one}"' for one in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {known}")


def forbidden_field(field: str, detail: str) -> Cause:
    """Blame a field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate_value(field: str, value: object) -> Cause:
    """Blame a second one with the same key."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_long(field: str, detail: str) -> Cause:
    """Blame a field that is larger than allowed."""
    return Cause(field, "FieldValueTooLong", f"Too long: {detail}")


def _shown(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(int(value) if float(value).is_integer() else value)
    if isinstance(value, dict | list):
        return encode(value).decode()
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
