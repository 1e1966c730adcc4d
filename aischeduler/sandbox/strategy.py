"""What is particular to a kind when it is written: what the server fills in, and what it refuses.

Source: the `strategy.go` of each resource in the real server.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.request import Call, Cluster
from aischeduler.sandbox.status_errors import Cause
from aischeduler.sandbox.store import Entry


@dataclass(frozen=True, slots=True)
class Write:
    """One write: `obj` may be changed, `old` (None for a new object) may not."""

    call: Call
    obj: JsonObject
    old: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of a kind.

    `counts_generations`: the spec has a generation. `unconditional_update`: a PUT may leave the resourceVersion out.
    `keeps_first_status`: a new object may bring its status.
    `create` and `update` fill in; `validate` names what is wrong; `stored` and `removed` follow a write up.
    """

    counts_generations: bool = False
    unconditional_update: bool = True
    keeps_first_status: bool = False
    create: Callable[[Write], None] = lambda _write: None
    update: Callable[[Write], None] = lambda _write: None
    validate: Callable[[Write], list[Cause]] = lambda _write: []
    stored: Callable[[Entry, Cluster], None] = lambda _entry, _cluster: None
    removed: Callable[[Entry, Cluster], None] = lambda _entry, _cluster: None


def restore(obj: JsonObject, old: JsonObject, key: str) -> None:
    """Give a field the value, or the absence, that it had before."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


def immutable(obj: JsonObject, old: JsonObject, keys: tuple[str, ...], path: str = "") -> list[Cause]:
    """Blame the fields that may not change and did."""
    return [Cause(f"{path}{key}", "field is immutable") for key in keys if obj.get(key) != old.get(key)]
