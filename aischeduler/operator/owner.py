"""The object that owns what the operator makes, and what both of its kinds say alike: names, roles and amounts.

Invariants:
- A name depends on its owner alone, and it is a DNS label: a hostname, a label value and the name of an object. One
  that had to be changed ends in a hash of the whole, so that two names do not meet.
- A SpecError names one field and says what it must be.
"""

import re
from collections.abc import Container, Mapping
from hashlib import sha256
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from aischeduler.model.names import GROUP, MEMORY, POOL_KEY, SCHEDULER_NAME
from aischeduler.model.quantity import QuantityError, parse_nano
from aischeduler.model.user_text import quoted

PLURALS: Final = {"BatchProcess": "batchprocesses", "TrainingJob": "trainingjobs"}
"""The kinds of owners, and the plural of each."""
KEY_PREFIX: Final = GROUP + "/"
RECORD_KEY: Final = KEY_PREFIX + "record"
"""The annotation of an object whose definition does not keep our status: what the operator must not forget."""

BACKOFF_LIMIT: Final = 6
"""`backoffLimit` where the spec says none, as of a Job."""
BACKOFF_LIMIT_MAX: Final = 10_000
LABEL_LENGTH_MAX: Final = 63
OBJECT: Final = Meta(description="an object")

Json = dict[str, Any]

_HASH_LENGTH: Final = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


class SpecError(Exception):
    """A spec that cannot be carried out; the text is a sentence that begins with the path of a field."""


class Settings(Struct, frozen=True):
    """What the operator puts into pods; an empty `default_image` stands for none."""

    scheduler_name: str = SCHEDULER_NAME
    default_image: str = ""


class Owner(Struct, frozen=True):
    """An object with pods; `gang` is the name of its gang and Service, and `annotations` are those of its pods."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    gang: str
    annotations: Mapping[str, str]


class Role(Struct, frozen=True):
    """Pods of an owner that are alike; `first_rank` is the rank of the first one.

    `min_available` is 0 where the role has no minimum; `container` lacks only the name.
    """

    name: str
    replicas: int
    min_available: int
    first_rank: int
    container: Json


class Resources(Struct):
    """The resources of a container, each amount still to be read."""

    limits: Annotated[Json, OBJECT] | None = None
    requests: Annotated[Json, OBJECT] | None = None


def dns_label(text: str, length_max: int = LABEL_LENGTH_MAX) -> str:
    """Return the text if it is a DNS label (RFC 1035) of at most this length, else a label made from it with a hash."""
    if len(text) <= length_max and _LABEL.fullmatch(text):
        return text
    clean = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    lettered = clean if clean[:1].isalpha() else f"b-{clean}"
    kept = lettered[: length_max - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{sha256(text.encode()).hexdigest()[:_HASH_LENGTH]}"


def inherited_annotations(metadata: Json, left_out: Container[str] = ()) -> dict[str, str]:
    """Return the annotations for the pods: all of ours that their owner has, and the pool of its label."""
    pool = (metadata.get("labels") or {}).get(POOL_KEY)
    found = {POOL_KEY: pool} if pool else {}
    annotations = (metadata.get("annotations") or {}).items()
    return found | {
        key: value
        for key, value in annotations
        if key.startswith(KEY_PREFIX) and key != RECORD_KEY and key not in left_out
    }


def amounts(resources: Resources, path: str, memory_unit: str = "") -> Json:
    """Return resources with amounts as texts; a memory without a unit gets this one. Raises SpecError."""
    both = {"limits": resources.limits, "requests": resources.requests}
    return {
        name: {kind: _amount(kind, amount, f"{path}.{name}.{kind}", memory_unit) for kind, amount in found.items()}
        for name, found in both.items()
        if found
    }


def _amount(kind: str, amount: object, path: str, memory_unit: str) -> str:
    text = "" if isinstance(amount, bool) else str(amount)
    if kind == MEMORY and _PLAIN_NUMBER.fullmatch(text):
        text += memory_unit
    try:
        below_zero = parse_nano(text) < 0
    except QuantityError as error:
        raise SpecError(f"{path}: {error}") from error
    if below_zero:
        raise SpecError(f"{path} is {quoted(text)}, below zero")
    return text
