"""Searches for victims and for lenders, the expensive part of an attempt.

Laws:
- A search that found nothing is not made again while all that it looked at stays as it was.
- All rows are weighed only where a close look at the few that could lose least does not tell.
- A search that weighed all is made again only for the rows that changed since, and answers as if it were made whole.
"""

from typing import Final

import numpy as np

from aischeduler.engine.claiming import without
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.search_cache import KnownLosses
from aischeduler.policies.borrowing import Lender, NoLender, choose_lender
from aischeduler.policies.preemption import Chosen, Demand, Losses, Unhelpful, choice, weigh
from aischeduler.policies.preemption_bounds import Search
from aischeduler.state.claims import Claim
from aischeduler.state.index import Rows
from aischeduler.state.records import PodRecord

WHOLE_SHARE: Final = 3
"""When more than a third of the rows have changed, all are weighed anew."""


def find_victims(cluster: Cluster, record: PodRecord, rows: Rows, claims: tuple[Claim, ...]) -> Chosen | Unhelpful:
    """Look for victims on the rows of the pod's home as if these claims were not there."""
    spec, priority = record.pod.spec, record.pod.priority
    key, versions = (record.home, spec.key), (cluster.nodes.version, cluster.running.version)
    known = cluster.searches.victims.get(key)
    if not claims and known is not None and known[0] == versions and priority <= known[1]:
        return known[2]
    with without(cluster, claims):
        chosen = _found_again(cluster, record, rows) or _found_by_floors(cluster, record, rows)
        if chosen is not None:
            return chosen
        cluster.searches.made += 1
        weighed = weigh(Demand(spec, priority), cluster.runner, cluster.running, rows, cluster.budgets)
        found = choice(weighed, cluster.runner, cluster.running)
        if isinstance(found, Chosen):
            cluster.searches.losses[record.home, spec.key, priority] = _standing(cluster, weighed.losses)
    if not claims and not isinstance(found, Chosen):
        cluster.searches.victims[key] = (versions, priority, found)
    return found


def _found_again(cluster: Cluster, record: PodRecord, rows: Rows) -> Chosen | None:
    """Choose by the losses that were found for such a pod before; None where too much changed, or nothing would help.

    The best row is one of those that changed since, or the best of the others: these are weighed anew.
    """
    pod = record.pod
    key = (record.home, pod.spec.key, pod.priority)
    known = cluster.searches.losses.get(key)
    if known is None or known.losses.rows is not rows or known.rules != _rules(cluster):
        return None
    changed = (cluster.nodes.changed_since(known.nodes), cluster.running.changed_since(known.running))
    if changed[0] is None or changed[1] is None:
        return None
    anew = np.array(sorted({*changed[0], *changed[1]}), dtype=np.intp)
    anew = anew[np.isin(anew, rows)]
    if len(anew) * WHOLE_SHARE > len(rows):
        return None
    losses = known.losses
    losses.forget(anew)
    best = losses.best(cluster.nodes)
    asked = anew if best is None else np.sort(np.append(anew, best))
    demand = Demand(pod.spec, pod.priority)
    weighed = weigh(demand, cluster.runner, cluster.running, asked, cluster.budgets)
    losses.update(weighed.losses)
    cluster.searches.losses[key] = _standing(cluster, losses)
    row = weighed.losses.best(cluster.nodes)
    return weighed.chosen(row, cluster.running) if row is not None else None


def _found_by_floors(cluster: Cluster, record: PodRecord, rows: Rows) -> Chosen | None:
    """Choose by a close look at the few rows that could lose least; None where that does not tell."""
    floors = cluster.searches.floors
    floors.catch_up(cluster.running, cluster.nodes)
    demand = Demand(record.pod.spec, record.pod.priority)
    return Search(demand, cluster.runner, cluster.running, cluster.budgets, floors).cheapest(rows)


def _rules(cluster: Cluster) -> tuple[int, int]:
    return (cluster.nodes.static_version, cluster.budgets.version)


def _standing(cluster: Cluster, losses: Losses) -> KnownLosses:
    return KnownLosses(losses, _rules(cluster), cluster.nodes.version, cluster.running.version)


def find_lender(cluster: Cluster, record: PodRecord, visited: tuple[str, ...]) -> Lender | NoLender:
    """Look for a pool that lends to the pod and that it has not visited; the first visited is its home."""
    spec = record.pod.spec
    key = (spec.key, visited)
    versions = (cluster.nodes.version, cluster.pools.version, cluster.loans.version)
    known = cluster.searches.lenders.get(key)
    if known is not None and known[0] == versions:
        return known[1]
    cluster.searches.made += 1
    found = choose_lender(cluster.market, record.home, cluster.ask(spec, record.home), visited)
    if isinstance(found, NoLender) and not found.blocked:
        cluster.searches.lenders[key] = (versions, found)
    return found
