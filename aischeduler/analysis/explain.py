"""Explain one pod: where it is, what refuses it, and what would start it. Read `explain` first.

Invariants:
- The state after an explanation is the state before it.
- What a waiting pod would do is what `propose` says; refusals and scores are those of the runner.
- A pod that waits together with others is explained by their unit.
- A bound pod is judged as the state is now, without the pod itself; the state of its attempt is not kept.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from aischeduler.analysis.explanation import Explanation, Loan, PodUnit, Start, Verdict, full_name
from aischeduler.analysis.kept_pods import kept_pods
from aischeduler.analysis.lenders import no_loans
from aischeduler.analysis.nearest_miss import refusals
from aischeduler.analysis.quota_remedies import queue_hint
from aischeduler.analysis.quota_use import closed_rows, quota_use
from aischeduler.analysis.remedies import remedies
from aischeduler.analysis.what_if import Question, proposed, question_of
from aischeduler.engine.cluster import Cluster
from aischeduler.model.proposal import Hold, MakeRoom, NoLender, Proposal, Wait, WaitFor
from aischeduler.state.pod_records import WAITING, PodRecord, PodState
from aischeduler.state.scheduling_queue import queue_order
from aischeduler.state.what_if import Trial

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
    if record.waits_as.state in (PodState.GATED, PodState.GROUPED):  # grouped without a lead: formed again later
        return replace(found, verdict=Verdict.GATED, message=cluster.gate_of(record.pod) or record.message)
    question = question_of(cluster, record, now)
    if cluster.has_quotas and cluster.claims.of(question.record.pod.uid) is None:
        found = replace(found, quota=quota_use(cluster, question.record))
    proposal = proposed(cluster, question.record, now)
    if isinstance(proposal, Hold):
        hint = queue_hint(cluster, question.record) if cluster.has_quotas else ""
        held = replace(found, verdict=Verdict.HELD, message=proposal.message, hint=hint)
        return replace(held, remedies=remedies(question))
    return _refused(question, found, proposal)


def _waiting(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return what is known of a waiting pod before any look."""
    pod, lead = record.pod, record.waits_as
    queue = cluster.queues[lead.queue]
    ahead = sorted(
        (other for other in queue.records() if other.usable and queue_order(other) < queue_order(lead)),
        key=queue_order,
    )
    names = tuple(full_name(other.pod) for other in ahead[:AHEAD_NAMED_MAX])
    found = Explanation(pod, lead.queue, record.home, Verdict.WAITS, pod.spec.request.taken, unit=_unit(record))
    return replace(found, ahead=len(ahead), ahead_pods=names)


def _unit(record: PodRecord) -> PodUnit | None:
    unit = record.unit
    if unit is None:
        return None
    together = record in unit.pods
    pods = unit.pods if together else unit.members.values()
    names = tuple(sorted(full_name(record.pod) for record in pods))
    return PodUnit(unit.name, names, unit.required if together else 0, lacks=unit.lacks)


def _refused(question: Question, found: Explanation, proposal: Proposal) -> Explanation:
    """Return the explanation of a pod that the scheduler tries: the nodes, preemption, lenders and remedies."""
    cluster, record = question.cluster, question.record
    rows = question.rows_of(record.home)
    with question.beside(record.home) as (fit, short):
        refused = (*refusals(cluster, short.pod.spec, rows), *closed_rows(cluster, record, short, rows))
        found = replace(found, total=len(rows), refused=refused)
    if (
        found.unit is not None
        and record.leads is not None
        and sum(refusal.nodes for refusal in found.refused) == len(rows) > 0
    ):
        found = replace(found, unit=replace(found.unit, first_refused=full_name(short.pod), fit=fit))
    lenders = [lender for lender in proposal.search.lenders if isinstance(lender, NoLender)]
    if lenders:
        found = replace(found, borrowing=no_loans(question, lenders[-1]))
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None and isinstance(proposal, Wait) and proposal.waits_for is WaitFor.CLAIM:
        uids = (uid for row in claim.rows for uid in cluster.running.on_row(row) if cluster.leaving(uid))
        leaving = _names(cluster, tuple(uids))
        node = next((cluster.nodes.names[room.row] for room in claim.rooms if room.record.pod.uid == found.pod.uid), "")
        reason = f"it waits for {_pods(len(leaving))} to leave {_nodes(cluster, claim.rows)}"
        return replace(found, verdict=Verdict.NOMINATED, node=node, leaving=leaving, preemption=reason)
    start = question.start_by(record, proposal)
    if start is not None:
        rows_left = [cluster.records[uid].row for uid in start.victims]
        would = f"it would evict {_pods(len(rows_left))} on {_nodes(cluster, rows_left)}" if rows_left else ""
        if isinstance(proposal, MakeRoom) and not start.victims:
            would = f"pods that are leaving {', '.join(start.all_nodes)} make room"
        return replace(found, start=start, preemption=would, leaving=_names(cluster, start.victims))
    reason = proposal.preemption if isinstance(proposal, Wait) else ""
    message = proposal.message if isinstance(proposal, Wait) else ""
    kept = kept_pods(question)
    return replace(found, message=message, preemption=reason, kept=kept, remedies=remedies(question))


def _bound(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return why a bound pod would run where it does, as the nodes are now without it."""
    assert record.counted is not None, "a bound pod counts on its node"
    spec, row = record.counted, record.row
    pool, node = cluster.pool_of(row), cluster.nodes.names[row]
    loan = Loan(*record.loan) if record.loan is not None else None
    found = Explanation(record.pod, pool, record.home, Verdict.BOUND, spec.request.taken, node=node, loan=loan)
    found = replace(found, unit=_unit(record))
    if not pool:
        return found
    rows = cluster.nodes.rows_of_pool(cluster.pools.id(pool))
    with Trial(cluster.nodes) as trial:
        trial.remove([record.assigned])
        ranked = cluster.runner.ranked(cluster.ask(spec, pool, pool), rows)
        refused = refusals(cluster, spec, rows)
    best = [(cluster.nodes.names[other], score) for other, score in ranked]
    named = best[:RANKED_MAX]
    named += [ranked for ranked in best[RANKED_MAX:] if ranked[0] == node]
    return replace(found, total=len(rows), refused=refused, fitting=len(best), ranking=tuple(named))


def _assumed(cluster: Cluster, record: PodRecord) -> Explanation:
    """Return that a pod has room on a node, where it is not bound yet."""
    found = _bound(cluster, record)
    return replace(found, verdict=Verdict.WAITS, node="", start=Start(found.node, found.pool))


def _names(cluster: Cluster, uids: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(full_name(cluster.records[uid].pod) for uid in uids)


def _nodes(cluster: Cluster, rows: Iterable[int]) -> str:
    return ", ".join(sorted({cluster.nodes.names[row] for row in rows}))


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"
