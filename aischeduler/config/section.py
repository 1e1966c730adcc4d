"""The base of every mapping in the configuration file, and the types of values that several of them have."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_NAME_FORM: Final = "a name of lower-case letters, digits, '-' and '.', at most 253 characters"


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping in the file, or the whole file."""


def whole_number(least: int, most: int, extra: dict[str, Any] | None = None, of: str = "") -> Meta:
    """Return the bounds of a whole number, with their description."""
    return Meta(ge=least, le=most, description=f"a whole number {of}from {least} to {most}", extra=extra)


SchedulerName = Annotated[str, Meta(pattern=rf"\A{SUBDOMAIN}\Z", max_length=253, description=_NAME_FORM)]
OptionalName = Annotated[str, Meta(pattern=rf"\A({SUBDOMAIN})?\Z", max_length=253, description=_NAME_FORM)]
LabelKey = Annotated[
    str,
    Meta(
        pattern=rf"\A({SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?\Z",
        max_length=317,
        description="a label key such as example.com/team",
    ),
]
Boolean = Annotated[bool, Meta(description="true or false")]
