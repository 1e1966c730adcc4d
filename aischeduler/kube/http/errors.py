"""The exceptions of the Kubernetes client.

Invariants:
- After an `UnreachableError` the outcome of a write is unknown.
- A `RefusedError` is the definite answer of an API server.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from aischeduler.model.user_text import one_line

INVALID_LENGTH_MAX: Final = 1000
"""The longest text of `invalid`, which says what cannot be decoded of an object."""
BODY_BYTES_SHOWN: Final = 100
"""How much of an answer that no API server sent is quoted."""

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
