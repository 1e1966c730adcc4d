"""Searches for victims and lenders, the expensive part of an attempt.

Invariants:
- A search without a result is not repeated while nothing that it read has changed.
- All rows are searched only where the few rows of the lowest bounds do not decide.
- A full search is repeated only for the rows that changed since, with the result of a search over all rows.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from aischeduler.engine.nominator import without
from aischeduler.engine.search_cache import KnownCosts
from aischeduler.engine.view import View
from aischeduler.model.proposal import Lender, NoLender
from aischeduler.policies.borrowing import choose_lender
from aischeduler.policies.preemption import (
    Candidate,
    EvictionCosts,
    NoCandidate,
    VictimRequest,
    choose_victims,
    fewest,
    find_candidates,
    select_candidate,
)
from aischeduler.policies.preemption_bounds import BoundedSearch
from aischeduler.policies.unit_preemption import UnitCandidate, choose_unit_victims
from aischeduler.state.claims import Claim
from aischeduler.state.kept import Kept
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.pod_records import PodRecord

Shut = Sequence[Mask | None]
"""The rows that quotas close to each pod of a unit; none where they close none."""

WHOLE_SHARE: Final = 3
"""Where more than a third of the rows changed, all rows are searched again."""


def find_victims(
    cluster: View, record: PodRecord, rows: Rows, claims: tuple[Claim, ...], _: Shut = ()
) -> Candidate | NoCandidate:
    """Search for the fewest victims on rows of the pod's home pool as if these claims did not exist."""
    ask = VictimRequest(record.pod.spec, cluster.preemptor_of(record))
    found = _find_victims(cluster, record, ask, rows, claims)
    if isinstance(found, NoCandidate) or len(found.victims) < 2:
        return found
    with without(cluster, claims):
        return fewest(ask, cluster.runner, cluster.running, cluster.budgets, found, rows=rows)


def _find_victims(
    cluster: View, record: PodRecord, ask: VictimRequest, rows: Rows, claims: tuple[Claim, ...]
) -> Candidate | NoCandidate:
    """Search for victims, of which some may stay where gangs go whole. Only results for all rows are kept."""
    spec, preemptor, priority = ask.spec, ask.preemptor, ask.preemptor.priority
    if rows is not cluster.nodes.rows_of_pool(cluster.pools.id(record.home)):
        with without(cluster, claims):
            return choose_victims(ask, cluster.runner, cluster.running, rows, cluster.budgets)
    of_budgets = cluster.budgets.version if cluster.budgets.obeyed else 0  # else a budget makes no victim impossible
    key = (record.home, spec.key, preemptor.tenant, preemptor.elastic)
    versions = (*cluster.nodes.version_for(spec), cluster.running.version, of_budgets)
    known, keeps = cluster.searches.victims.get(key), not claims and not cluster.nodes.tentative
    if keeps and known is not None and known[1].made_from == versions and priority <= known[0]:
        return known[1].value
    with without(cluster, claims):
        chosen = _found_again(cluster, record.home, ask, rows) or _found_by_bounds(cluster, ask, rows)
        if chosen is not None:
            return chosen
        cluster.searches.made += 1
        candidates = find_candidates(ask, cluster.runner, cluster.running, rows, cluster.budgets)
        found = select_candidate(candidates, cluster.runner, cluster.running)
        if isinstance(found, Candidate):
            cluster.searches.costs[record.home, spec.key, preemptor] = _standing(cluster, candidates.costs)
    if keeps and not isinstance(found, Candidate):
        cluster.searches.victims[key] = priority, Kept(versions, found)
    return found


def find_unit_victims(
    cluster: View, record: PodRecord, rows: Rows, claims: tuple[Claim, ...], shut: Shut = ()
) -> UnitCandidate | NoCandidate:
    """Search for rows and victims for the unit that the pod leads, as if these claims did not exist.

    The rows of `shut` are closed to its pods.
    """
    unit = record.leads
    assert unit is not None, "the pod leads a unit"
    versions = (*_seen(cluster, record), cluster.running.version, cluster.budgets.version, *_rules(cluster))
    preemptor = cluster.preemptor_of(record)
    state = (versions, unit.pods, unit.required, unit.priority, unit.gang, preemptor.tenant, preemptor.elastic)
    keeps = not claims and not cluster.nodes.tentative and not shut
    known = cluster.searches.units.get(unit.name)
    request = cluster.unit_request(unit, record.home, (), shut)
    if keeps and known is not None:
        searched, at, kept = known
        if searched is rows and kept.made_from == state and at in (None, request.preemptor.loss):
            return kept.value
    cluster.searches.made += 1
    with without(cluster, claims):
        found = choose_unit_victims(request, cluster.runner, cluster.running, rows, cluster.budgets)
    if keeps:
        at = None if isinstance(found, NoCandidate) else request.preemptor.loss
        cluster.searches.units[unit.name] = rows, at, Kept(state, found)
    return found


def _found_again(cluster: View, home: str, ask: VictimRequest, rows: Rows) -> Candidate | None:
    """Choose by the kept costs of such a pod; None where too many rows changed, or no eviction helps.

    The best row is a row that changed since, or the best of the others: only these rows are searched again.
    """
    key = (home, ask.spec.key, ask.preemptor)
    known = None if cluster.runner.crosses_rows(ask.spec) else cluster.searches.costs.get(key)
    if known is None or known.costs.rows is not rows or known.rules != _rules(cluster):
        return None
    changed = (cluster.nodes.changed_since(known.nodes), cluster.running.changed_since(known.running))
    if changed[0] is None or changed[1] is None:
        return None
    anew = np.array(sorted({*changed[0], *changed[1], *known.tentative, *cluster.nodes.tentative}), dtype=np.intp)
    anew = anew[np.isin(anew, rows)]
    if len(anew) * WHOLE_SHARE > len(rows):
        return None
    costs = known.costs
    costs.forget(anew)
    best = costs.best(cluster.nodes)
    asked = anew if best is None else np.sort(np.append(anew, best))
    candidates = find_candidates(ask, cluster.runner, cluster.running, asked, cluster.budgets)
    costs.update(candidates.costs)
    cluster.searches.costs[key] = _standing(cluster, costs)
    row = candidates.costs.best(cluster.nodes)
    return candidates.candidate(row, cluster.running) if row is not None else None


def _found_by_bounds(cluster: View, ask: VictimRequest, rows: Rows) -> Candidate | None:
    """Search the few rows of the lowest bounds; None where they do not decide: with pods of tenants they never do."""
    tenant = ask.preemptor.tenant
    if tenant is not None and (tenant.queue or cluster.running.of_tenants):
        return None
    bounds = cluster.searches.bounds
    bounds.catch_up(cluster.running, cluster.nodes)
    return BoundedSearch(ask, cluster.runner, cluster.running, cluster.budgets, bounds).cheapest(rows)


def _seen(cluster: View, record: PodRecord) -> tuple[int, ...]:
    """Return the versions of all that filters read for a pod, or for the unit that it leads."""
    if record.unit is None:
        return cluster.nodes.version_for(record.pod.spec)
    specs = {member.pod.spec.key: member.pod.spec for member in record.together}
    return tuple(number for spec in specs.values() for number in cluster.nodes.version_for(spec))


def _rules(cluster: View) -> tuple[int, int]:
    return (cluster.nodes.unlabelled_version, cluster.budgets.version)


def _standing(cluster: View, costs: EvictionCosts) -> KnownCosts:
    nodes, running = cluster.nodes, cluster.running
    return KnownCosts(costs, _rules(cluster), nodes.version, running.version, tuple(nodes.tentative))


def find_lender(cluster: View, record: PodRecord, visited: tuple[str, ...], shut: Shut = ()) -> Lender | NoLender:
    """Search for a pool that lends to the pod, among those that it has not `visited`; the first visited is its home.

    The rows of `shut` are closed to it, or to the pods of its unit.
    """
    key = (record.pod.spec.key, visited)
    versions = (*_seen(cluster, record), cluster.pools.version, cluster.ledger.version)
    keeps = not cluster.nodes.tentative and record.leads is None and not shut
    known = cluster.searches.lenders.get(key)
    if keeps and known is not None and known.made_from == versions:
        return known.value
    cluster.searches.made += 1
    request = cluster.request_of(record, record.home, shut)
    found = choose_lender(cluster.borrowing, record.home, request, visited)
    if keeps and isinstance(found, NoLender) and not found.blocked:
        cluster.searches.lenders[key] = Kept(versions, found)
    return found
