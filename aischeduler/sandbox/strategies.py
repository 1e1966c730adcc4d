"""What is particular to a kind when it is written: defaults, which fields a writer may change, and what is refused.

Law: a strategy is a value made of plain functions; what all kinds share is in `writing.py` and `deleting.py`.
Source: the `strategy.go` of each resource in the real server.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aischeduler.sandbox.call import Call, Cluster
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.status import Cause
from aischeduler.sandbox.store import Entry


@dataclass(frozen=True, slots=True)
class Write:
    """One write on its way: `obj` may be changed, `old` (None for a new object) may not."""

    call: Call
    obj: JsonObject
    old: JsonObject | None = None


def _nothing(_write: Write) -> None:
    return None


def _no_causes(_write: Write) -> list[Cause]:
    return []


def _stored(_entry: Entry, _call: Call) -> None:
    return None


def _removed(_entry: Entry, _cluster: Cluster) -> None:
    return None


def _no_grace(_obj: JsonObject, _asked: int | None) -> int:
    return 0


def _keeps_nothing(_obj: JsonObject) -> bool:
    return False


def _begins(_obj: JsonObject) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Strategy:
    """The rules of a kind.

    `counts_generations`: the spec has a generation. `resets_status`: only the status subresource writes the status.
    `unconditional_update`: a PUT may leave the resourceVersion out. `create_on_update`: it may make what is not there.
    `shows_deleted`: a deletion answers with the
    object.
    `marks_first`: even an immediate deletion is seen as a marked object first.
    `create`, `update` and `update_status` fill in and put back; `validate` names what is wrong with a complete object;
    `stored` and `removed` follow a write up; `refuse_deletion` raises what admission would; `grace_seconds(object,
    asked)` is how long an object stays after its deletion was asked for, `keeps` whether it stays for another reason,
    and `deletion_begins` marks one that stays.
    """

    counts_generations: bool = False
    resets_status: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    shows_deleted: bool = False
    marks_first: bool = False
    create: Callable[[Write], None] = _nothing
    update: Callable[[Write], None] = _nothing
    update_status: Callable[[Write], None] = _nothing
    validate: Callable[[Write], list[Cause]] = _no_causes
    stored: Callable[[Entry, Call], None] = _stored
    removed: Callable[[Entry, Cluster], None] = _removed
    refuse_deletion: Callable[[Write], None] = _nothing
    keeps: Callable[[JsonObject], bool] = _keeps_nothing
    deletion_begins: Callable[[JsonObject], None] = _begins
    grace_seconds: Callable[[JsonObject, int | None], int] = _no_grace


def prepare_create(strategy: Strategy, write: Write) -> None:
    """Fill in a new object."""
    if strategy.resets_status:
        write.obj.pop("status", None)
    if strategy.counts_generations:
        write.obj["metadata"]["generation"] = 1
    strategy.create(write)


def prepare_update(strategy: Strategy, write: Write) -> None:
    """Put back what a writer of the whole object may not change, and count the generation."""
    obj, old = write.obj, write.old or {}
    if strategy.resets_status:
        restore(obj, old, "status")
    strategy.update(write)
    if strategy.counts_generations:
        changed = _wanted(obj) != _wanted(old)
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1) + (1 if changed else 0)


def prepare_status_update(strategy: Strategy, write: Write) -> None:
    """Put back what a writer of the status may not change: everything but status and most of the metadata."""
    obj, old = write.obj, write.old or {}
    for key in {**old, **obj}:
        if key not in {"metadata", "status"}:
            restore(obj, old, key)
    restore(obj["metadata"], old["metadata"], "generation")
    strategy.update_status(write)


def _wanted(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in {"metadata", "status"}}


def restore(obj: JsonObject, old: JsonObject, key: str) -> None:
    """Give a field back the value it had, or its absence."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)
