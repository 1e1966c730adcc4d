"""What the operator must not forget of a BatchProcess: which pods there were, which finished, how many were restarted.

Invariants:
- Progress only grows while the spec stays: attempts and restarts never fall, a finished BatchProcess stays finished.
- A pod counts once it was seen. A pod that was made and lost before anyone saw it counts as never made, so a crash of
  the operator costs no restart.
- Reading never fails: progress that is malformed counts as none.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct, field

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


class _Noted(Struct, rename="camel"):
    """The fields of the status, or of the annotation, that hold the progress."""

    phase: Phase = Phase.PENDING
    restarts: _Count = 0
    roles: list[RoleProgress] = field(default_factory=list)


class Progress(Struct, frozen=True):
    """The progress of one BatchProcess; `roles` by name."""

    phase: Phase = Phase.PENDING
    restarts: int = 0
    roles: Mapping[str, RoleProgress] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be made."""
        return self.phase in FINISHED

    def attempts(self, place: tuple[str, int]) -> int:
        """Return how many pods of this role and index were seen."""
        role, index = place
        known = self.roles[role].attempts if role in self.roles else ()
        return known[index] if index < len(known) else 0

    def completed(self, place: tuple[str, int]) -> bool:
        """Return whether a pod of this role and index succeeded."""
        role, index = place
        return role in self.roles and index in self.roles[role].completed_indexes


def grown(progress: Progress, process: BatchProcess, seen: Iterable[SeenPod]) -> Progress:
    """Return the progress with the pods that are seen now, for the roles and replicas of the spec.

    A pod that terminates is no longer counted anew: it may be one that a change of the spec took away.
    """
    if progress.finished:
        return progress
    places = {role.name: [(role.name, index) for index in range(role.replicas)] for role in process.roles}
    attempts = {name: [progress.attempts(place) for place in places[name]] for name in places}
    completed = {name: {place[1] for place in places[name] if progress.completed(place)} for name in places}
    restarts = progress.restarts
    for pod in seen:
        role, index = pod.place
        if index >= len(attempts.get(role, ())):
            continue
        if pod.phase == Phase.SUCCEEDED:
            completed[role].add(index)
        known = attempts[role][index]
        if pod.attempt > known and not pod.terminating:
            attempts[role][index] = pod.attempt
            restarts += pod.attempt - known if known else 0
    roles = {name: RoleProgress(name, tuple(attempts[name]), frozenset(completed[name])) for name in places}
    return Progress(progress.phase, restarts, roles)


def read_progress(document: Json) -> Progress:
    """Return the progress in a BatchProcess: of its annotation where it has one, else of its status."""
    annotation = (document.get("metadata", {}).get("annotations") or {}).get(RECORD_KEY)
    try:
        status = msgspec.json.decode(annotation) if annotation else document.get("status") or {}
        noted = msgspec.convert(status, _Noted)
    except (msgspec.DecodeError, RecursionError):
        return Progress()
    return Progress(noted.phase, noted.restarts, {role.name: role for role in noted.roles})


def progress_document(progress: Progress) -> Json:
    """Return the fields of the status that hold the progress."""
    noted = _Noted(progress.phase, progress.restarts, list(progress.roles.values()))
    return msgspec.json.decode(msgspec.json.encode(noted, order="deterministic"), type=Json)
