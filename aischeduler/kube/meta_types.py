"""The types of API machinery that every resource shares: object and list metadata, Status, watch events."""

from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

ABSENT = Raw(b"")
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading raises where bytes are no JSON, of another shape, no UTF-8, or nested too deeply."""
D = TypeVar("D")


class Metadata(Struct, rename="camel", gc=False):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None


class OwnerReference(Struct, gc=False):
    """One owner of an object."""

    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class LabelledMetadata(Metadata, rename="camel", gc=False):
    """Metadata of a node, a namespace or a volume: labels count."""

    labels: dict[str, str] | None = None


class PartialObjectMetadata(Struct, gc=False):
    """An object of which only the identity can be read."""

    metadata: Metadata = field(default_factory=Metadata)
    kind: str = ""


def read_metadata(raw: Raw) -> Metadata:
    """Return what an object that cannot be read says of itself, as far as that can be read."""
    try:
        return msgspec.json.decode(raw, type=PartialObjectMetadata).metadata
    except UNREADABLE:
        return Metadata()


class StatusCause(Struct, gc=False):
    """One cause of what went wrong."""

    reason: str = ""


class StatusDetails(Struct, gc=False):
    """What a Status says beyond its message."""

    causes: list[StatusCause] | None = None


class StatusDocument(Struct, gc=False):
    """A Status: how the API server says what went wrong."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> list[str]:
        """The reasons of its causes."""
        causes = self.details.causes if self.details is not None else None
        return [cause.reason for cause in causes or ()]


class ListMetadata(Struct, rename="camel", gc=False):
    """Where a list stands, and how to get its next page."""

    resource_version: str = ""
    continue_: str | None = field(name="continue", default=None)


def read_status(body: bytes) -> StatusDocument:
    """Return the Status in a body, or an empty one where there is none."""
    try:
        return msgspec.json.decode(body, type=StatusDocument)
    except UNREADABLE:
        return StatusDocument()


def retry_after_seconds(header: str | None) -> float | None:
    """Return what a Retry-After header asks for; a date is not understood, and no API server sends one."""
    return float(header) if header is not None and header.isdecimal() else None


class Page(Struct, Generic[D], gc=False):
    """One page of a list: its objects read in one go, which is the usual case, or unread."""

    metadata: ListMetadata
    items: list[D] | None = None


class WatchEvent(Struct, Generic[D], gc=False):
    """One line of a watch, read in one go: the usual case."""

    type: str
    object: D


class RawWatchEvent(Struct, gc=False):
    """One line of a watch, its object unread."""

    type: str
    object: Raw
