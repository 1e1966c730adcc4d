"""Nominated nodes and the claims behind them, which are kept while their owners can use them, and then ended.

Invariants:
- A claim ends when its owner is placed or leaves the queue, or when it would not fit after all leaving pods are gone.
- A claim keeps no room from a pod ahead of its owner: an attempt of that pod ignores the claim. With tenant queues, it
  keeps the room of victims from pods for which these would not go: training would take by a service what it may not.
- A waiting pod without claimed room shows no nominated node, whichever scheduler wrote it: the end of its attempt, or
  what keeps it from being tried, clears it.
"""

import numpy as np

from aischeduler.engine.agenda import Checks
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic_pods import is_beyond_minimum
from aischeduler.engine.internal_errors import judging_failed
from aischeduler.engine.view import View
from aischeduler.model.actions import Nominate
from aischeduler.model.proposal import Placement
from aischeduler.policies.eviction_order import takes_over
from aischeduler.policies.preemption import fits_after_departures
from aischeduler.policies.unit_placement import all_fit_after_departures
from aischeduler.state.claims import Claim, ClaimedRoom
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import OrderKey, queue_order
from aischeduler.state.what_if import Trial


def lifted_for(cluster: View, record: PodRecord, pool: str) -> tuple[Claim, ...]:
    """Return the claims of this pool that an attempt of the pod ignores: its own, and those of home pods behind it.

    With tenant queues or elastic jobs, a claim stays if one of its victims would not have gone for this pod, unless its
    owner would go for it as soon as that runs.
    """
    claims = cluster.claims.not_ahead(pool, queue_order(record)) if cluster.claims.count_in(pool) else ()
    if not claims or not (cluster.tenants.queues.in_force or cluster.elastic.by_key):
        return claims
    preemptor, waits_for_free_room = cluster.preemptor_of(record), is_beyond_minimum(cluster, record)
    return tuple(
        claim
        for claim in claims
        if claim.owner is record
        or claim.evicted is None
        or (not waits_for_free_room and takes_over(preemptor, cluster.preemptor_of(claim.owner), claim.evicted))
    )


def without(cluster: View, claims: tuple[Claim, ...]) -> Trial:
    """Return a trial on the table without these claims."""
    return Trial(cluster.nodes, [pod for claim in claims for pod in claim.assigned])


def end_claim(cluster: Cluster, claim: Claim, now: float) -> None:
    """End a claim: wake its owner if it is nominated, and have the room offered to other pods."""
    cluster.claims.end(claim)
    wake_owner(cluster, claim, now)
    for row in claim.rows:
        cluster.row_changed(row)


def end_claim_of(cluster: Cluster, record: PodRecord, now: float) -> None:
    """End the claim of a pod, if it has one."""
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None:
        end_claim(cluster, claim, now)


def nominate(record: PodRecord, pool: str, node: str, others: tuple[Placement, ...] = ()) -> list[Nominate]:
    """Return the writes of the nominated nodes of a pod and of those with it that change; an empty `node` clears."""
    nodes, writes = {other.pod: other.node for other in others}, list[Nominate]()
    for member in record.with_surplus:
        its = node if member is record else nodes.get(member.pod.uid, "")
        if its != (member.nominated or member.pod.nominated_node):
            writes.append(Nominate(member.pod, its, pool, record.decision))
        member.nominated = its
    return writes


def clear_nomination(cluster: Cluster, record: PodRecord) -> None:
    """Clear the nominated node of a pod that waits without claimed room, and is not about to be tried."""
    if (record.nominated or record.pod.nominated_node) and cluster.claims.room_of(record) is None:
        cluster.say(record.home, Nominate(record.pod, "", record.home, record.decision))
        record.nominated = ""


def end_claims_on(cluster: Cluster, row: int, now: float) -> None:
    """End all claims on a row, because the row leaves its pool."""
    for claim in cluster.claims.on_row(row):
        end_claim(cluster, claim, now)


def check_claims(cluster: Cluster, row: int, after: OrderKey | None, checks: Checks) -> OrderKey | None:
    """End the claims on a row that their owners can no longer use, and wake the owners that fit now.

    Of a claim on several rows only the room on this row is checked. The claims later than the turn `after` are checked,
    as long as checks are left. Return the turn after which to continue; None at the end.
    """
    claims = tuple(claim for claim in cluster.claims.on_row(row) if after is None or after < claim.turn)
    if not claims:
        return None
    claim, ended, fitting, failure = claims[0], list[Claim](), list[Claim](), None
    try:
        rooms = {claim: claim.on(row) for claim in claims}
        with Trial(cluster.nodes, [room.assigned for here in rooms.values() for room in here]) as trial:
            for claim in claims[: max(1, checks.left)]:
                checks.left -= 1
                fits = _fit_now(cluster, rooms[claim], row, trial)
                if fits:
                    fitting.append(claim)
                elif fits is None:
                    ended.append(claim)
    except Exception as error:  # noqa: BLE001 - a bug costs one claim, not those behind it
        failure = error
    if failure is not None:
        judging_failed(cluster, claim.owner, "checking whether its claim is still usable", failure)
        ended.append(claim)
    for broken in ended:
        end_claim(cluster, broken, cluster.now)
    for usable in fitting:
        wake_owner(cluster, usable, cluster.now)
    return claim.turn if claim is not claims[-1] else None


def _fit_now(cluster: Cluster, rooms: tuple[ClaimedRoom, ...], row: int, trial: Trial) -> bool | None:
    """Place pods on their claimed row: True where all fit now, False once the leaving pods are gone, None never."""
    rows, fitting = np.array([row], dtype=np.intp), True
    for at, room in enumerate(rooms):
        fits = bool(cluster.runner.passes(room.spec, rows)[0])
        if not fits and not fits_after_departures(room.spec, cluster.runner, cluster.running, row):
            for other in rooms[:at]:
                trial.remove([other.assigned])
            return None
        fitting = fitting and fits
        trial.place(room.assigned)
    return fitting


def renominate(cluster: Cluster, claims: tuple[Claim, ...], now: float) -> None:
    """Make claims again that ended for a pod ahead on their row, where their owners can still use them."""
    for claim in claims:
        try:
            usable = all_fit_after_departures(claim.assigned, cluster.runner, cluster.running)
        except Exception as error:  # noqa: BLE001 - a bug costs one claim, not those behind it
            judging_failed(cluster, claim.owner, "checking whether its claim is still usable", error)
            usable = False
        if usable:
            cluster.claims.make(claim)
        else:
            wake_owner(cluster, claim, now)
            for row in claim.rows:
                cluster.row_changed(row)


def wake_owner(cluster: Cluster, claim: Claim, now: float) -> None:
    """Wake the owner of a claim if it waits for the claimed room."""
    owner = claim.owner
    if owner.state is PodState.NOMINATED and owner.queue:
        cluster.queues[owner.queue].wake_at_once(owner, now)
