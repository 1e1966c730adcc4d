"""The parts that every Kubernetes object has: names, UIDs, timestamps, conditions; and copies of objects.

Invariants:
- An object is a `dict` as JSON gives it; a stored object is never changed in place.
- UIDs and generated names come from a seeded counter, so that the same calls give the same bytes.
"""

import hashlib
import re
from functools import lru_cache
from typing import Any

import orjson

from aischeduler.model.times import time_text

JsonObject = dict[str, Any]

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
GENERATE_NAME_MAX = 63 - SUFFIX_LENGTH
CACHED_TEXTS = 4096

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Ids:
    """UIDs and name suffixes that look random: hashes of a seed and a counter."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def _digest(self) -> bytes:
        self._count += 1
        return hashlib.blake2b(f"{self._seed}:{self._count}".encode(), digest_size=16).digest()

    def uid(self) -> str:
        """Return a new UID in the form of a version 4 UUID."""
        text = self._digest().hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def suffix(self) -> str:
        """Return the five characters that the server appends to `generateName`."""
        digest = self._digest()
        return "".join(SUFFIX_ALPHABET[byte % len(SUFFIX_ALPHABET)] for byte in digest[:SUFFIX_LENGTH])


def timestamp(now: float) -> str:
    """Return unix seconds as RFC 3339 with whole seconds, as `metav1.Time` is written."""
    return _second(int(now))


@lru_cache(maxsize=CACHED_TEXTS)
def _second(second: int) -> str:
    return time_text(second)


def copy_object(raw: bytes) -> JsonObject:
    """Return a fresh deep copy of an object from its encoded form."""
    decoded: JsonObject = orjson.loads(raw)
    return decoded


def encode(value: Any) -> bytes:
    """Return compact JSON."""
    return orjson.dumps(value)


def without_nulls(value: Any) -> Any:
    """Return a value without the fields that are null: a null means an absent field."""
    if isinstance(value, dict):
        return {key: without_nulls(field) for key, field in value.items() if field is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def condition_of(status: JsonObject, kind: str) -> JsonObject | None:
    """Return the condition of that type."""
    return next((condition for condition in status.get("conditions") or () if condition.get("type") == kind), None)


def is_true(status: JsonObject, kind: str) -> bool:
    """Say whether the object has the condition of that type with the status True."""
    condition = condition_of(status, kind)
    return condition is not None and condition.get("status") == "True"


def set_condition(status: JsonObject, condition: JsonObject, now: float) -> None:
    """Add or replace a condition; `lastTransitionTime` changes only with its status."""
    condition = {key: value for key, value in condition.items() if value is not None}
    old = condition_of(status, condition["type"])
    if old is not None and old.get("status") == condition["status"]:
        if "lastTransitionTime" in old:
            condition.setdefault("lastTransitionTime", old["lastTransitionTime"])
    else:
        condition["lastTransitionTime"] = timestamp(now)
    conditions = [other for other in status.get("conditions") or () if other.get("type") != condition["type"]]
    position = len(conditions) if old is None else status["conditions"].index(old)
    conditions.insert(position, condition)
    status["conditions"] = conditions


def name_error(name: str, *, dots: bool = True) -> str:
    """Return why a name is invalid; empty if it is valid. Without `dots` it must be one DNS label."""
    pattern, length = (_SUBDOMAIN, 253) if dots else (_LABEL, 63)
    wrong = f"must be up to {length} of a-z, 0-9, '-'{' and .' if dots else ''} with a letter or digit at both ends"
    return "" if len(name) <= length and pattern.fullmatch(name) else wrong
