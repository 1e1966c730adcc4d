"""The reasons of waiting pods, and updating reasons that are no longer true.

Invariants:
- Nothing here tries a pod: an event wakes a pod that fits now.
- After an edit of a Pool all reasons are updated at once; after other changes, once the changes pause.
- A reason that differs only in its numbers is new after an edit only: in a busy cluster numbers change all the time.
"""

from typing import Final

from aischeduler.engine.agenda import Checks, Rewording
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import propose, same_but_for_counts
from aischeduler.model.actions import Action, ReportWaiting
from aischeduler.model.proposal import Wait, WaitFor
from aischeduler.state.pod_records import PodRecord

REWORDED_AT_ONCE: Final = 2
"""The most classes that one decision updates, of units one; each may take a search for victims and for a lender."""
REWORDING_COST: Final = 16
"""The cost of updating a class, in checks."""
REWORDED_CLASSES_MAX: Final = 64
"""The most classes of a pool that are updated after one cause."""
REWORDED_MAX: Final = 100
"""The most pods of a class that are updated; more would flood the API server."""
RANKS_MAX: Final = 8
"""The most pairs of priority and preemptionPolicy in a class that are updated; the others are skipped."""


def advance(cluster: Cluster, now: float) -> None:
    """Begin a call at this time; what has changed since the call before did so at the time of that one."""
    if now != cluster.now:
        note_changes(cluster)
        cluster.now = now


def note_changes(cluster: Cluster) -> None:
    """Note whether anything that the reasons of waiting pods depend on has changed."""
    versions = (
        cluster.nodes.version,
        cluster.running.version,
        cluster.pools.version,
        cluster.ledger.version,
        cluster.deferred.queue_changes.version,
        cluster.nodes.storage.version,
    )
    cluster.deferred.unrest.note(versions, cluster.now)


def look_again(cluster: Cluster, now: float) -> None:
    """Have the reasons of all parked pods updated, where changes have paused."""
    if cluster.deferred.unrest.ended(now):
        for name, queue in cluster.queues.items():
            agenda = cluster.deferred.agenda(name)
            if queue.has_parked and agenda.rewording is None:
                agenda.rewording = Rewording(REWORDED_CLASSES_MAX, agenda.regrouped)
            agenda.regrouped = False
            cluster.deferred.slice_ends(name)


def reword_all(cluster: Cluster) -> None:
    """Have the reasons of all parked pods updated at once, because a Pool changed."""
    for name in cluster.queues:
        cluster.deferred.agenda(name).rewording = Rewording(REWORDED_CLASSES_MAX, counts=True)


def reword(cluster: Cluster, pool: str, actions: list[Action], checks: Checks) -> None:
    """Report the new reasons of the parked pods of the next classes."""
    agenda = cluster.deferred.agenda(pool)
    work, agenda.rewording = agenda.rewording, None
    assert work is not None, "the task is on the agenda"
    queue, after, left = cluster.queues[pool], work.after, work.left
    for alike in queue.parked(after)[: min(REWORDED_AT_ONCE, left)]:
        if checks.left <= 0:
            break
        after, left = alike.turn, left - 1
        checks.spend(REWORDING_COST)
        messages: dict[tuple[int, bool], str] = {}
        for record in alike.parked[:REWORDED_MAX]:
            rank = (record.priority, record.pod.preempts)  # beside its class, this decides its victims
            if rank not in messages and len(messages) < RANKS_MAX:
                messages[rank] = reason(cluster, record, cluster.now)
            message = messages.get(rank)
            known = record.message
            if message and (message != known if work.counts else not same_but_for_counts(message, known)):
                cluster.units.touch(record)
                for member in (record,) if record.leads is None else record.leads.pods:
                    member.message = message
                    actions.append(ReportWaiting(member.pod, pool, pool, message, record.decision))
        if alike.unit is not None:
            break
    if left and queue.parked(after):
        agenda.rewording = Rewording(left, work.counts, after)


def reason(cluster: Cluster, record: PodRecord, now: float) -> str:
    """Return the message of the pod if an attempt now would park it; empty where it would not."""
    found = propose(cluster, record, record.home, now, known=True)
    return found.message if isinstance(found, Wait) and found.waits_for is WaitFor.ROOM else ""
