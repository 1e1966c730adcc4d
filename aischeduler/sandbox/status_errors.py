"""The refusals of an API server: a `Status` object with its HTTP code, its reason and the fields that it blames.

A `Refusal` is raised where a request turns out to be wrong; `ApiServer.handle` makes it the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aischeduler.sandbox.objects import JsonObject

_REASONS = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    504: "Timeout",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """One wrong field: its path, a sentence, and the reason word."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class Refusal(Exception):  # noqa: N818  (the server refuses; the server has no error)
    """A request that the server answers with a failure."""

    def __init__(self, status: JsonObject) -> None:
        super().__init__(status["message"])
        self.status = status

    @property
    def code(self) -> int:
        """The HTTP status."""
        code: int = self.status["code"]
        return code


def failure(code: int, message: str, details: JsonObject | None = None, reason: str = "") -> Refusal:
    """Return a refusal; the reason follows from the code where none is given."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    body["reason"] = reason or _REASONS.get(code, "")
    return Refusal({**body, "details": details or {}, "code": code})


def bad_request(message: str) -> Refusal:
    """400 BadRequest."""
    return failure(400, message)


def success(details: JsonObject) -> JsonObject:
    """Return the `Status` of a request that worked and has no object to show."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def qualified(plural: str, group: str, name: str) -> str:
    """Return how refusals name an object: `pools.resource.aibee.cn "gpu"`."""
    subject = f"{plural}.{group}" if group else plural
    return f'{subject} "{name}"' if name else subject


def details_of(name: str, group: str, kind: str) -> JsonObject:
    """Return the details by which a client recognizes the object."""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def not_found(plural: str, group: str, name: str) -> Refusal:
    """404 NotFound for an object of a known resource."""
    return failure(404, f"{qualified(plural, group, name)} not found", details_of(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str) -> Refusal:
    """409 Conflict: a precondition does not hold."""
    message = f"Operation cannot be fulfilled on {qualified(plural, group, name)}: {why}"
    return failure(409, message, details_of(name, group, plural))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """422 Invalid with one cause for each field."""
    sentences = [f"{cause.field}: {cause.message}" for cause in causes]
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details = details_of(name, group, kind)
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return failure(422, f"{qualified(kind, group, name)} is invalid: {text}", details)


def unsupported_media_type(given: str, supported: Sequence[str]) -> Refusal:
    """415 for a body in a format that the sandbox does not read."""
    message = f"the sandbox reads {', '.join(supported)}, not {given}: kubectl apply -f FILE sends JSON"
    return failure(415, message)
