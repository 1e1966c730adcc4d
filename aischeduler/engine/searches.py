"""Searches for victims and for lenders, the expensive part of an attempt.

Law: a search that found nothing is not made again while all that it looked at stays as it was.
"""

from aischeduler.engine.claiming import without
from aischeduler.engine.cluster import Cluster
from aischeduler.policies.borrowing import Lender, NoLender, choose_lender
from aischeduler.policies.preemption import Chosen, Demand, Unhelpful, choose_victims
from aischeduler.state.claims import Claim
from aischeduler.state.index import Rows
from aischeduler.state.records import PodRecord


def find_victims(cluster: Cluster, record: PodRecord, rows: Rows, claims: tuple[Claim, ...]) -> Chosen | Unhelpful:
    """Look for victims on the rows of the pod's home as if these claims were not there."""
    spec, priority = record.pod.spec, record.pod.priority
    key, versions = (record.home, spec.key), (cluster.nodes.version, cluster.running.version)
    known = cluster.searches.victims.get(key)
    if not claims and known is not None and known[0] == versions and priority <= known[1]:
        return known[2]
    cluster.searches.made += 1
    with without(cluster, claims):
        found = choose_victims(Demand(spec, priority), cluster.runner, cluster.running, rows, cluster.budgets)
    if not claims and not isinstance(found, Chosen):
        cluster.searches.victims[key] = (versions, priority, found)
    return found


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
