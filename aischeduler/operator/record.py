"""What the operator must not forget of a BatchProcess: which pods there were, which finished, how many were restarted.

Invariants:
- A record only grows while the spec stays: attempts and restarts never fall, a finished BatchProcess stays finished.
- A pod counts once it was seen. A pod that was made and lost before anyone saw it counts as never made, so a crash of
  the operator costs no restart.
- Reading never fails: what is malformed in a record counts as not recorded.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from aischeduler.operator.batch_process import BatchProcess, Json
from aischeduler.operator.naming import RECORD_KEY
from aischeduler.operator.objects import SeenObject


class Phase(StrEnum):
    """Where a BatchProcess stands."""

    PENDING = "Pending"
    """Fewer pods run than the minimum of the whole or of a role."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = (Phase.SUCCEEDED, Phase.FAILED)


class RoleRecord(Struct, frozen=True):
    """`attempts` has for each index how many pods of its name were seen; `completed` the indexes that succeeded."""

    attempts: tuple[int, ...] = ()
    completed: frozenset[int] = frozenset()


class Record(Struct, frozen=True):
    """The record of one BatchProcess; `roles` by name."""

    phase: Phase = Phase.PENDING
    restarts: int = 0
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be made."""
        return self.phase in FINISHED

    def attempts(self, place: tuple[str, int]) -> int:
        """Return how many pods of this role and index were seen."""
        role, index = place
        known = self.roles.get(role, RoleRecord()).attempts
        return known[index] if index < len(known) else 0

    def completed(self, place: tuple[str, int]) -> bool:
        """Return whether a pod of this role and index succeeded."""
        role, index = place
        return index in self.roles.get(role, RoleRecord()).completed


def grown(record: Record, process: BatchProcess, seen: Iterable[SeenObject]) -> Record:
    """Return the record with the pods that are seen now, for the roles and replicas of the spec.

    A pod that terminates is no longer counted anew: it may be one that a change of the spec took away.
    """
    if record.finished:
        return record
    attempts = {
        role.name: [record.attempts((role.name, index)) for index in range(role.replicas)] for role in process.roles
    }
    completed = {
        role.name: {index for index in range(role.replicas) if record.completed((role.name, index))}
        for role in process.roles
    }
    restarts = record.restarts
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
    roles = {name: RoleRecord(tuple(attempts[name]), frozenset(completed[name])) for name in attempts}
    return Record(record.phase, restarts, roles)


def read_record(document: Json) -> Record:
    """Return the record in a BatchProcess: of its annotation where it has one, else of its status."""
    noted = (document.get("metadata", {}).get("annotations") or {}).get(RECORD_KEY)
    status: Any = document.get("status")
    if noted:
        try:
            status = json.loads(noted)
        except ValueError:
            status = None
    if not isinstance(status, dict):
        return Record()
    phase = status.get("phase")
    roles = status.get("roles")
    return Record(
        phase=Phase(phase) if phase in tuple(Phase) else Phase.PENDING,
        restarts=_whole(status.get("restarts")),
        roles={
            role["name"]: RoleRecord(
                tuple(_whole(count) for count in _list(role.get("attempts"))),
                frozenset(_whole(index) for index in _list(role.get("completedIndexes"))),
            )
            for role in _list(roles)
            if isinstance(role, dict) and isinstance(role.get("name"), str)
        },
    )


def record_document(record: Record) -> Json:
    """Return the fields of the status that hold the record."""
    return {
        "phase": str(record.phase),
        "restarts": record.restarts,
        "roles": [
            {"name": name, "attempts": list(role.attempts), "completedIndexes": sorted(role.completed)}
            for name, role in record.roles.items()
        ],
    }


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
