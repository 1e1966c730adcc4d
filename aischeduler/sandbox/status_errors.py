"""The refusals of an API server: a `Status` object with its HTTP code, its reason and its invalid fields.

A `Refusal` is raised where a request is invalid; `ApiServer.handle` returns its `Status` as the answer.
"""

from collections.abc import Sequence

from msgspec import Struct

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


class Cause(Struct, frozen=True):
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
    """Return a refusal with 400."""
    return failure(400, message)


def success(details: JsonObject) -> JsonObject:
    """Return the `Status` of a successful request that returns no object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def object_failure(code: int, subject: tuple[str, str, str], sentence: str, reason: str = "") -> Refusal:
    """Return a refusal about an object; `{}` in the sentence is replaced by its kind or resource, group and name."""
    kind, group, name = subject
    shown = " ".join(filter(None, (f"{kind}.{group}" if group else kind, f'"{name}"' if name else "")))
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
    return failure(code, sentence.replace("{}", shown, 1), details, reason)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    """Return a refusal with 422 and one cause for each field."""
    sentences = [f"{cause.field}: {cause.message}" for cause in causes]
    text = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    refusal = object_failure(422, (kind, group, name), f"{{}} is invalid: {text}")
    refusal.status["details"]["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return refusal


def unsupported_media_type(given: str, supported: Sequence[str]) -> Refusal:
    """Return a refusal with 415 for a body in a format that the sandbox does not read."""
    return failure(415, f"the sandbox reads {', '.join(supported)}, not {given}: kubectl apply -f FILE sends JSON")
