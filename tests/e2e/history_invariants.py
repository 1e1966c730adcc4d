"""What holds at every moment of a random history, and what holds when it rests.

Invariants:
- The checks read the record of the API server, its audit log and the log of the scheduler; they share no code with it.
- Each check returns its faults as sentences; none means that it holds.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from aischeduler.model.gang import GANG_KEY, GANG_MIN_KEY
from tests import independent_requests
from tests.controlplane.commands import SCHEDULER
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition
from tests.e2e.decision_audit import Eviction, Judge
from tests.e2e.record import Change, Changes
from tests.e2e.refusals import Refusal
from tests.e2e.rights import skip_to
from tests.e2e.rules import Amounts, Pods, World, finished, lacks, requests, runs_there
from tests.objects import Json

Line = Mapping[str, str]
Gang = tuple[str, str]
"""A gang by namespace, and its name or that of its Job."""

JOB_NAME: Final = "batch.kubernetes.io/job-name"
WRITES_PER_SECOND_MAX: Final = 10
"""The most requests of one kind about one object within a second: the pods of a gang of six come one after the other,
and the first tells how many are there each time; then it is nominated."""
REFUSED_PER_MINUTE_MAX: Final = 30
"""The most refused requests of one kind about one object within a minute."""
ROUNDS_PER_MINUTE_MAX: Final = 10
"""The most decisions within a minute that evict pods for one pod; each may have several victims. Where each is refused,
the backoff of its owner (1, 2, 4, 8, then 10 seconds) lets nine of them pass."""
IN_PART_SECONDS: Final = 60.0 + 15.0
"""How long a gang may be on nodes in part, with the time that evictions and Bindings need."""
MARGIN_SECONDS: Final = 4.0
LATE_SECONDS: Final = 0.5
"""How much later than the scheduler the record may see a change."""
MINUTE: Final = 60.0
REFUSALS: Final = (403, 409, 422, 429, 500)
REMOVALS: Final = ("delete pods ", "create pods/eviction ")
"""How the requests begin that remove a pod."""


class Rights(Judge):
    """Checks the right of each eviction that the log of the scheduler tells; a gang goes and comes as a whole.

    A pod that is `refused` to be evicted is asked alone, before the others that are to go with it.
    """

    def __init__(
        self, record: Changes, lines: Iterable[Line], wall_offset_seconds: float, refused: Iterable[Line] = ()
    ) -> None:
        super().__init__(record, margin_seconds=MARGIN_SECONDS)
        self._refused = {line["uid"] for line in refused}
        every = list(lines)
        self.lines = [line for line in every if line["cause"] != "GangNotWhole"]
        self._not_whole = [line for line in every if line["cause"] == "GangNotWhole"]
        self._offset = wall_offset_seconds
        self._found: list[Eviction] | None = None

    def evictions(self) -> list[Eviction]:
        if self._found is None:
            states: defaultdict[str, list[tuple[float, Json]]] = defaultdict(list)
            for change in self._record.changes["pods"]:
                states[change.document["metadata"]["uid"]].append((change.at, change.document))
            self._found = [one for line in self.lines if (one := self._eviction(line, states)) is not None]
        return self._found

    def bound(self) -> list[Change]:
        """Return the changes by which pods became bound in this record; some pods were bound before it began."""
        waited = {
            change.document["metadata"]["uid"]
            for change in self._record.changes["pods"]
            if not change.document["spec"].get("nodeName")
        }
        return [one for one in super().bound() if one.document["metadata"]["uid"] in waited]

    def of_whole_gangs(self) -> Iterator[str]:
        """Yield each eviction from a gang as not whole that was whole."""
        for line in self._not_whole:
            at = moment(line) - self._offset
            pods = [self._record.at("pods", at - seconds) for seconds in (0.0, MARGIN_SECONDS)]
            victim = pods[0].get((line["namespace"], line["pod"]))
            gang = victim and gang_of(victim)
            if victim and gang and all(_on_nodes(some, gang) >= _least(victim, 2) for some in pods):
                yield f"{line['pod']}: its gang was whole"

    def _eviction(self, line: Line, states: Mapping[str, list[tuple[float, Json]]]) -> Eviction | None:
        """Return the eviction of a line; None if the record has not yet seen one of its pods, or no longer.

        A victim that never came to the node had its Binding refused: `Asked.of_waiting` says that nothing was sent.
        """
        at = moment(line) - self._offset + LATE_SECONDS
        victims = [one for _, one in states.get(line["uid"], ()) if one["spec"].get("nodeName") == line["node"]]
        if not victims or finished(victims[0]):
            return None
        by = [document for _, document in states.get(line.get("beneficiary_uid", ""), ())]
        if "beneficiary_uid" in line and not by:
            return None
        return Eviction(at, victims[0], by[0] if by else None)

    def _wrong(self, eviction: Eviction, world: World, leaving: set[str], *, rooms: bool) -> str:
        gang, by = gang_of(eviction.victim), eviction.beneficiary
        if by is not None and eviction.victim["metadata"]["uid"] in self._refused:
            beside = world.pods.bound.get(eviction.victim["spec"]["nodeName"], ())
            may_go = (one for one in beside if not self._forbidden(Eviction(eviction.at, one, by), world))
            leaving = leaving | {one["metadata"]["uid"] for one in may_go}
        if gang is None and (by is None or gang_of(by) is None):
            return super()._wrong(eviction, world, leaving, rooms=rooms)
        together = [one for one in self.evictions() if gang is not None and gang_of(one.victim) == gang]
        reasons = [
            self._forbidden(Eviction(one.at, one.victim, by), world)
            for one in [eviction, *together]
            if abs(one.at - eviction.at) < MARGIN_SECONDS
        ]
        return reasons[0] if all(reasons) else ""


def moment(line: Line) -> float:
    """Return the wall clock time of a line of the log, in seconds."""
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def gang_of(pod: Json) -> Gang | None:
    """Return the gang of a pod; the pods of every Job here are one."""
    labels = pod["metadata"].get("labels", {})
    name = labels.get(GANG_KEY) or labels.get(JOB_NAME)
    return (pod["metadata"]["namespace"], name) if name else None


def overbooked(record: Changes) -> list[str]:
    """Return each moment at which the pods on a node requested more than the node has."""
    allocatable: dict[str, Amounts] = {}
    for change in record.changes["nodes"]:
        name = change.document["metadata"]["name"]
        allocatable[name] = independent_requests.amounts(change.document["status"]["allocatable"])
    used: defaultdict[str, Amounts] = defaultdict(Counter)
    counted: dict[str, Json] = {}
    found = []
    for change in record.changes["pods"]:
        pod = change.document
        before = counted.pop(pod["metadata"]["uid"], None)
        if before is not None:
            used[before["spec"]["nodeName"]].subtract(requests(before))
        node = pod["spec"].get("nodeName")
        if not node or change.gone or finished(pod):
            continue
        counted[pod["metadata"]["uid"]] = pod
        used[node].update(requests(pod))
        over = [what for what, much in used[node].items() if much > allocatable.get(node, used[node])[what]]
        if over and before is None:
            found.append(f"{node} has too little {', '.join(over)} since {pod['metadata']['name']}")
    return found


@dataclass
class Asked:
    """The requests of the scheduler in a part of the audit log, as (moment, status) by what they were about."""

    by_object: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    @classmethod
    def since(cls, plane: ControlPlane, begin: int) -> "Asked":
        """Read the complete lines from this byte on."""
        found = cls()
        with plane.audit_log.open("rb") as log:
            skip_to(log, begin)
            for line in log:
                if line.endswith(b"\n"):
                    found.take_in(json.loads(line))
        return found

    def deletions(self) -> list[str]:
        """Return the pods that the scheduler deleted without the Eviction API."""
        return [about for about in self.by_object if about.startswith("delete pods ")]

    def untold(self, lines: Iterable[Line]) -> list[str]:
        """Return the pods that the scheduler removed or wanted to remove without a line of its log."""
        told = {f"{line['namespace']}/{line['pod']}" for line in lines}
        asked = (about for about in self.by_object if about.startswith(REMOVALS))
        return [about for about in asked if about.rpartition(" ")[2] not in told]

    def of_waiting(self, record: Changes, wall_offset_seconds: float) -> Iterator[str]:
        """Yield each pod that the scheduler removed, or wanted to remove, while it was on no node."""
        bound: dict[str, float] = {}
        for change in record.changes["pods"]:
            if change.document["spec"].get("nodeName"):
                bound.setdefault(change.document["metadata"]["uid"], change.at)
        for about, asked in self.by_object.items():
            namespace, _, name = about.rpartition(" ")[2].partition("/")
            for moment, _ in asked if about.startswith(REMOVALS) else ():
                at = moment - wall_offset_seconds
                pod = record.at("pods", at).get((namespace, name))
                if pod is not None and bound.get(pod["metadata"]["uid"], at + MINUTE) > at + LATE_SECONDS:
                    yield about

    def storms(self) -> Iterator[str]:
        """Yield each object with too many requests in a second, or too many refused requests in a minute."""
        for about, asked in self.by_object.items():
            for what, seconds, most, times in (
                ("requests", 1.0, WRITES_PER_SECOND_MAX, [at for at, _ in asked]),
                ("refused requests", MINUTE, REFUSED_PER_MINUTE_MAX, [at for at, code in asked if code in REFUSALS]),
            ):
                if (count := most_within(times, seconds)) > most:
                    yield f"{about}: {count} {what} within {seconds:.0f} s"

    def refused(self) -> int:
        return sum(code in REFUSALS for asked in self.by_object.values() for _, code in asked)

    def take_in(self, noted: Json) -> None:
        ref, verb = noted.get("objectRef", {}), noted["verb"]
        if noted["user"].get("username") != SCHEDULER or verb in ("get", "list", "watch") or not ref.get("name"):
            return
        if "dryRun=All" in noted["requestURI"]:
            return
        kind = "/".join(part for part in (ref["resource"], ref.get("subresource")) if part)
        about = f"{verb} {kind} {ref.get('namespace', '')}/{ref['name']}"
        at = datetime.fromisoformat(noted["requestReceivedTimestamp"]).timestamp()
        self.by_object.setdefault(about, []).append((at, noted.get("responseStatus", {}).get("code", 0)))


def told_statuses(record: Changes, about: str) -> Iterator[str]:
    """Yield what each change of a pod told; `about` ends with its namespace and name."""
    for change in record.changes["pods"]:
        pod = change.document
        if about.split(":", maxsplit=1)[0].endswith(f" {pod['metadata']['namespace']}/{pod['metadata']['name']}"):
            status = pod["status"]
            told = status.get("nominatedNodeName", ""), condition(pod, "PodScheduled").get("message", "")
            yield f"{change.at:.2f} on {pod['spec'].get('nodeName', '')!r}, nominated for {told[0]!r}: {told[1]}"


def most_within(times: Iterable[float], seconds: float) -> int:
    """Return the largest number of these moments within so many seconds."""
    ordered = sorted(times)
    first = most = 0
    for last, at in enumerate(ordered):
        while ordered[first] <= at - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def eviction_storms(lines: Iterable[Line]) -> list[str]:
    """Return each pod for which too many decisions within a minute evicted others."""
    rounds: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for line in lines:
        if "beneficiary" in line:
            rounds[f"{line['beneficiary']} {line['beneficiary_uid']}"].setdefault(line["decision"], moment(line))
    counts = {name: most_within(decisions.values(), MINUTE) for name, decisions in rounds.items()}
    return [
        f"{count} evictions in a minute for {name}" for name, count in counts.items() if count > ROUNDS_PER_MINUTE_MAX
    ]


class GangsInPart:
    """Follows how many pods of each gang are on nodes over several records."""

    def __init__(self) -> None:
        self._lost: set[Gang] = set()

    def faults(self, record: Changes, until: float, excused: Iterable[float]) -> list[str]:
        """Return each gang that was on nodes in part for too long although it had lost no pod.

        `excused` are the moments after which a gang in part counts as started: the scheduler was killed.
        """
        on: defaultdict[Gang, dict[str, None]] = defaultdict(dict)
        least: dict[Gang, int] = {}
        since: dict[Gang, float] = {}
        found = []
        kills = list(excused)
        for change in record.changes["pods"]:
            pod, uid = change.document, change.document["metadata"]["uid"]
            gang = gang_of(pod)
            minimum = pod["metadata"].get("labels", {}).get(GANG_MIN_KEY)
            if gang is None or minimum is None:  # a Job requires fewer when some have finished
                continue
            least[gang] = int(minimum)
            runs = bool(pod["spec"].get("nodeName")) and not change.gone and not finished(pod)
            if runs:
                on[gang][uid] = None
            elif uid in on[gang]:
                del on[gang][uid]
                self._lost.add(gang)
            in_part = 0 < len(on[gang]) < least[gang] and gang not in self._lost
            if in_part:
                since.setdefault(gang, change.at)
            elif gang in since:
                found += self._late(gang, since.pop(gang), change.at, kills, record)
        for gang, begin in since.items():
            found += self._late(gang, begin, until, kills, record)
            if any(begin < kill for kill in kills):
                self._lost.add(gang)
        return found

    @staticmethod
    def _late(gang: Gang, begin: float, end: float, kills: list[float], record: Changes) -> list[str]:
        """Return that the gang was late, unless it counts as started or no pod of it could be evicted."""
        switched_off = any(
            pool["spec"].get("disablePreemption")
            for at in (begin, (begin + end) / 2, end)
            for pool in record.at("pools", at).values()
        )
        if end - begin < IN_PART_SECONDS or switched_off or any(begin < kill < end for kill in kills):
            return []
        return [f"{gang[0]}/{gang[1]} was on nodes in part for {end - begin:.0f} s"]


def unexcused(late: Iterable[str], refusals: Iterable[Refusal]) -> list[str]:
    """Return the gangs in part of namespaces in which nothing was refused."""
    refused = {one.namespace for one in refusals if one.what == "evictions"}
    return [one for one in late if one.split("/")[0] not in refused]


def at_rest(record: Changes, namespaces: Iterable[str], *, evicts: bool) -> list[str]:
    """Return what is wrong with waiting pods once nothing changes any more."""
    world = World(Pods(record.now("pods")), *(record.now(plural) for plural in ("nodes", "pools", "namespaces")))
    mine = [pod for pod in world.pods.values() if pod["metadata"]["namespace"] in set(namespaces) and not finished(pod)]
    waiting = [pod for pod in mine if not pod["spec"].get("nodeName")]
    on = Counter(gang_of(pod) for pod in mine if pod["spec"].get("nodeName"))
    there = Counter(gang_of(pod) for pod in mine)
    found = []
    for pod in waiting:
        name, home = pod["metadata"]["name"], world.home(pod)
        if condition(pod, "PodScheduled").get("reason") != "Unschedulable":
            gated = gang_of(pod) is not None and there[gang_of(pod)] < _least(pod, there[gang_of(pod)])
            if not gated:
                found.append(f"{name} waits without a reason")
        if pod["status"].get("nominatedNodeName") and not evicts:
            found.append(f"{name} has the nominated node {pod['status']['nominatedNodeName']}")
        alone = gang_of(pod) is None or on[gang_of(pod)] >= _least(pod, there[gang_of(pod)])
        if alone and (room := world.room_for(pod, home)):
            found.append(f"{name} waits, {home} has room on {', '.join(room)}")
        elif alone and not evicts and (room := reclaimable(world, pod)):
            found.append(f"{name} waits, {home} can take back room on {', '.join(room)}")
    return [*found, *gangs_that_fit(world, waiting, on)]


def reclaimable(world: World, pod: Json) -> list[str]:
    """Return the nodes of a pod's home pool on which it fits without the borrowers."""
    home = world.home(pod)
    if world.spec(home).get("disablePreemption"):
        return []
    found = []
    for (_, name), node in world.nodes.items():
        if world.pool_of(node) != home or not runs_there(pod, node):
            continue
        there = world.pods.bound.get(name, ())
        loans = {one["metadata"]["uid"] for one in there if world.home(one) != home and gang_of(one) is None}
        left = world.free(node, ("", ""), loans)
        for other in world.pods.awaited.get(name, ()):
            left.subtract(requests(other))
        if loans and not lacks(pod, left):
            found.append(name)
    return found


def gangs_that_fit(world: World, waiting: Iterable[Json], on: Mapping[Gang | None, int]) -> list[str]:
    """Return each waiting gang of equal pods for which its home pool has room."""
    gangs: defaultdict[Gang, list[Json]] = defaultdict(list)
    for pod in waiting:
        gang = gang_of(pod)
        if gang is not None and not on.get(gang) and GANG_MIN_KEY in pod["metadata"].get("labels", {}):
            gangs[gang].append(pod)
    found = []
    for gang, pods in gangs.items():
        least = int(pods[0]["metadata"]["labels"][GANG_MIN_KEY])
        alike = all(requests(pod) == requests(pods[0]) for pod in pods)
        if len(pods) < least or not alike:
            continue
        room = 0
        for name in world.room_for(pods[0], world.home(pods[0])):
            left = world.free(world.nodes["", name], ("", ""))
            for other in world.pods.awaited.get(name, ()):
                left.subtract(requests(other))
            room += min(left[what] // much for what, much in requests(pods[0]).items() if much)
        if room >= least:
            found.append(f"the gang {gang[1]} waits, {least} of its pods fit at home")
    return found


def _least(pod: Json, otherwise: int) -> int:
    """Return how many pods of the gang start together; labels say it, a Job does not."""
    return int(pod["metadata"].get("labels", {}).get(GANG_MIN_KEY) or otherwise)


def _on_nodes(pods: Mapping[tuple[str, str], Json], gang: Gang) -> int:
    return sum(
        bool(pod["spec"].get("nodeName")) and not finished(pod) and gang_of(pod) == gang for pod in pods.values()
    )
