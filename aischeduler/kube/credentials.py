"""Who we are to an API server: the value of a header, a certificate of ours, or both.

Laws:
- What would break a header is refused, not sent.
- A message names where a secret stands and never what it says.

Source: RFC 6750, RFC 7617, Kubernetes authentication.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from aischeduler.kube.errors import AccessError

_NO_EXPIRY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Credential:
    """`header` is the value of Authorization, `identity` a certificate and its key in PEM, either may be absent.

    `left_seconds` is how long it is good without another look, as far as that is known; `where` names where it comes
    from, `trouble` is what keeps a newer one from being read.
    """

    header: bytes | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)
    valid_seconds: float = _NO_EXPIRY
    where: str = field(default="", compare=False)
    failure: str = ""


class CredentialSource(Protocol):
    """Where credentials come from."""

    async def read(self, *, refused: bool) -> Credential:
        """Return what is good now; `refused` says that the server did not know the last one.

        Raises AccessError or OSError.
        """


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The token of a service account."""

    path: Path

    async def read(self, *, refused: bool) -> Credential:  # noqa: ARG002 - what is in the file is all there is
        """Read the file."""
        return Credential(bearer_from_file(self.path), where=str(self.path))


def bearer(token: str, where: str) -> bytes:
    """Return the header for a token; raises AccessError, which names `where` it stands."""
    if not token.isascii():
        raise AccessError(f"{where} has characters that no token has")
    return b"Bearer " + header_value(token, where)


def bearer_from_file(path: Path) -> bytes:
    """Return the header for the token in a file; raises OSError, and AccessError where no token is in it."""
    token = path.read_bytes().strip().decode(errors="replace")
    if not token:
        raise AccessError(f"{path}: there is no token in it")
    return bearer(token, f"{path}: what is in it")


def basic(username: str, password: str) -> bytes:
    """Return the header for a name and a password."""
    return b"Basic " + b64encode(f"{username}:{password}".encode())


def header_value(text: str, where: str) -> bytes:
    """Return the text as it stands in a header; raises AccessError for what would end the line, or cannot be seen."""
    if not text.isprintable():
        raise AccessError(f"{where} has characters that no header has")
    return text.encode()
