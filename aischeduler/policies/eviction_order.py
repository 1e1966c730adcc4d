"""Who may be evicted for a pod or a unit, and who goes first: the one place for both.

Invariants:
- A pod that is not evictable, or that leaves already, is evicted for nobody.
- Each pod on a node has one standing: its kind first, then its priority. It may be evicted for a preemptor that stands
  above it: borrowers and surplus of any priority, and other home pods of strictly lower priority.
- With tenant queues, home pods and surplus go for a preemptor only as these say: inference takes from the training of
  reclaimable queues of lower priority, whatever the priorities of pods, and from training of lower priority in its own
  queue; training from nobody; a pod of unknown service from its own queue; a pod without a queue from such pods.
- A shielded pod goes for no home pod. A borrower goes for any, whatever its queue says.
- Among the potential victims, the pod of the lowest standing goes first; with tenant queues, after borrowers the pods
  that are more than the minimum of their gang, then those of the queue of the lowest priority; of one standing, the pod
  that started last.
- As the cost of a row, borrowers count alike, whatever their priority: their owners have no claim on the room.

Source: kube-scheduler's order of importance of pods, and of nodes by victims. The kinds are added. The rules of tenant
queues are those of tidal scheduling by Volcano's reclaim, where services of unknown type take nothing from others.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from msgspec import Struct

from aischeduler.model.workload import ServiceType
from aischeduler.policies.gang_losses import kept_by_unit, lost_with
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import Column
from aischeduler.state.running_pods import RunningPod, RunningPods, RunningTable, Slots

PRIORITY_MIN: Final = -(2**31)
PRIORITY_BITS: Final = 32
PRIORITY_MASK: Final = (1 << PRIORITY_BITS) - 1
STANDING_BITS: Final = PRIORITY_BITS + 2
QUEUE_PRIORITY_MAX: Final = 2**30 - 1
"""Priorities of tenant queues above this count as this."""
NOT_STARTED: Final = 2**62
"""The start time of a pod that has none: after all others but those that go by their turn."""
LAST: Final = NOT_STARTED + 2**15
"""Above the start time of any pod."""


class StandingKind(IntEnum):
    """The kinds of pods on nodes, those that go first first."""

    BORROWER = 0
    SURPLUS = 1
    HOME = 3


SURPLUS_MIN: Final = StandingKind.SURPLUS << PRIORITY_BITS
HOME_MIN: Final = StandingKind.HOME << PRIORITY_BITS
"""The standing of a home pod of the lowest priority."""


class Loss(Struct, frozen=True):
    """How the work of victims counts: the resources of `cards`, and the time in unix seconds until which they worked.

    Without cards, lost work does not count, as in kube-scheduler.
    """

    cards: tuple[str, ...] = ()
    now_seconds: int = 0


NO_LOSS: Final = Loss()


class TenantPreemptor(Struct, frozen=True):
    """A preemptor where there are tenant queues: the number of its own (0 for none), its priority, and its service.

    `unit` is the number of its unit if that has started (0 if not): none of its pods goes for another one.
    """

    queue: int
    queue_priority: int
    service: ServiceType | None
    unit: int = 0


class Preemptor(Struct, frozen=True):
    """What decides who goes for a home pod, or for a unit of its home pool."""

    priority: int = 0
    loss: Loss = NO_LOSS
    tenant: "TenantPreemptor | None" = None
    """Its place among the tenant queues; None where there are none."""
    elastic: bool = False
    """Whether it is an elastic job: surplus of others makes room for it by their sizes alone, not by its priority."""

    @property
    def standing(self) -> int:
        """The standing of this preemptor among the pods on nodes."""
        return HOME_MIN + self.priority - PRIORITY_MIN


def may_go(pods: RunningTable) -> Mask:
    """Return a mask of the running pods that may be evicted for some preemptor."""
    may: Mask = pods["evictable"] & ~pods["leaving"]
    return may


def may_evict(preemptor: Preemptor, pods: RunningTable) -> Mask:
    """Return a mask of the running pods that may be evicted for the preemptor."""
    may: Mask = may_go(pods) & is_below(preemptor, pods)
    return may


def is_below(preemptor: Preemptor, pods: RunningTable) -> Mask:
    """Return a mask of the running pods that stand below the preemptor, whether they may be evicted now or not."""
    surplus = np.False_ if preemptor.elastic else pods["surplus"]
    lower: Mask = _standing(pods["borrower"], surplus, pods["priority"]) < preemptor.standing
    if preemptor.tenant is not None:
        lower = pods["borrower"] | (~pods["shielded"] & _lets_go(preemptor.tenant, pods, lower))
    return lower


def takes_over(preemptor: Preemptor, owner: Preemptor, evicted: RunningTable) -> bool:
    """Return whether a home pod ahead of one that had pods evicted may take the room of these.

    They go for it too, or the owner would go for it as soon as that runs.
    """
    ours, others = preemptor.tenant, owner.tenant
    if preemptor.elastic and evicted["surplus"].any() and not is_below(preemptor, evicted).all():
        return False
    if ours is None or others is None:
        return True
    if ours.queue == others.queue and preemptor.priority >= owner.priority:
        unknown = not ours.queue or ours.service not in (ServiceType.TRAINING, ServiceType.INFERENCE)
        if ours.service == others.service or (unknown and preemptor.priority > owner.priority):
            return True
    return bool(is_below(preemptor, evicted).all())


def _lets_go(tenant: TenantPreemptor, pods: RunningTable, lower: Mask) -> Mask:
    """Return a mask of the home pods that tenant queues let go for a preemptor; `lower` are those below it."""
    same: Mask = pods["queue"] == tenant.queue
    match tenant.service if tenant.queue else None:
        case ServiceType.TRAINING:
            return np.zeros(len(pods), dtype=np.bool_)
        case ServiceType.INFERENCE:
            others = ~same & pods["reclaimable"] & (pods["queue_priority"] < tenant.queue_priority)
            if tenant.unit:
                others &= pods["unit"] != tenant.unit
            trained: Mask = pods["training"] & ((same & lower) | others)
            return trained
        case _:
            return same & lower


def potential_victims(preemptor: Preemptor, running: RunningPods, slots: Slots, budgets: BudgetTable) -> Slots:
    """Return those of these slots whose pods may be evicted for the preemptor, also with what is lost with them."""
    found: Slots = slots[may_evict(preemptor, running.pods_in(slots))]
    found = found[~kept_by_unit(running, found)]
    return found[~_parted(found, running, budgets)] if budgets.obeyed else found


def _parted(slots: Slots, running: RunningPods, budgets: BudgetTable) -> Mask:
    """Return a mask of the pods whose unit would go in part: budgets do not allow all now that are lost with one."""
    found: Mask = np.zeros(len(slots), dtype=np.bool_)
    forbidden: dict[int, bool] = {}
    for at in np.flatnonzero(running.table["unit"][slots]).tolist():
        slot = int(slots[at])
        lost, unit = lost_with(running, [slot]), int(running.table["unit"][slot])
        if not lost:
            continue  # its unit can spare it
        if unit not in forbidden:
            uids = running.uids_of(np.array(sorted({slot, *lost}), dtype=np.intp))
            forbidden[unit] = bool(budgets.broken(uids, np.zeros(len(uids), dtype=np.intp)).any())
        found[at] = forbidden[unit]
    return found


def gone_for(preemptor: Preemptor, pods: RunningTable) -> Mask:
    """Return a mask of the running pods that leave already, or may be evicted for the preemptor."""
    gone: Mask = pods["leaving"] | may_evict(preemptor, pods)
    return gone


def standing_of(pods: RunningTable) -> Column:
    """Return the standing of each of these rows of the table of running pods."""
    standing: Column = _standing(pods["borrower"], pods["surplus"], pods["priority"])
    return standing


def _standing(borrower: Any, surplus: Any, priority: Any) -> Any:
    return (1 - borrower) * (HOME_MIN - surplus * (HOME_MIN - SURPLUS_MIN)) + (priority - PRIORITY_MIN)


def importance_of(pods: RunningTable) -> Column:
    """Return how important each of these pods is: its standing, as surplus where it is extra in its tenant queue.

    The priority of its queue decides before its own.
    """
    standing = standing_of(pods)
    if not pods["queue"].any():
        return standing
    extra = pods["extra"]
    home = ~(pods["borrower"] | pods["surplus"])
    lowered = (home & extra).astype(np.int64) * (HOME_MIN - SURPLUS_MIN)
    raised = (home & ~extra).astype(np.int64) * pods["queue_priority"] << PRIORITY_BITS
    importance: Column = standing - lowered + raised
    return importance


def ranks_of(pods: RunningTable) -> Column:
    """Return what each of these pods counts as the cost of a row: its importance; all borrowers count alike."""
    return np.where(pods["borrower"], 0, importance_of(pods))


def weights_of(ranks: Column) -> Column:
    """Return what pods of these ranks count in the sum of the victims of a row: their priority above the lowest."""
    return ranks & PRIORITY_MASK


def started_of(pods: RunningTable) -> Column:
    """Return the start times of these rows of the table of running pods, in the form that is compared.

    Pods with a turn, which end by a smaller size of their job, are as if they had started last, in that order.
    """
    started, turn = pods["started_seconds"], pods["turn"].astype(np.int64)
    compared = np.where(started == 0, NOT_STARTED, started)
    return np.where(turn > 0, NOT_STARTED + turn, compared) if turn.any() else compared


def most_important_first(running: RunningPods, slots: Sequence[int] | Slots) -> Slots:
    """Return these slots with the most important pod first: by standing, start and uid."""
    found: Slots = np.array(slots, dtype=np.intp)
    pods, uids = running.pods_in(found), np.array(running.uids_of(found), dtype=np.str_)
    return found[np.lexsort((uids, started_of(pods), -importance_of(pods)))]


def started(pod: RunningPod) -> int:
    """Return the start time of one pod, in the form of `started_of`."""
    return NOT_STARTED + pod.turn if pod.turn else pod.started_seconds or NOT_STARTED


def first_to_go(running: RunningPods, pods: list[tuple[int, RunningPod]]) -> tuple[int, int, int] | None:
    """Return which of these pods of a row, with their slots, goes first, for whoever may evict it; None where none may.

    That is its slot, its rank (see `ranks_of`), and the latest start among the pods of this rank.
    """
    found = [
        (_standing(pod.borrower, pod.surplus, pod.priority), -started(pod), slot, pod.borrower)
        for slot, pod in pods
        if pod.evictable and not pod.leaving
    ]
    if not found:
        return None
    standing, earliest, _, borrows = min(found)
    slot = max((victim[2] for victim in found if victim[:2] == (standing, earliest)), key=running.uid_of)
    if not borrows:
        return slot, standing, -earliest
    return slot, 0, max(-victim[1] for victim in found if victim[3])
