"""What the operator must not forget of a BatchProcess: which pods there were, which finished, how many were restarted.

Invariants:
- Progress only grows while the spec stays: attempts and restarts never fall, a finished BatchProcess stays finished.
- A pod counts once it was seen. A pod that was made and lost before anyone saw it counts as never made, so a crash of
  the operator costs no restart.
- Reading never fails: progress that is malformed counts as none.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from aischeduler.operator.objects import SeenPod
from aischeduler.operator.owner import RECORD_KEY, Json, Role


class Phase(StrEnum):
    """Where a BatchProcess stands."""

    PENDING = "Pending"
    """Fewer pods run than the minimum of the whole or of a role."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = (Phase.SUCCEEDED, Phase.FAILED)

R = TypeVar("R", bound=Struct)

_Count = Annotated[int, Meta(ge=0)]


class RoleProgress(Struct, frozen=True, rename="camel"):
    """`attempts` has for each index how many pods of its name were seen; `completed_indexes` those that succeeded."""

    name: str
    attempts: tuple[_Count, ...] = ()
    completed_indexes: frozenset[_Count] = frozenset()


class Progress(Struct, frozen=True):
    """The progress of one BatchProcess, with the names of the fields in its status."""

    phase: Phase = Phase.PENDING
    restarts: _Count = 0
    roles: tuple[RoleProgress, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be made."""
        return self.phase in FINISHED

    def of_role(self, name: str) -> RoleProgress:
        """Return the progress of a role, whether it was seen or not."""
        return next((role for role in self.roles if role.name == name), RoleProgress(name))

    def attempts(self, place: tuple[str, int]) -> int:
        """Return how many pods of this role and index were seen."""
        known, index = self.of_role(place[0]).attempts, place[1]
        return known[index] if index < len(known) else 0

    def completed(self, place: tuple[str, int]) -> bool:
        """Return whether a pod of this role and index succeeded."""
        return place[1] in self.of_role(place[0]).completed_indexes


def grown(progress: Progress, spec_roles: Iterable[Role], seen: Iterable[SeenPod]) -> Progress:
    """Return the progress with the pods that are seen now, for the roles and replicas of the spec.

    A pod that terminates is no longer counted anew: it may be one that a change of the spec took away.
    """
    if progress.finished:
        return progress
    attempts, completed, restarts = {}, {}, progress.restarts
    for role in spec_roles:
        known = progress.of_role(role.name)
        attempts[role.name] = [*known.attempts, *[0] * role.replicas][: role.replicas]
        completed[role.name] = {index for index in known.completed_indexes if index < role.replicas}
    for pod in seen:
        name, index = pod.place
        if index >= len(attempts.get(name, ())):
            continue
        if pod.phase == Phase.SUCCEEDED:
            completed[name].add(index)
        before = attempts[name][index]
        if pod.attempt > before and not pod.terminating:
            attempts[name][index] = pod.attempt
            restarts += pod.attempt - before if before else 0
    roles = (RoleProgress(name, tuple(attempts[name]), frozenset(completed[name])) for name in attempts)
    return Progress(progress.phase, restarts, tuple(roles))


def read_record(document: Json, record: type[R]) -> R:
    """Return the record in an owner of pods: of its annotation where it has one, else of its status."""
    annotation = (document.get("metadata", {}).get("annotations") or {}).get(RECORD_KEY)
    try:
        return msgspec.convert(msgspec.json.decode(annotation) if annotation else document.get("status") or {}, record)
    except (msgspec.DecodeError, RecursionError):
        return record()


def record_text(record: Struct) -> str:
    """Return a record as the text of an annotation."""
    return msgspec.json.encode(record, order="deterministic").decode()


def record_document(record: Struct) -> Json:
    """Return the fields of the status that hold a record."""
    return msgspec.json.decode(record_text(record), type=Json)
