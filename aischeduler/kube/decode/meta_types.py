"""The types of API machinery that all resources share: object and list metadata, Status, pages, watch events."""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

ABSENT = Raw(b"")
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are not JSON, not UTF-8, of another shape, or nested too deeply."""
D = TypeVar("D")


class Metadata(Struct, rename="camel", gc=False):
    """The metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class OwnerReference(Struct, rename="camel", gc=False):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


def owner_name(references: Iterable[OwnerReference] | None) -> str:
    """Return the controller of an object as Kind/name, empty where it has none."""
    return next((f"{owner.kind}/{owner.name}" for owner in references or () if owner.controller), "")


class LabelledMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a node, a namespace or a volume."""

    labels: dict[str, str] | None = None


class PartialObjectMetadata(Struct, gc=False):
    """An object of which only kind and metadata are read."""

    metadata: Metadata = field(default_factory=Metadata)
    kind: str = ""


def read_metadata(raw: Raw) -> Metadata:
    """Return the metadata of an object that cannot be decoded, as far as it can be read."""
    try:
        return msgspec.json.decode(raw, type=PartialObjectMetadata).metadata
    except UNREADABLE:
        return Metadata()


class StatusCause(Struct, gc=False):
    """A cause in the details of a Status."""

    reason: str = ""


class StatusDetails(Struct, gc=False):
    """The details of a Status."""

    causes: list[StatusCause] | None = None


class StatusDocument(Struct, gc=False):
    """A Status: the API server's description of an error."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> list[str]:
        """The reasons of the causes."""
        causes = self.details.causes if self.details is not None else None
        return [cause.reason for cause in causes or ()]


class ListMetadata(Struct, rename="camel", gc=False):
    """The metadata of a list: its resource version, and the token of its next page."""

    resource_version: str = ""
    continue_: str | None = field(name="continue", default=None)


def read_status(body: bytes) -> StatusDocument:
    """Return the Status in a body, or an empty Status if there is none."""
    try:
        return msgspec.json.decode(body, type=StatusDocument)
    except UNREADABLE:
        return StatusDocument()


def retry_after_seconds(header: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None for a date, which no API server sends."""
    return float(header) if header is not None and header.isdecimal() else None


class Page(Struct, Generic[D], gc=False):
    """A page of a list; its objects are either decoded or `Raw`."""

    metadata: ListMetadata
    items: list[D] | None = None


class WatchEvent(Struct, Generic[D], gc=False):
    """A watch event with its object decoded."""

    type: str
    object: D


class RawWatchEvent(Struct, gc=False):
    """A watch event with its object as `Raw`."""

    type: str
    object: Raw
