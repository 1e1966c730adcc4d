"""Checks of evictions and Bindings: each must be right for a scheduler that knows the record of the API server.

Invariants:
- The audit has rules of its own (`rules.py`) and shares no code with the scheduler; unreadable input is an error.
- Facts older than the margin count as known. A decision is right if it was right at some moment within the margin. What
  came to the record after it, by a later watch, and is older by its version, counts as a fact before it.
  While the watch of pods lags, the scheduler may know an older state of the pods, but not of other objects.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests import independent_requests
from tests.e2e.cluster import condition
from tests.e2e.record import Change, Changes, Objects, key
from tests.e2e.rules import OURS, Pods, World, finished, lacks, pool_named, priority, runs_there
from tests.objects import Json

HOME_MARK: Final = "scheduling.resource.aibee.cn/home-pool"
MARGIN_SECONDS: Final = 2.0
"""The scheduler knows a fact that is older than this."""
FRESH_SECONDS: Final = 1.0
"""The scheduler knows facts that are older than the beneficiary by this much."""
AFTER_SECONDS: Final = 2.0
"""A decided Binding is in the record within this time."""
OTHERS: Final = ("nodes", "pools", "namespaces")
"""The kinds that matter to pods, without the pods."""
PODS_BEFORE_SECONDS: Final = (0.0, 0.02, 0.1, 0.5, 2.0)
"""How old a Binding may be when the record has it: the room on its node is checked for this time before."""
FOR_A_POD: Final = re.compile(r"preempting to accommodate (?P<namespace>[^/]+)/(?P<name>.+)$")
END_OF_LOAN: Final = re.compile(r"preempting because pool (?P<pool>.+) no longer lends this room$")


@dataclass(frozen=True, slots=True)
class Eviction:
    """A victim as it last ran, the time of its condition, and the beneficiary at that time; None if its loan ended."""

    at: float
    victim: Json
    beneficiary: Json | None
    told_at: float = 0.0
    """Until when the record got what was known of other objects than pods, where that is later."""

    def __str__(self) -> str:
        name = self.victim["metadata"]["name"]
        sake = "its loan ended" if self.beneficiary is None else f"for {self.beneficiary['metadata']['name']}"
        return f"{name} on {self.victim['spec']['nodeName']} {sake}"


class Judge:
    """Checks a record in which the watch of one kind lagged by this many seconds."""

    def __init__(
        self, record: Changes, held: str = "nothing", held_seconds: float = 0.0, margin_seconds: float = MARGIN_SECONDS
    ) -> None:
        self._record = record
        self._margin = margin_seconds
        self._pods_late = held_seconds if held == "pods" else 0.0

    def evictions(self) -> list[Eviction]:
        """Return the evictions of the scheduler, oldest first."""
        found: dict[str, Eviction] = {}
        last: Objects = {}
        ran: dict[str, Json] = {}
        for change in self._record.changes["pods"]:
            pod = change.document
            mark = condition(pod, "DisruptionTarget")
            uid = pod["metadata"]["uid"]
            last[change.key] = pod
            if pod["spec"].get("nodeName") and not finished(pod):
                ran[uid] = pod
            if mark.get("reason") == "PreemptionByScheduler" and uid not in found and uid in ran:
                told_at = self._record.told_by(change, OTHERS)
                found[uid] = Eviction(change.at, ran[uid], _beneficiary(mark["message"], last), told_at)
        return list(found.values())

    def faults(self, *, rooms: bool = True) -> Iterator[str]:
        """Yield every eviction that a fully informed scheduler does not make, with the reason.

        Without `rooms` free room is not checked: where pods end all the time, the free room at one moment is unknown.
        """
        evictions, bound = self.evictions(), self.bound()
        for eviction in evictions:
            end = eviction.at + AFTER_SECONDS
            leaving = {one.victim["metadata"]["uid"] for one in evictions if one.at <= end}
            reasons = (self._wrong(eviction, world, leaving, rooms=rooms) for world in self._worlds(eviction, bound))
            if why := _all_wrong(reasons):
                yield f"{eviction}: {why}"

    def wrong_bindings(self) -> Iterator[str]:
        """Yield every Binding that a fully informed scheduler does not make, with the reason."""
        for change in self.bound():
            pod = change.document
            reasons = (
                world.binding_forbidden(pod, pod["spec"]["nodeName"]) for world in self._worlds_of_binding(change)
            )
            if why := _all_wrong(reasons):
                yield f"{pod['metadata']['name']} on {pod['spec']['nodeName']}: {why}"

    def bound(self) -> list[Change]:
        """Return the changes by which pods of the scheduler became bound, oldest first."""
        found: dict[str, Change] = {}
        for change in self._record.changes["pods"]:
            spec = change.document["spec"]
            if spec["schedulerName"] == OURS and spec.get("nodeName"):
                found.setdefault(change.document["metadata"]["uid"], change)
        return list(found.values())

    def strangers(self) -> list[str]:
        """Return the pods that were bound for another home pool than the existing pool that they name."""
        found = {}
        for change in self.bound():
            pod = change.document
            mark = pod["metadata"].get("annotations", {}).get(HOME_MARK)
            named = pool_named(pod)
            if mark is not None and mark != named and self._was_there(pod, change.at):
                found[pod["metadata"]["name"]] = f"{pod['metadata']['name']} names {named} and was bound for {mark}"
        return list(found.values())

    def neglected(self) -> list[str]:
        """Return the pods that wait although their pool has room for them."""
        world = World(Pods(self._record.now("pods")), *(self._record.now(plural) for plural in OTHERS))
        return [
            f"{pod['metadata']['name']} waits, {world.home(pod)} has room on {world.room_for(pod, world.home(pod))}"
            for pod in world.pods.values()
            if pod["spec"]["schedulerName"] == OURS
            and not (pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"))
            and world.allows(world.home(pod), pod)
            and world.room_for(pod, world.home(pod))
        ]

    def _was_there(self, pod: Json, at: float) -> bool:
        """Say whether the pool that a pod names existed from the creation of the pod until this moment."""
        name, made = ("", pool_named(pod)), self._record.made(pod)
        gone = (one for one in self._record.changes["pools"] if one.key == name and one.gone and made < one.at <= at)
        return name in self._record.at("pools", made) and not any(gone)

    def _worlds(self, eviction: Eviction, bound: list[Change]) -> Iterator[World]:
        """Yield the states of the cluster that the scheduler may have known for this eviction, latest first.

        The victim is in each state, and room is reserved for pods that become bound soon.
        """
        record, at, begin = self._record, eviction.at, eviction.at - self._margin
        told = list(self._told(max(begin, self._asked(eviction) - FRESH_SECONDS), max(at, eviction.told_at)))
        early = begin
        if self._pods_late:
            early = max(begin - self._pods_late, self._possible(eviction) - FRESH_SECONDS)
        end = at + AFTER_SECONDS
        soon = {one.key: one.document["spec"]["nodeName"] for one in bound if early < one.at <= end}
        moments = record.moments("pods", early, end)
        for moment in sorted(moments, key=lambda one: abs(one - at)):
            pods = Pods(record.at("pods", moment) | {key(eviction.victim): eviction.victim}, soon)
            for _, (nodes, pools, namespaces) in told:
                yield World(pods, nodes, pools, namespaces)

    def _worlds_of_binding(self, change: Change) -> Iterator[World]:
        """Yield the states of the cluster that the scheduler may have known for a Binding, with the pods before it."""
        told = list(self._told(change.at - self._margin, self._record.told_by(change, OTHERS)))
        for seconds in PODS_BEFORE_SECONDS:
            pods = Pods(self._record.at("pods", change.at - seconds))
            for _, (nodes, pools, namespaces) in told:
                yield World(pods, nodes, pools, namespaces)

    def _told(self, begin: float, end: float) -> Iterator[tuple[float, list[Objects]]]:
        """Yield nodes, pools and namespaces after each change, latest first."""
        record = self._record
        for moment in sorted({one for plural in OTHERS for one in record.moments(plural, begin, end)}, reverse=True):
            yield moment, [record.at(plural, moment) for plural in OTHERS]

    def _asked(self, eviction: Eviction) -> float:
        """Return when the beneficiary was created; for the end of a loan, the beginning of time."""
        return -math.inf if eviction.beneficiary is None else self._record.made(eviction.beneficiary)

    def _possible(self, eviction: Eviction) -> float:
        """Return since when the facts other than pods allow the eviction: older states of pods do not justify it."""
        pods = Pods(self._record.at("pods", eviction.at))
        since = eviction.at
        begin = eviction.at - self._margin - self._pods_late
        for moment, (nodes, pools, namespaces) in self._told(begin, eviction.at):
            if self._forbidden(eviction, World(pods, nodes, pools, namespaces)):
                break
            since = moment
        return max(since, self._asked(eviction))

    def _wrong(self, eviction: Eviction, world: World, leaving: set[str], *, rooms: bool) -> str:
        """Return why an eviction is wrong in this state, in which other pods leave too; empty if it is right."""
        forbidden = self._forbidden(eviction, world)
        if forbidden or eviction.beneficiary is None:
            return forbidden
        victim, by = eviction.victim, eviction.beneficiary
        node = world.nodes["", victim["spec"]["nodeName"]]
        pool = world.pool_of(node)
        if rooms and (room := world.room_for(by, pool)):
            return f"{pool} had room on {', '.join(room)}"
        if not runs_there(by, node):
            return "the node does not take the beneficiary"
        missing = lacks(by, world.free(node, key(by), leaving))
        return (
            f"{node['metadata']['name']} has too little {missing} for the beneficiary without all leaving pods"
            if missing
            else ""
        )

    def _forbidden(self, eviction: Eviction, world: World) -> str:
        """Return the rule that forbids an eviction in this state, apart from room."""
        victim = eviction.victim
        node = world.nodes.get(("", victim["spec"]["nodeName"]))
        if node is None:
            return "its node does not exist"
        pool, home = world.pool_of(node), world.home(victim)
        if eviction.beneficiary is None:
            return _loan_goes_on(world, pool, home)
        by = eviction.beneficiary
        mine = pool_named(by) if self._was_there(by, eviction.at) else world.home(by)
        if mine != pool:
            return f"{pool} is not the beneficiary's pool {mine}"
        if world.spec(pool).get("disablePreemption"):
            return f"{pool} forbids preemption"
        if by["spec"].get("preemptionPolicy") == "Never":
            return "the beneficiary never preempts"
        if home == pool and priority(victim) >= priority(by):
            return "the victim is a home pod of no lower priority"
        if not world.allows(pool, by):
            return f"{pool} takes no pods of the beneficiary's namespace"
        return ""


def _loan_goes_on(world: World, pool: str, home: str) -> str:
    """Return why the loan must not end; empty if it must."""
    spec = world.spec(pool)
    if home == pool:
        return f"it is a home pod of {pool}"
    if spec.get("reclaimPolicy") != "Evict" or spec.get("disablePreemption"):
        return f"the reclaimPolicy of {pool} keeps loans"
    limit = independent_requests.amounts(spec.get("lendingLimit"))
    lent = world.lent(pool)
    over = any(lent[what] > much for what, much in limit.items())
    return "" if spec.get("disableSharing") or over else f"{pool} lends {dict(lent)} and may lend {limit}"


def _beneficiary(mark: str, last: Objects) -> Json | None:
    """Return the last state of the pod that a victim's condition names."""
    found = FOR_A_POD.search(mark)
    assert found or END_OF_LOAN.search(mark), mark
    return last[found["namespace"], found["name"]] if found else None


def _all_wrong(reasons: Iterator[str]) -> str:
    """Return the reasons of all states, each once; empty if one state has none."""
    found: dict[str, None] = {}
    for reason in reasons:
        if not reason:
            return ""
        found[reason] = None
    return "; or ".join(found)
