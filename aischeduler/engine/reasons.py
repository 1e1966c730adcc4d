"""Why a pod waits, in its clauses; and waiting pods that are told anew, because what they were told is true no more.

Laws:
- Nothing here tries a pod: who could be placed now is left to the event that says so.
- After an edit of a Pool all are told at once; what else makes reasons untrue is told once things have come to rest.
- Other numbers alone are news after an edit only: in a busy cluster they change all the time.
"""

from typing import Final

from aischeduler.engine.claiming import lifted_for
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.errands import Rewording
from aischeduler.engine.searches import find_lender, find_victims
from aischeduler.engine.sentences import BORROWING, PREEMPTION, same_but_for_counts, sentence
from aischeduler.model.actions import Action, ReportWaiting
from aischeduler.model.pool import MakeRoom
from aischeduler.policies.borrowing import Lender
from aischeduler.policies.preemption import Candidate, NoCandidate
from aischeduler.state.records import PodRecord

REWORDED_AT_ONCE: Final = 2
"""Classes of which one decision asks anew; each may take a search for victims and for a lender."""
REWORDED_CLASSES_MAX: Final = 64
"""Classes of a pool that are told anew after one cause."""
REWORDED_MAX: Final = 100
"""Pods of a class that are told; more would flood the API server."""
RANKS_MAX: Final = 8
"""Priorities of a class, with and without the right to preempt, that are asked for each; the rest is not told."""


def look_again(cluster: Cluster, now: float) -> None:
    """Let all pools tell their parked pods anew, where things have come to rest after they changed."""
    if cluster.errands.unrest.ended(now):
        regrouped, cluster.errands.regrouped = cluster.errands.regrouped, set()
        for name, queue in cluster.queues.items():
            if queue.has_parked:
                cluster.errands.rewording.setdefault(name, Rewording(REWORDED_CLASSES_MAX, name in regrouped))


def reword_all(cluster: Cluster) -> None:
    """Let the parked pods of all pools be told anew why they wait: each reason names pools and what these allow."""
    for name in cluster.queues:
        cluster.errands.rewording[name] = Rewording(REWORDED_CLASSES_MAX, counts=True)


def reword(cluster: Cluster, pool: str, actions: list[Action]) -> None:
    """Tell the parked pods of the next few classes why they wait, where that is news."""
    work = cluster.errands.rewording.pop(pool)
    queue, after, left = cluster.queues[pool], work.after, work.left
    before = cluster.versions()
    for alike in queue.parked(after)[: min(REWORDED_AT_ONCE, left)]:
        after, left = alike.turn, left - 1
        messages: dict[tuple[int, bool], str] = {}
        for record in alike.parked[:REWORDED_MAX]:
            rank = (record.pod.priority, record.pod.preempts)  # decides about its victims, next to its class
            if rank not in messages and len(messages) < RANKS_MAX:
                messages[rank] = reason(cluster, record)
            message = messages.get(rank)
            if message and _is_news(message, record.message, work.counts):
                record.message = message
                actions.append(ReportWaiting(record.pod, pool, pool, message, record.decision))
    if cluster.errands.unrest.versions == before:
        cluster.errands.unrest.versions = cluster.versions()  # what only looking has moved is no change
    if left and queue.parked(after):
        cluster.errands.rewording[pool] = Rewording(left, work.counts, after)


def _is_news(message: str, before: str, counts: bool) -> bool:
    return message != before if counts else not same_but_for_counts(message, before)


def reason(cluster: Cluster, record: PodRecord) -> str:
    """Return what the pod would be told if it were tried now and parked; empty when it would not be parked."""
    home = cluster.pools.pools[record.home]
    rows, ask = cluster.nodes.rows_of_pool(cluster.pools.id(home.name)), cluster.ask(record.pod.spec, home.name)
    lender = find_lender(cluster, record, (home.name,))
    preemption = may_not_evict(cluster, record)
    if not preemption and len(rows):
        found = find_victims(cluster, record, rows, lifted_for(cluster, record, home.name))
        if isinstance(found, Candidate):
            return ""
        preemption = unhelpful(cluster, home.name, found)
    if isinstance(lender, Lender) or cluster.runner.best(ask, rows) is not None:
        return ""
    clauses = {PREEMPTION: preemption if len(rows) else "", BORROWING: lender.message()}
    preempts_first = cluster.profile.first_room(home) is MakeRoom.PREEMPT_THEN_BORROW
    order = (PREEMPTION, BORROWING) if preempts_first else (BORROWING, PREEMPTION)
    return sentence(cluster.runner.diagnose(ask, rows).message(), {kind: clauses[kind] for kind in order})


def may_not_evict(cluster: Cluster, record: PodRecord) -> str:
    """Return why nobody may be evicted for the pod; empty when it may."""
    if not cluster.profile.preemption:
        return "switched off for the whole scheduler"
    if cluster.pools.pools[record.home].disable_preemption:
        return f"switched off for the pool {record.home}"
    return "" if record.pod.preempts else "not eligible due to preemptionPolicy=Never."


def unhelpful(cluster: Cluster, pool: str, found: NoCandidate) -> str:
    """Return why no eviction would help, with how many pods of the pool's nodes are left alone for now."""
    spared = [cluster.records[uid] for uid in cluster.spared.names()]
    here = [record for record in spared if cluster.pool_of(record.row) == pool]
    protected = sum(record.protected for record in here)
    text = found.message()
    if protected:
        text += f" Disruption budgets forbid to evict {_pods(protected)} now."
    if len(here) > protected:
        text += f" The API server refused to evict {_pods(len(here) - protected)} just now."
    return text


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"
