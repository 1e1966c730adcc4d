"""The exceptions of the Kubernetes client, and how messages quote errors.

Invariants:
- After an `UnreachableError` the outcome of a write is unknown.
- A `RefusedError` is the definite answer of an API server.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

LINE_LENGTH_MAX: Final = 300
"""The longest quote of foreign text in a message."""
INVALID_LENGTH_MAX: Final = 1000
"""The longest text of `invalid`, which says what cannot be decoded of an object."""
BODY_BYTES_SHOWN: Final = 100
"""How much of an answer that no API server sent is quoted."""

_DECODE_ERROR: Final = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
"""A message of msgspec: the problem, and the path of the field, if any."""
_WRONG_TYPE: Final = re.compile(r"Expected `([a-z| ]+)`, got `([a-z]+)`")
_MISSING_FIELD: Final = re.compile(r"Object missing required field `(.*)`")
_TYPE_WORDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a fraction",
    "bool": "true or false",
    "datetime": "a time such as 2026-01-02T03:04:05Z",
    "null": "empty",
}
"""The types of msgspec in the words of messages."""

OnInternalError = Callable[[str, Exception], None]
"""Called with an internal error and the job it hit; the job continues."""


def raise_internal_error(_job: str, error: Exception) -> None:
    """Raise the error: the default until `run` sets the callback."""
    raise error


class ApiError(Exception):
    """An error of the connection to the API server."""


class AccessError(ApiError):
    """The credentials or the server's address are unusable; the user must act, and the message names the file."""


class UnreachableError(ApiError):
    """The network or the server failed: no answer, a late, truncated or too large answer."""


class AnswerTooLargeError(UnreachableError):
    """The answer is larger than the client takes."""


class WatchLagError(ApiError):
    """A watch is too far behind the server to act on its data."""


class InterceptedError(UnreachableError):
    """A proxy, a load balancer or a login page answered instead of the API server.

    An API server refuses with a `Status` object, and this answer has none, so the outcome of the request is unknown.
    `request` is the verb and path.
    """

    def __init__(self, status: int, request: str, body: bytes) -> None:
        quote = one_line(body[:BODY_BYTES_SHOWN].decode(errors="replace"))
        super().__init__(
            f"a server in front of the API server answered {status}, without a Status: {quote or 'no body'}"
        )
        self.status = status
        self.request = request


class MalformedAnswerError(ApiError):
    """The server sent an answer that breaks the API's contract."""


PASSING_STATUSES: Final = (401, 403, 408, 409, 410, 429)
"""The answers of 400 to 499 that other rights, other data or another time can change."""


def is_answer(status: int) -> bool:
    """Say whether this status is the answer to a read of one object: there is none. All others are outages."""
    return 400 <= status < 500 and status not in PASSING_STATUSES


class RefusedError(ApiError):
    """The API server refused the request: a status of 400 and above, with the content of its Status.

    `request` is the verb and path, if known. What rejects requests before they are handled sends no Status.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None, request: str = ""
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.request = request
        self.has_status = True

    @property
    def no_such_object(self) -> bool:
        """Whether a read of one object was refused because there is none of this name, or none can be.

        A 404 without the reason NotFound is about the resource, which may not be served yet.
        """
        return self.reason == "NotFound" if self.status == HTTPStatus.NOT_FOUND else is_answer(self.status)


class ResourceNotServedError(RefusedError):
    """The API server does not serve this resource."""


def decode_problem(error: Exception, path: str = "") -> str:
    """Return a decoding error as a sentence for users; `path` is the path of the decoded part in its object."""
    field, sentence = decode_finding(error)
    where = f"{path}{'' if field.startswith('[') or not path or not field else '.'}{field}"
    return f"{where}: {sentence}" if where else sentence


def decode_finding(error: Exception) -> tuple[str, str]:
    """Return the path of the field that cannot be decoded, empty for the whole object, and what is wrong with it."""
    if isinstance(error, RecursionError):
        return "", "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "", "is not UTF-8"
    text = one_line(str(error))
    found = _DECODE_ERROR.fullmatch(text)
    problem, field = (found[1], found[2] or "") if found is not None else (text, "")
    if missing := _MISSING_FIELD.fullmatch(problem):
        return f"{field}.{missing[1]}".removeprefix("."), "is missing"
    if "datetime" in problem:
        return field, f"must be {_TYPE_WORDS['datetime']}"
    if wrong := _WRONG_TYPE.fullmatch(problem):
        wanted = [word for word in wrong[1].split(" | ") if word != "null"]
        words = [_TYPE_WORDS.get(word, word) for word in wanted]
        return field, f"must be {' or '.join(words)}, not {_TYPE_WORDS.get(wrong[2], wrong[2])}"
    return field, problem


def one_line(text: str) -> str:
    """Return foreign text as one line of bounded length without control characters."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())[:LINE_LENGTH_MAX]
