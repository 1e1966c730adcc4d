"""What every Kubernetes object has: names, identities, timestamps, and cheap copies.

Laws: an object is a `dict` as JSON gives it; a stored object is never changed in place; identities come from a seeded
counter, so that the same calls give the same bytes.
"""

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

JsonObject = dict[str, Any]

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
GENERATE_NAME_MAX = 63 - SUFFIX_LENGTH

CACHED_TEXTS = 4096

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")


class Ids:
    """Identities that look like chance and are none: a seed and a counter, hashed."""

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
    return datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """Return unix seconds of an RFC 3339 text."""
    return datetime.fromisoformat(text).timestamp()


def copy_object(raw: bytes) -> JsonObject:
    """Return a fresh deep copy of an object from its encoded form."""
    decoded: JsonObject = orjson.loads(raw)
    return decoded


def encode(value: Any) -> bytes:
    """Return compact JSON."""
    return orjson.dumps(value)


def condition_of(status: JsonObject, kind: str) -> JsonObject | None:
    """Return the condition of that type."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: JsonObject = condition
            return found
    return None


def is_true(status: JsonObject, kind: str) -> bool:
    """Say whether the condition of that type is there and True."""
    condition = condition_of(status, kind)
    return condition is not None and condition.get("status") == "True"


def set_condition(status: JsonObject, condition: JsonObject, now: float) -> None:
    """Put a condition in its place; `lastTransitionTime` moves only when its status does."""
    old = condition_of(status, condition["type"])
    if old is not None and old.get("status") == condition["status"]:
        condition.setdefault("lastTransitionTime", old.get("lastTransitionTime"))
    else:
        condition["lastTransitionTime"] = timestamp(now)
    conditions = [one for one in status.get("conditions") or () if one.get("type") != condition["type"]]
    position = len(conditions) if old is None else status["conditions"].index(old)
    conditions.insert(position, condition)
    status["conditions"] = conditions


def name_errors(name: str) -> str | None:
    """Say what is wrong with an object's name as a DNS subdomain, in the server's words."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    if not _SUBDOMAIN.match(name):
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    return None


def dns_label_errors(name: str) -> str | None:
    """Say what is wrong with a DNS label (a namespace's or a container's name)."""
    if len(name) > 63:
        return "must be no more than 63 bytes"
    if "." in name and _SUBDOMAIN.match(name):
        return "must not contain dots"
    if not _LABEL.match(name):
        return (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
    return None


@lru_cache(maxsize=CACHED_TEXTS)
def label_value_errors(value: str) -> str | None:
    """Say what is wrong with a label's value."""
    if len(value) > 63:
        return "must be no more than 63 bytes"
    if value and not _QUALIFIED.match(value):
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return None


@lru_cache(maxsize=CACHED_TEXTS)
def qualified_name_errors(key: str) -> str | None:
    """Say what is wrong with a label's or annotation's key."""
    prefix, slash, name = key.rpartition("/")
    if slash and name_errors(prefix) is not None:
        return f"prefix part {name_errors(prefix)}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    if not _QUALIFIED.match(name):
        lead = "name part must be non-empty; " if not name else ""
        return (
            f"{lead}name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return None
