"""The reasons of waiting pods, and updating reasons that are no longer true.

Invariants:
- Nothing here tries a pod: an event wakes a pod that fits now.
- After an edit of a Pool all reasons are updated at once; after other changes, once the changes pause.
- A reason that differs only in its numbers is new after an edit only: in a busy cluster numbers change all the time.
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
"""The most classes that one decision updates; each may take a search for victims and for a lender."""
REWORDED_CLASSES_MAX: Final = 64
"""The most classes of a pool that are updated after one cause."""
REWORDED_MAX: Final = 100
"""The most pods of a class that are updated; more would flood the API server."""
RANKS_MAX: Final = 8
"""The most pairs of priority and preemptionPolicy in a class that are updated; the others are skipped."""


def look_again(cluster: Cluster, now: float) -> None:
    """Have the reasons of all parked pods updated, where changes have paused."""
    if cluster.errands.unrest.ended(now):
        regrouped, cluster.errands.regrouped = cluster.errands.regrouped, set()
        for name, queue in cluster.queues.items():
            if queue.has_parked:
                cluster.errands.rewording.setdefault(name, Rewording(REWORDED_CLASSES_MAX, name in regrouped))


def reword_all(cluster: Cluster) -> None:
    """Have the reasons of all parked pods updated at once, because a Pool changed."""
    for name in cluster.queues:
        cluster.errands.rewording[name] = Rewording(REWORDED_CLASSES_MAX, counts=True)


def reword(cluster: Cluster, pool: str, actions: list[Action]) -> None:
    """Report the new reasons of the parked pods of the next classes."""
    work = cluster.errands.rewording.pop(pool)
    queue, after, left = cluster.queues[pool], work.after, work.left
    for alike in queue.parked(after)[: min(REWORDED_AT_ONCE, left)]:
        after, left = alike.turn, left - 1
        messages: dict[tuple[int, bool], str] = {}
        for record in alike.parked[:REWORDED_MAX]:
            rank = (record.pod.priority, record.pod.preempts)  # beside its class, this decides its victims
            if rank not in messages and len(messages) < RANKS_MAX:
                messages[rank] = reason(cluster, record)
            message = messages.get(rank)
            if message and _is_news(message, record.message, work.counts):
                record.message = message
                actions.append(ReportWaiting(record.pod, pool, pool, message, record.decision))
    if left and queue.parked(after):
        cluster.errands.rewording[pool] = Rewording(left, work.counts, after)


def _is_news(message: str, before: str, counts: bool) -> bool:
    return message != before if counts else not same_but_for_counts(message, before)


def reason(cluster: Cluster, record: PodRecord) -> str:
    """Return the message of the pod if an attempt now would park it; empty where it would not."""
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
    """Return why the pod may not preempt; empty where it may."""
    if not cluster.profile.preemption:
        return "switched off for the whole scheduler"
    if cluster.pools.pools[record.home].disable_preemption:
        return f"switched off for the pool {record.home}"
    return "" if record.pod.preempts else "not eligible due to preemptionPolicy=Never."


def unhelpful(cluster: Cluster, pool: str, found: NoCandidate) -> str:
    """Return why no eviction helps, with the number of pods of the pool that are spared."""
    spared = [cluster.records[uid] for uid in cluster.spared.names()]
    here = [record for record in spared if cluster.pool_of(record.row) == pool]
    protected = sum(record.protected for record in here)
    text = found.message()
    if protected:
        text += f" Disruption budgets forbid the eviction of {_pods(protected)} now."
    if len(here) > protected:
        text += f" The API server refused to evict {_pods(len(here) - protected)} just now."
    return text


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count > 1)}"
