"""Claims: they are kept while their owners can use them, and ended when they cannot.

Invariants:
- A claim ends when its owner is placed or leaves the queue, or when it would not fit after all leaving pods are gone.
- A claim never keeps room from a pod ahead of its owner: an attempt of that pod ignores the claim.
"""

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.recovery import end_quietly, judging_failed
from aischeduler.engine.wakeups import row_changed
from aischeduler.policies.preemption import fits_after_departures
from aischeduler.state.claims import Claim
from aischeduler.state.records import PodRecord, PodState
from aischeduler.state.trial import Trial


def lifted_for(cluster: Cluster, record: PodRecord, pool: str) -> tuple[Claim, ...]:
    """Return the claims of this pool that an attempt of the pod ignores: its own, and those of home pods behind it."""
    return cluster.claims.not_ahead(pool, record.order)


def without(cluster: Cluster, claims: tuple[Claim, ...]) -> Trial:
    """Return a trial on the table without these claims."""
    trial = Trial(cluster.nodes)
    if claims:
        trial.remove(claim.assigned for claim in claims)
    return trial


def end_claim(cluster: Cluster, claim: Claim, now: float) -> None:
    """End a claim: wake its owner if it is nominated, and offer the room to other pods."""
    cluster.claims.end(claim)
    owner = claim.owner
    if owner.state is PodState.NOMINATED and owner.queue:
        cluster.queues[owner.queue].wake_at_once(owner, now)
    room_came(cluster, claim.row, now)


def end_claim_of(cluster: Cluster, record: PodRecord, now: float) -> None:
    """End the claim of a pod, if it has one."""
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None:
        end_claim(cluster, claim, now)


def end_claims_on(cluster: Cluster, row: int, now: float) -> None:
    """End all claims on a row, because the row leaves its pool."""
    for claim in cluster.claims.on_row(row):
        if cluster.claims.of(claim.owner.pod.uid) is claim:  # the end of another claim may have ended it
            end_claim(cluster, claim, now)


def room_came(cluster: Cluster, row: int, now: float) -> None:
    """Wake the pods that can use room that became free on a row: first the owners of claims there, then others."""
    recheck(cluster, row, now)
    row_changed(cluster, row, now)


def recheck(cluster: Cluster, row: int, now: float) -> None:
    """End the claims on a row that their owners can no longer use, and wake the owners that fit now."""
    claims = cluster.claims.on_row(row)
    for i, claim in enumerate(claims):
        if cluster.claims.of(claim.owner.pod.uid) is not claim:
            continue
        try:
            with without(cluster, _still(cluster, claims[i:])):
                fits = bool(cluster.runner.passes(claim.spec, np.array([row], dtype=np.intp))[0])
                keeps = fits or fits_after_departures(claim.spec, cluster.runner, cluster.running, row)
        except Exception as error:  # noqa: BLE001 - a bug costs one claim, not those behind it
            end_quietly(cluster, claim)
            judging_failed(cluster, claim.owner, "checking whether its claim is still usable", error)
            continue
        if not keeps:
            end_claim(cluster, claim, now)
        elif fits and claim.owner.state is PodState.NOMINATED:
            cluster.queues[claim.pool].wake_at_once(claim.owner, now)


def renominate(cluster: Cluster, claims: tuple[Claim, ...], now: float) -> None:
    """Make claims again that ended for a pod ahead on their row, where their owners can still use them."""
    given_up: list[Claim] = []
    for claim in claims:
        try:
            usable = fits_after_departures(claim.spec, cluster.runner, cluster.running, claim.row)
        except Exception as error:  # noqa: BLE001 - a bug costs one claim, not those behind it
            judging_failed(cluster, claim.owner, "checking whether its claim is still usable", error)
            usable = False
        if usable:
            cluster.claims.make(claim)
        else:
            given_up.append(claim)
    for claim in given_up:
        if claim.owner.state is PodState.NOMINATED:
            cluster.queues[claim.pool].wake_at_once(claim.owner, now)
        room_came(cluster, claim.row, now)


def _still(cluster: Cluster, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return tuple(claim for claim in claims if cluster.claims.of(claim.owner.pod.uid) is claim)
