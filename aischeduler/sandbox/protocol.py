"""What goes into the server and comes out of it: values that know nothing of sockets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, taken apart. `query` has one value for each parameter; `path` is decoded."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    content_type: str = JSON
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One whole answer. `retry_after_seconds` and `warnings` become headers of their name."""

    status: int
    body: bytes
    content_type: str = JSON
    retry_after_seconds: int = 0
    warnings: tuple[str, ...] = ()


def request(method: str, url: str, body: bytes = b"", content_type: str = JSON) -> Request:
    """Return a request for a path with its query, as callers in process write it."""
    path, _, query = url.partition("?")
    return Request(method, path, dict(parse_qsl(query, keep_blank_values=True)), JSON, content_type, body)
