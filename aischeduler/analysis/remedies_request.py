"""The smallest reduction of one request with which a waiting pod starts.

Invariants:
- A smaller request never prevents a start, so the largest amount that some node, loan or eviction allows is the answer.
- A request stays above zero: a pod that asks for nothing of a resource is another pod.
"""

import numpy as np

from aischeduler.analysis.explanation import LowerRequest, Remedy, RemedyKind
from aischeduler.analysis.quantities import readable
from aischeduler.analysis.what_if import Question, requesting, room_of
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import may_not_evict
from aischeduler.model.pod import PodSpec
from aischeduler.policies.borrowing import may_borrow, wanted_by_home_pods
from aischeduler.state.label_index import Rows
from aischeduler.state.ledger import BORROWS, LENDS


def request_remedies(question: Question) -> list[Remedy]:
    """Return per resource the smallest reduction; where that needs evictions, also the smallest that needs none."""
    found: list[Remedy] = []
    if question.record.leads is not None:  # the smallest reduction of several requests together has no one answer
        return found
    for resource, asked in question.spec.request.amounts.items():
        spec = requesting(question.record, resource, 1).pod.spec
        at_once = max(_at_home(question, spec, resource, evicting=False), _abroad(question, spec, resource))
        amounts = {at_once, _at_home(question, spec, resource, evicting=True)}
        for amount in sorted((one for one in amounts if 0 < one < asked), reverse=True):
            start = question.start(requesting(question.record, resource, amount))
            if start is None:
                continue
            text = f"request {readable(resource, amount)} instead of {readable(resource, asked)} {resource}"
            cost = ((asked - amount) * 10**6 // asked, resource)
            found.append(Remedy(RemedyKind.REQUEST, text, LowerRequest(resource, amount), start, cost))
            if not start.victims:
                break
    return found


def _abroad(question: Question, spec: PodSpec, resource: str) -> int:
    """Return the most of the resource that a lender has free for the pod, within all limits."""
    cluster, most = question.cluster, 0
    home = cluster.pools.pools[question.home]
    for name in question.others():
        if not may_borrow(cluster.borrowing, question.home, name, spec):
            continue
        rows = question.rows_of(name)
        free = _most_free(cluster, spec, rows[~wanted_by_home_pods(cluster.borrowing, name, rows)], resource)
        for limit, sums in (
            (home.borrowing_limit, cluster.ledger.of(BORROWS, question.home)),
            (cluster.pools.pools[name].lending_limit, cluster.ledger.of(LENDS, name)),
        ):
            free = min(free, limit[resource] - sums.get(resource, 0)) if resource in limit else free
        most = max(most, free)
    return most


def _at_home(question: Question, spec: PodSpec, resource: str, *, evicting: bool) -> int:
    """Return the most of the resource that a node of the home pool has for the pod, with or without evictions."""
    cluster = question.cluster
    if evicting and may_not_evict(cluster, question.record):
        return 0
    rows = question.rows_of(question.home)
    rows = rows[cluster.runner.could_run(spec, rows)]
    with room_of(question, spec, rows, evicting=evicting):
        return _most_free(cluster, spec, rows, resource)


def _most_free(cluster: Cluster, spec: PodSpec, rows: Rows, resource: str) -> int:
    """Return the most of the resource that is free on one of the rows that pass; 0 where none passes."""
    rows = rows[cluster.runner.passes(spec, rows)]
    column = cluster.nodes.column(resource)
    left = cluster.nodes.allocatable[column, rows] - cluster.nodes.used[column, rows]
    return int(np.max(left, initial=0))
