"""What can go wrong between us and the API server, by who has to act on it.

Laws:
- `UnreachableError` says nothing about whether a write took effect.
- `RefusedError` is a definite word of the server; its status tells which.
"""

from collections.abc import Callable
from typing import Final

LINE_LENGTH_MAX: Final = 300
"""Of what others say in a sentence of ours."""
BODY_BYTES_SHOWN: Final = 100
"""Of an answer that no API server gave."""

OnInternalError = Callable[[str, Exception], None]
"""Hears of a bug of ours: whose work it struck, and the error. Whoever calls it goes on."""


def raise_internal_error(_job: str, error: Exception) -> None:
    """Raise it: what runs says who hears of bugs."""
    raise error


class ApiError(Exception):
    """Something went wrong between us and the API server."""


class AccessError(ApiError):
    """The user's: the credentials or the server's address cannot be used; the message names the file."""


class UnreachableError(ApiError):
    """The network's or the server's: no answer, too late or too large an answer, or half of one."""


class WatchLagError(ApiError):
    """Ours or the server's: a watch is too far behind to act by what it has told."""


class InterceptedError(UnreachableError):
    """Something before the API server answered: a proxy, a load balancer, a login page.

    Every refusal of an API server is a `Status` object; this answer is none. It leaves the outcome open. `request` is
    what it answered, by verb and path.
    """

    def __init__(self, status: int, request: str, body: bytes) -> None:
        said = one_line(body[:BODY_BYTES_SHOWN].decode(errors="replace"))
        super().__init__(f"something before the API server answered {status}, without a Status: {said or 'no body'}")
        self.status = status
        self.request = request


class MalformedAnswerError(ApiError):
    """The server's: an answer that is not what the API promises."""


class RefusedError(ApiError):
    """The server refused: an HTTP status of 400 and above, with what its Status says.

    `request` is what was refused, by verb and path, where it is known.
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


class ResourceNotServedError(RefusedError):
    """The server does not serve a resource of this kind, and it is an API server that says so."""


def one_line(text: str) -> str:
    """Return what others say as one line of bounded length, without what a terminal would obey."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())[:LINE_LENGTH_MAX]
