"""What rules keep for placed pods, and Bindings that rules delay or veto.

Invariants:
- Every rule that reserved for a pod releases once: in the opposite order, when the pod is not bound or leaves its node.
- A pod whose Binding is delayed is assumed: it counts on its node, and no shell hears of it before a rule permits it.
  It is not evicted: where another pod preempts it, it is taken back.
- The Bindings of a unit that has not started are sent together, once all are permitted. Where too few are left for its
  start, the others are taken back too.

Source: Reserve, Permit and PreBind of kube-scheduler.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from aischeduler.engine.bindings import SETTLE_SECONDS
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.gang_lifecycle import holds_enough
from aischeduler.engine.internal_errors import Doing, error_message, internal_error
from aischeduler.engine.pod_classes import take_profile
from aischeduler.engine.pod_events import free_room
from aischeduler.engine.reservations import BindingGroup
from aischeduler.engine.volume_binding import await_volumes, begin_volumes
from aischeduler.framework.plugin import Delayed, Vetoed
from aischeduler.model.actions import Action, Bind, ReportWaiting, Step
from aischeduler.model.pod import Pod
from aischeduler.model.proposal import LenderRefusal
from aischeduler.policies.borrowing import kept_from_borrowers
from aischeduler.policies.loan_limits import lender_refusal
from aischeduler.state.pod_records import PodRecord

ASKED_MAX: Final = 16
"""The most delayed Bindings for which one decision asks again."""
ASK_SECONDS_MIN: Final = 0.1
"""The shortest time until a rule is asked again."""
GROUP_SECONDS: Final = 5.0
"""How often a permitted Binding is looked at that waits for others of its unit."""


def reserve(cluster: Cluster, pod: Pod, node: str) -> Delayed | Vetoed | None:
    """Have the rules reserve for a pod that is placed next; return what stops its Binding. A veto releases."""
    cluster.reservations.reserve(pod, node)
    verdict = _permission(cluster, pod, node, 0.0)
    if isinstance(verdict, Vetoed):
        cluster.reservations.release(pod.uid)
    return verdict


def send(cluster: Cluster, bind: Bind, actions: list[Action]) -> None:
    """Add the Bind of a placed pod to the actions."""
    cluster.reservations.unsettled[bind.pod.uid] = cluster.now + SETTLE_SECONDS
    actions.append(bind)


def send_or_delay(
    cluster: Cluster, binds: Sequence[Bind], verdicts: Sequence[Delayed | None], actions: list[Action]
) -> None:
    """Add the Binds of placed pods to the actions, or keep them until the rules permit them and volumes are bound.

    `verdicts` is what delays each Bind, or empty where no rule does.
    """
    delayed: dict[str, Delayed] = {}
    for at, bind in enumerate(binds):
        verdict = verdicts[at] if verdicts else None
        if verdict is None and bind.allocation.choices:
            verdict = begin_volumes(cluster, bind, actions)
        if verdict is not None:
            delayed[bind.pod.uid] = verdict
    if not delayed:
        for bind in binds:
            send(cluster, bind, actions)
        return
    unit = cluster.records[binds[0].pod.uid].unit
    together = unit is not None and not unit.started
    if together:
        pods = dict.fromkeys(bind.pod.uid for bind in binds)
        cluster.reservations.groups[binds[0].decision] = BindingGroup(pods, {*delayed})
    for bind in binds:
        uid = bind.pod.uid
        if together or uid in delayed:
            cluster.reservations.delayed[uid] = (bind, cluster.now)
            _ask_in(cluster, uid, delayed[uid].seconds if uid in delayed else GROUP_SECONDS)
        else:
            send(cluster, bind, actions)


def ask_again(cluster: Cluster, actions: list[Action]) -> None:
    """Ask the rules about the delayed Bindings that are due, at most `ASKED_MAX`."""
    due = cluster.reservations.asked_at.pop_due(cluster.now, ASKED_MAX)
    for uid in due:
        _ask_in(cluster, uid, 0.0)  # should a rule raise
    for uid in due:
        if uid not in cluster.reservations.delayed:
            continue  # another of its unit has decided
        (bind, since), record = cluster.reservations.delayed[uid], cluster.records[uid]
        verdict: Delayed | Vetoed | None = _loan_forbidden(cluster, record)
        if verdict is None and uid not in cluster.reservations.volumes:
            verdict = _permission(cluster, record.pod, bind.node, cluster.now - since)
        verdict = verdict or await_volumes(cluster, bind, actions)
        if isinstance(verdict, Delayed):
            _ask_in(cluster, uid, verdict.seconds)
        elif verdict is not None:
            take_back(cluster, record, verdict.message, actions)
            _take_back_others(cluster, bind.decision, actions)
        elif bind.decision in cluster.reservations.groups:
            _permitted(cluster, record, bind.decision, actions)
        else:
            _send_delayed(cluster, uid, actions)


def _permitted(cluster: Cluster, record: PodRecord, decision: str, actions: list[Action]) -> None:
    """Send the Bindings of a unit once this one and all others are permitted."""
    group = cluster.reservations.groups[decision]
    group.awaited.discard(record.pod.uid)
    if group.awaited:
        _ask_in(cluster, record.pod.uid, GROUP_SECONDS)
    elif not _take_back_others(cluster, decision, actions):
        for uid in tuple(group.pods):
            _send_delayed(cluster, uid, actions)


def _take_back_others(cluster: Cluster, decision: str, actions: list[Action]) -> bool:
    """Take back the delayed Bindings of a unit where too few of its pods are on rows; return whether that is so."""
    group = cluster.reservations.groups.get(decision)
    unit = cluster.records[next(iter(group.pods))].unit if group is not None else None
    if group is None or unit is None or unit.started or holds_enough(cluster, unit):
        return False
    for uid in tuple(group.pods):
        take_back(cluster, cluster.records[uid], f"too few pods of {unit.name} are left that start together", actions)
    return True


def _send_delayed(cluster: Cluster, uid: str, actions: list[Action]) -> None:
    bind, since = cluster.reservations.delayed[uid]
    cluster.reservations.end_delay(uid)
    cluster.review_loans(cluster.records[uid].row)  # no loan ends before the Binding, but this one may be too much
    send(cluster, replace(bind, waited_seconds=bind.waited_seconds + cluster.now - since), actions)


def _loan_forbidden(cluster: Cluster, record: PodRecord) -> Vetoed | None:
    """Return a veto where the pod is on loan and an edit of a Pool forbids that since."""
    lender, home = record.loan or ("", "")
    forbids = (LenderRefusal.NOT_LISTED, LenderRefusal.NOT_SHARING)
    kept = kept_from_borrowers(cluster.nodes) if lender else None
    if kept is not None and kept[record.row]:
        return Vetoed(f"the pool {lender} no longer lends nodes of this rare GPU type")
    if lender and lender_refusal(cluster.borrowing, home, lender, record.pod.spec) in forbids:
        return Vetoed(f"the pool {lender} no longer lends to the pool {home}")
    return None


def _permission(cluster: Cluster, pod: Pod, node: str, waited_seconds: float) -> Delayed | Vetoed | None:
    """Return the first veto, else the shortest delay, else None."""
    delay: Delayed | None = None
    for rule in cluster.profile.plugins_of(pod).permits:
        try:
            verdict = rule.permit(pod, node, waited_seconds)
        except Exception as error:  # noqa: BLE001 - a bug of a plugin is a veto
            doing = Doing(Step.ATTEMPT, "asking whether a pod may be bound", record=cluster.records.get(pod.uid))
            report = internal_error(cluster, doing, error)
            cluster.say(cluster.pools.home(pod.pool), report)
            return Vetoed(error_message(report))
        if isinstance(verdict, Vetoed):
            return Vetoed(f"{rule.name} does not permit the node {node}: {verdict.message}")
        if verdict is not None and (delay is None or verdict.seconds < delay.seconds):
            delay = verdict
    return delay


def take_back(cluster: Cluster, record: PodRecord, message: str, actions: list[Action]) -> None:
    """Free the room of a pod whose Binding is delayed, and have the pod tried again after a backoff."""
    pool = cluster.pool_of(record.row)
    free_room(cluster, record)
    record.home = cluster.pools.home(record.pod.pool)
    take_profile(cluster, record)
    cluster.queues[record.home].retry(record, cluster.now)
    record.message = message
    actions.append(ReportWaiting(record.pod, pool, record.home, message, record.decision))


def _ask_in(cluster: Cluster, uid: str, seconds: float) -> None:
    cluster.reservations.asked_at.set(uid, cluster.now + max(seconds, ASK_SECONDS_MIN))
