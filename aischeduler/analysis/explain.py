"""Explain one pod: where it is, what refuses it, and what would start it. Read `explain` first.

Invariants:
- The state after an explanation is the state before it.
- What a waiting pod would do is what `propose` says; refusals and scores are those of the runner.
- A bound pod is judged as the state is now, without the pod itself; the state of its attempt is not kept.
"""

from dataclasses import replace
from typing import Final

from aischeduler.analysis.explanation import Explanation, Loan, Start, Verdict
from aischeduler.analysis.lenders import no_loans
from aischeduler.analysis.nearest_miss import refusals
from aischeduler.analysis.remedies import remedies
from aischeduler.analysis.what_if import Question, at_home, proposed, start_by
from aischeduler.engine.cluster import Cluster
from aischeduler.model.proposal import Hold, MakeRoom, NoLender, Proposal, Wait, WaitFor
from aischeduler.state.records import WAITING, PodRecord, PodState
from aischeduler.state.trial import Trial

AHEAD_NAMED_MAX: Final = 3
RANKED_MAX: Final = 5
"""The most nodes of a bound pod's ranking."""


def explain(cluster: Cluster, record: PodRecord, now: float) -> Explanation:
    """Return the explanation of a pod of this scheduler."""
    if record.counted is not None and record.state is PodState.BOUND:
        return _bound(cluster, record)
    if record.counted is not None:
        return _assumed(cluster, record)
    assert record.state in WAITING, "a pod of this scheduler waits or is on a node"
    found = _waiting(cluster, record)
    if record.state is PodState.GATED:
        return replace(found, verdict=Verdict.GATED, message=cluster.gate_of(record.pod) or record.message)
    proposal = proposed(cluster, at_home(record), now)
    if isinstance(proposal, Hold):
        question = Question(cluster, at_home(record), now)
        return replace(found, verdict=Verdict.HELD, message=proposal.message, remedies=remedies(question))
    return _refused(Question(cluster, at_home(record), now), found, proposal)


def _waiting(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return what is known of a waiting pod before any look."""
    queue = cluster.queues[record.queue]
    ahead = sorted(
        (other for other in queue.records() if other.usable and other.order < record.order),
        key=lambda other: other.order,
    )
    names = tuple(f"{other.pod.namespace}/{other.pod.name}" for other in ahead[:AHEAD_NAMED_MAX])
    pod = record.pod
    return Explanation(
        pod, record.queue, record.home, Verdict.WAITS, pod.spec.request.taken, ahead=len(ahead), ahead_pods=names
    )


def _refused(question: Question, found: Explanation, proposal: Proposal) -> Explanation:
    """Return the explanation of a pod that the scheduler tries: the nodes, preemption, lenders and remedies."""
    cluster, record = question.cluster, question.record
    rows = question.rows_of(record.home)
    found = replace(found, total=len(rows), refused=refusals(cluster, question.spec, rows))
    lenders = [one for one in proposal.search.lenders if isinstance(one, NoLender)]
    if lenders:
        found = replace(found, borrowing=no_loans(question, lenders[-1]))
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None and isinstance(proposal, Wait) and proposal.waits_for is WaitFor.CLAIM:
        uids = (uid for row in claim.rows for uid in cluster.running.on_row(row) if cluster.leaving(uid))
        leaving = _names(cluster, tuple(uids))
        node = cluster.nodes.names[claim.rooms[0].row]
        reason = f"it waits for {_pods(len(leaving))} to leave {node}"
        return replace(found, verdict=Verdict.NOMINATED, node=node, leaving=leaving, preemption=reason)
    start = start_by(cluster, record, proposal, question.now)
    if start is not None:
        would = f"it would evict {_pods(len(start.victims))} on {start.node}" if start.victims else ""
        if isinstance(proposal, MakeRoom) and not start.victims:
            would = f"pods that are leaving {start.node} make room"
        return replace(found, start=start, preemption=would, leaving=_names(cluster, start.victims))
    reason = proposal.preemption if isinstance(proposal, Wait) else ""
    message = proposal.message if isinstance(proposal, Wait) else ""
    return replace(found, message=message, preemption=reason, remedies=remedies(question))


def _bound(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return why a bound pod would run where it does, as the nodes are now without it."""
    assert record.counted is not None, "a bound pod counts on its node"
    spec, row = record.counted, record.row
    pool, node = cluster.pool_of(row), cluster.nodes.names[row]
    loan = Loan(*record.loan) if record.loan is not None else None
    found = Explanation(record.pod, pool, record.home, Verdict.BOUND, spec.request.taken, node=node, loan=loan)
    if not pool:
        return found
    rows = cluster.nodes.rows_of_pool(cluster.pools.id(pool))
    with Trial(cluster.nodes) as trial:
        trial.remove([record.assigned])
        ranked = cluster.runner.ranked(cluster.ask(spec, pool), rows)
        refused = refusals(cluster, spec, rows)
    best = [(cluster.nodes.names[other], score) for other, score in ranked]
    named = best[:RANKED_MAX]
    named += [one for one in best[RANKED_MAX:] if one[0] == node]
    return replace(found, total=len(rows), refused=refused, fitting=len(best), ranking=tuple(named))


def _assumed(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return that a pod has room on a node, where it is not bound yet."""
    found = _bound(cluster, record)
    return replace(found, verdict=Verdict.WAITS, node="", start=Start(found.node, found.pool))


def _names(cluster: Cluster, uids: tuple[str, ...]) -> tuple[str, ...]:
    pods = (cluster.records[uid].pod for uid in uids)
    return tuple(f"{pod.namespace}/{pod.name}" for pod in pods)


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"
