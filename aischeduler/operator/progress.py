"""What the operator must not forget of a BatchProcess: which pods there were, which finished, how many were restarted.

Invariants:
- Progress only grows while the spec stays: attempts and restarts never fall, a finished BatchProcess stays finished.
- A pod counts once it was seen. A pod that was made and lost before anyone saw it counts as never made, so a crash of
  the operator costs no restart.
- Reading never fails: progress that is malformed counts as none.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from aischeduler.operator.batch_process import RECORD_KEY, BatchProcess, Json
from aischeduler.operator.objects import SeenPod


class Phase(StrEnum):
    """Where a BatchProcess stands."""

    PENDING = "Pending"
    """Fewer pods run than the minimum of the whole or of a role."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = (Phase.SUCCEEDED, Phase.FAILED)

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


def grown(progress: Progress, process: BatchProcess, seen: Iterable[SeenPod]) -> Progress:
    """Return the progress with the pods that are seen now, for the roles and replicas of the spec.

    A pod that terminates is no longer counted anew: it may be one that a change of the spec took away.
    """
    if progress.finished:
        return progress
    attempts, completed, restarts = {}, {}, progress.restarts
    for role in process.roles:
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


def read_progress(document: Json) -> Progress:
    """Return the progress in a BatchProcess: of its annotation where it has one, else of its status."""
    annotation = (document.get("metadata", {}).get("annotations") or {}).get(RECORD_KEY)
    try:
        return msgspec.convert(
            msgspec.json.decode(annotation) if annotation else document.get("status") or {}, Progress
        )
    except (msgspec.DecodeError, RecursionError):
        return Progress()


def progress_document(progress: Progress) -> Json:
    """Return the fields of the status that hold the progress."""
    return msgspec.json.decode(msgspec.json.encode(progress, order="deterministic"), type=Json)
