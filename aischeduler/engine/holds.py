"""Hard constraints that hold pods: those that are not supported, and claims that allow no node.

Invariants:
- A pod that kube-scheduler would place may be held; a pod whose placement may break its constraint is never placed.
- Every reason names the field.
- With `Ignore` in the configuration, constraints that are not supported hold no pod.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from aischeduler.engine.agenda import Affected, Checks
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.machine_groups import names_one_of
from aischeduler.engine.view import View
from aischeduler.engine.volume_claims import unusable_claim
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from aischeduler.state.pod_records import PodRecord, PodState

RECHECKED: Final = (PodState.HELD, PodState.PARKED, PodState.NOMINATED)
"""The states of waiting pods that only an event moves."""
DEVICES_UNKNOWN: Final = "It is not known yet which devices the nodes have."
FIELDS_MAX: Final = 8
"""The most fields that a message names; the others are counted."""


class Held(Struct, frozen=True):
    """Why a pod is held."""

    kind: ConstraintKind
    message: str


def held_by(cluster: View, pod: Pod) -> Held | None:
    """Return the constraint that holds the pod; None where it may be tried."""
    if pod.spec.volumes is not None:
        why = unusable_claim(cluster, pod)
        if why:
            return Held(ConstraintKind.VOLUME_CLAIM, f"{why}; the pod is held.")
    if pod.spec.devices is not None and not cluster.devices_listed:
        return Held(ConstraintKind.DEVICES, DEVICES_UNKNOWN)
    if not cluster.profile.hold_unsupported:
        return None
    if pod.spec.unsupported_constraints:
        held = _unsupported(pod.spec.unsupported_constraints)
        if held is not None:
            return held
    return None


def recheck_affected(cluster: Cluster, pool: str, affected: Affected) -> None:
    """Have the waiting pods of the pool rechecked that something may hold now, or no longer."""
    queue = cluster.queues[pool]
    of = affected.namespaces.keys()
    waiting = [record for state in RECHECKED for record in queue.in_state(state)] if of else []
    recheck_later(
        cluster, (record for record in waiting if of & {"", record.pod.namespace} and not record.pod.spec.invalid)
    )
    if affected.held:
        recheck_later(cluster, queue.in_state(PodState.HELD))
    if affected.groups:
        named = [record for state in RECHECKED for record in queue.in_state(state)]
        recheck_later(
            cluster, (waiting_record for waiting_record in named if names_one_of(waiting_record, affected.groups))
        )


def recheck_later(cluster: Cluster, records: Iterable[PodRecord]) -> None:
    """Have those of these pods that wait for an event woken by the next decisions of their pools."""
    for found in records:
        record = found.waits_as
        if record.state in RECHECKED:
            cluster.deferred.agenda(record.queue).rechecking[record.pod.uid] = record


def recheck_some(cluster: Cluster, pool: str, checks: Checks) -> None:
    """Wake the next pods of this queue whose constraint may have changed."""
    rechecking, queue = cluster.deferred.agenda(pool).rechecking, cluster.queues[pool]
    while rechecking and checks.left > 0:
        checks.spend(1)
        _, record = rechecking.popitem(last=False)
        if record.queue == pool and record.state in RECHECKED:
            queue.wake_at_once(record, cluster.now)


def ignored(constraints: Iterable[Constraint]) -> str:
    """Return the message of a pod whose constraints are ignored."""
    return f"{_not_supported(constraints)}; the pod is scheduled as if this was not set."


def _unsupported(constraints: tuple[Constraint, ...]) -> Held | None:
    return Held(constraints[0].kind, f"{_not_supported(constraints)}; the pod is held.") if constraints else None


def _not_supported(constraints: Iterable[Constraint]) -> str:
    fields = [constraint.field for constraint in constraints]
    more = len(fields) - FIELDS_MAX
    named = [*fields[:FIELDS_MAX], f"{more} more fields"] if more > 0 else fields
    return f"{', '.join(named)} {'is' if len(fields) == 1 else 'are'} not supported by {SCHEDULER_NAME}"
