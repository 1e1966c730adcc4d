"""The scheduling cycle: one attempt to schedule a pod, or the unit that it leads.

`propose` decides, and `apply` does what it says.
"""

from typing import Final

from aischeduler.engine.apply import Attempt, NoProposalError, apply
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.nominator import clear_nomination, end_claim_of
from aischeduler.engine.pod_classes import take_class, take_profile
from aischeduler.engine.propose import propose
from aischeduler.engine.queueing_hints import offer_ends
from aischeduler.engine.units import form
from aischeduler.model.actions import Action
from aischeduler.state.pod_records import NOWHERE, PodRecord
from aischeduler.state.scheduling_queue import PoolQueue

SEARCH_COST: Final = 64
"""The cost of a search for victims or a lender, in attempts without one."""


def attempt(cluster: Cluster, queue: PoolQueue, record: PodRecord, actions: list[Action], now: float) -> int:
    """Try to schedule a pod that was popped from this queue; add to `actions`.

    Return the cost; an attempt without searches costs 1. Raises NoProposalError.
    """
    record.decision, searches = cluster.next_decision(), cluster.searches.made
    record.broken = False
    if cluster.has_quotas:
        cluster.held.drop(record.pod.uid)
    if record.unit is not None and cluster.units.outdated(record.unit):
        queue.add(record, now)
        form(cluster, record.unit)
        return 1
    if record.offered != NOWHERE:
        cluster.withdraw(record)
    try:
        if not cluster.classes.plain and record.leads is None:
            take_profile(cluster, record)
        gate = cluster.gate_of(record.pod) if record.failed else ""
    except Exception as error:
        raise NoProposalError from error
    if gate:
        _gate(cluster, record, gate, now)
        return 1
    take_class(cluster, record)
    try:
        proposal = propose(cluster, record, queue.pool, now)
    except Exception as error:
        raise NoProposalError from error
    result = apply(Attempt(cluster, queue, record, actions, now), proposal)
    if record.offered != NOWHERE:
        offer_ends(cluster, record)
    if result is not None:
        cluster.counters.attempts[queue.pool, result] += 1
    pods = 1 if record.unit is None else len(record.together)
    return pods + SEARCH_COST * (cluster.searches.made - searches)


def _gate(cluster: Cluster, record: PodRecord, gate: str, now: float) -> None:
    """Gate a pod whose gates were not checked because of an exception."""
    record.message, record.visited = gate, ()
    end_claim_of(cluster, record, now)
    cluster.queues[record.home].gate(record)
    clear_nomination(cluster, record)
    offer_ends(cluster, record)
