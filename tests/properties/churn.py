"""Objects of all kinds that come, change and go, each with names, labels and requests of its own, as in production.

Some objects stay for good, so that what is kept for them is kept all the time.
"""

from collections.abc import Callable
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Any, Final

from msgspec.structs import astuple

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, BindVolumes, CreatePool, Evict, Nominate, ReadPod, Refresh
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    Event,
    EvictRefusal,
    EvictRefused,
    Gone,
    Refreshed,
    RefreshFailed,
    Seen,
    VolumesRefused,
    VolumesWritten,
    gone,
)
from aischeduler.model.gang import Gang, GangSource
from aischeduler.model.images import NodeImage, image_id
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import label_selector
from aischeduler.model.storage_objects import CsiDriver, CsiNode, StorageCapacity, StorageClass, VolumeAttachment
from aischeduler.model.volumes import ClaimRef, Volume, VolumeClaim, VolumeClaimUse
from tests.affinity_terms import term
from tests.build import SpecFields, a_node, a_pod, a_pool, a_taint, replace, spread, tolerates
from tests.gangs import a_gang, member

LIVE_MAX: Final = {"pod": 24, "node": 6, "pool": 3}
"""The most objects of a kind that come and go, at one time; of another kind four."""
DECIDES: Final = 0.15
"""How often decisions follow an event."""
PASSES: Final = [0.0, 0.0, 0.0, 0.1, 0.1, 1.0, 1.0, 1.0, 12.0, 70.0]
"""The seconds that pass before that."""
ROUNDS_MAX: Final = 20
SLICE: Final = 8
REST_SECONDS: Final = 400.0
RESTS: Final = 12


class Churn:
    """One engine, the objects that it knows, and its clock.

    `live` has the objects that come and go: kind -> by name.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.scheduler = Scheduler(default_profile(), "run")
        self.now = 1_800_000_000.0
        self.events = 0
        self.live: dict[str, dict[str, Any]] = {}
        self._made = 0
        self.stay: dict[str, Pod] = {}
        """The pods that stay, by uid."""
        self.base: list[Event] = []
        """The events of the other objects that stay."""
        self._begin()

    def play(self, events: int) -> None:
        """Let this many events happen, and decide between them."""
        end = self.events + events
        while self.events < end:
            kind = self.chance.choice([*["pod"] * 12, *["node"] * 3, *KINDS])
            there = self.live.setdefault(kind, {})
            if there and (len(there) >= LIVE_MAX.get(kind, 4) or self.chance.random() < 0.3):
                name = self.chance.choice(list(there))
                if self.chance.random() < 0.5:
                    self._change(kind, name)
                else:
                    self._end(kind, name)
            else:
                self._come(kind)
            if self.chance.random() < DECIDES:
                self.now += self.chance.choice(PASSES)
                self._decide()

    def rest(self) -> None:
        """Remove everything that comes and goes, and let time pass until nothing is left to do."""
        for kind in ("pod", *KINDS, "node"):
            for name in list(self.live.get(kind, ())):
                self._end(kind, name)
        self._tell(*self.base)  # the status of the budget counts all evictions
        for _ in range(RESTS):
            self.now += REST_SECONDS
            self._decide(100 * ROUNDS_MAX)
        assert not any(self.live.values())

    def _begin(self) -> None:
        """Let objects come that stay: terms, constraints, a gang, a budget, a Service and a pod that waits."""
        self.base += (Seen(Namespace(name, {"team": "yes"})) for name in ("default", "team"))
        self.base += (Seen(a_pool(name, labels={"pool": name})) for name in ("a", "b"))
        self.base.append(Seen(a_pool("default")))
        for number in range(6):
            labels = {"zone": "xyz"[number % 3], "pool": "ab"[number % 2], "kubernetes.io/hostname": f"stay-{number}"}
            self.base.append(Seen(a_node(f"stay-{number}", cpu="16", memory="64Gi", gpu=4, labels=labels)))
        fields: SpecFields = {
            "pod_affinity": pod_affinity(
                anti_required=(term("zone", "app=z"),), preferred=((5, term("zone", "app=x")),)
            ),
            "topology_spread": (spread("zone", app="x", skew=9),),
        }
        every_x = label_selector("selector", {"app": "x"}, ())
        self.base.append(Seen(StorageClass("local", waits=True)))
        self.base.append(Seen(DisruptionBudget("default", "stay", "uid", every_x, 9)))
        self.base.append(Seen(PodSet("Service", "default", "stay", every_x)))
        self.base.append(Seen(a_gang("stay", 2)))
        for number in range(4):
            pod = a_pod(f"stay-{number}", labels={"app": "x"}, node=f"stay-{number}", cpu="1", priority=9, **fields)
            self.stay[pod.uid] = member(pod, "stay") if number < 2 else pod
        self.stay["uid-waits"] = a_pod("waits", cpu="99", labels={"app": "y"}, pool="a", **fields)
        self._tell(*self.base, *map(Seen, self.stay.values()))
        self._decide()

    # What happens.

    def _come(self, kind: str) -> None:
        self._made += 1
        name = f"{kind}-{self._made}"
        one = MAKERS[kind](self, name)
        self.live[kind][name] = one
        self._tell(seen(one))

    def _change(self, kind: str, name: str) -> None:
        old, self._made = self.live[kind][name], self._made + 1
        new = MAKERS[kind](self, name)
        if isinstance(old, Pod):
            new = replace(old, labels={**old.labels, f"change-{self._made}": "x"}, gates=(), pool=new.pool)
        if isinstance(old, Node) and self.chance.random() < 0.5:
            new = replace(old, labels={**old.labels, "time": str(self._made)})
        if ended(old) != ended(new):
            self._tell(ended(old))
        self.live[kind][name] = new
        self._tell(seen(new))

    def _end(self, kind: str, name: str) -> None:
        one = self.live[kind].pop(name)
        if isinstance(one, Pod) and one.node_name and self.chance.random() < 0.5:
            self._tell(Seen(replace(one, terminating=True, grace_seconds=30)))
        finished = isinstance(one, Pod) and self.chance.random() < 0.3
        self._tell(Seen(replace(one, phase="Succeeded")) if finished else ended(one))

    def _tell(self, *events: Event) -> None:
        for event in events:
            self.events += 1
            self.scheduler.observe(event, self.now)

    # What the engine asks for.

    def _decide(self, rounds: int = ROUNDS_MAX) -> None:
        for _ in range(rounds):
            pools = self.scheduler.ready(self.now)
            if not pools:
                return
            for pool in pools:
                for action in self.scheduler.decide(pool, self.now, SLICE):
                    self._take(action)

    def _take(self, action: Action) -> None:
        lucky = self.chance.random() < 0.8
        match action:
            case Bind(pod, node):
                self._bind(pod.uid, node, lucky=lucky)
            case Evict(victim) if lucky and victim.name in self.live["pod"] and self.known(victim.uid) is not None:
                self._end("pod", victim.name)
            case Evict(victim):
                self._tell(EvictRefused(victim.uid, self.chance.choice([*EvictRefusal]), "no"))
            case ReadPod(pod):
                known = self.known(pod.uid)
                self._tell(gone(Pod, pod.uid) if known is None else Seen(known))
            case Refresh(pool):
                failed = () if lucky else (RefreshFailed(pool, "away"),)
                self._tell(*failed, *() if failed and pool else (Refreshed(pool),))
            case CreatePool(name):
                self._tell(Seen(a_pool(name)))
            case Nominate(pod, node):
                known = self.known(pod.uid)
                if known is not None:
                    self._put(replace(known, nominated_node=node))
            case BindVolumes(pod, _, decision) if not action.withdraw:
                versions = tuple("1" for _ in action.writes)
                self._tell(
                    VolumesWritten(pod.uid, decision, versions) if lucky else VolumesRefused(pod.uid, decision, "no")
                )
            case _:
                pass

    def _bind(self, uid: str, node: str, *, lucky: bool) -> None:
        pod = self.known(uid)
        if pod is None:
            self._tell(BindRefused(uid, node, BindRefusal.GONE, "no"))
        elif lucky:
            self._put(replace(pod, node_name=node, started_seconds=int(self.now)))
        else:
            refusals = [one for one in BindRefusal if one is not BindRefusal.GONE]
            self._tell(BindRefused(uid, node, self.chance.choice(refusals), "no"))

    def _put(self, pod: Pod) -> None:
        kept = self.stay if pod.uid in self.stay else self.live["pod"]
        kept[pod.uid if kept is self.stay else pod.name] = pod
        self._tell(Seen(pod))

    def known(self, uid: str) -> Pod | None:
        """Return the pod of this uid; None where there is none any more."""
        return next((one for one in self.live.get("pod", {}).values() if one.uid == uid), self.stay.get(uid))

    # What objects are like.

    def some(self, kind: str) -> str:
        """Return the name of an object that comes and goes; now and then of none."""
        there = self.live.get(kind)
        return self.chance.choice(list(there)) if there and self.chance.random() < 0.9 else f"no-{self._made}"

    def rarely(self, share: float = 0.1) -> bool:
        """Return True for a share of objects."""
        return self.chance.random() < share


def _a_pod(churn: Churn, name: str) -> Pod:
    chance, of = churn.chance, churn.rarely
    namespace = churn.some("namespace") if of() else chance.choice(["default", "team"])
    labels = {"app": chance.choice("xyz"), "job": name}
    fields: SpecFields = {}
    if of(0.2):
        key = chance.choice(["zone", "kubernetes.io/hostname", f"key-{name}"])
        pods = chance.choice(["app=x", "app!=x", f"job={name}", f"job-{name}"])
        one = term(key, pods, namespace, among="team=yes" if of() else None)
        fields["pod_affinity"] = chance.choice(
            [pod_affinity(required=(one,)), pod_affinity(anti_required=(one,)), pod_affinity(preferred=((7, one),))]
        )
    if of():
        fields["topology_spread"] = (spread(chance.choice(["zone", f"key-{name}"]), app=chance.choice(["x", name])),)
    if of():
        fields["node_selector"] = {chance.choice(["zone", f"key-{name}"]): chance.choice(["x", name])}
    if of():
        fields["tolerations"] = (tolerates(f"taint-{name}"),)
    if of():
        fields["host_ports"] = (HostPort("TCP", chance.randint(1, 60_000)),)
    if of():
        fields["gpu_types"] = (f"CARD-{name}",)
    claims = (VolumeClaimUse("spec.volumes[0]", churn.some("claim")),) if of() else ()
    others = of(0.2)
    pod = a_pod(
        name,
        namespace=namespace,
        cpu=f"{chance.randint(1, 9_000)}m",
        gpu=chance.choice([0, 0, 1]),
        extended={f"example.com/{name}": "1"} if of() else {},
        pool=chance.choice(["a", "a", "b", "", churn.some("pool"), f"unknown-{name}" if of() else "a"]),
        priority=chance.choice([0, 0, 5, 10, chance.randint(0, 99)]),
        created=int(churn.now),
        labels=labels,
        gates=("wait",) if of() else (),
        node=f"stay-{chance.randint(0, 5)}" if others and of(0.8) else "",
        scheduler_name="other" if others else "ai-scheduler",
        controller=f"ReplicaSet/{name}" if of() else "",
        claims=claims,
        **fields,
    )
    if of(0.2):
        gang = f"gang-of-{name}" if of() else churn.some("gang")
        pod = member(pod, a_gang(gang, 2, GangSource.LABELS) if of(0.5) else gang)
    return pod


def _a_node(churn: Churn, name: str) -> Node:
    chance, of = churn.chance, churn.rarely
    labels = {
        "kubernetes.io/hostname": name,
        "pool": chance.choice("abc"),
        f"key-{name}": name,
        "zone": chance.choice(["x", name]),
    }
    if of():
        labels["nvidia.com/gpu.product"] = f"CARD-{name}"
    node = a_node(
        name,
        cpu=str(chance.randint(1, 16)),
        gpu=chance.choice([0, 2]),
        labels=labels,
        taints=(a_taint(f"taint-{name}"),) if of(0.2) else (),
        extended={f"example.com/{name}": "2"} if of() else {},
        unschedulable=of(),
        invalid=f"{name} is wrong" if of() else "",
    )
    return replace(
        node, images=(NodeImage((image_id(f"image-{name}"),), 10**9),), features=(f"feature-{name}",) if of() else ()
    )


def _a_pool(churn: Churn, name: str) -> Pool:
    chance, of = churn.chance, churn.rarely
    return a_pool(
        name,
        labels={"pool": chance.choice(["b", "c", "d"])},
        generation=chance.randint(1, 10**6),
        disable_sharing=of(),
        disable_preemption=of(),
        rare_types=(f"CARD-{name}",) if of() else (),
        allowed_namespaces={"team": "yes"} if of() else None,
        borrowing_limit={"cpu": 9000, f"example.com/{name}": 1} if of() else None,
        invalid=f"{name} is wrong" if of() else "",
    )


def _a_gang(churn: Churn, name: str) -> Gang:
    return a_gang(name, churn.chance.randint(1, 3), timeout=churn.chance.choice([0, 60]), created=int(churn.now))


def _a_budget(churn: Churn, name: str) -> DisruptionBudget:
    selector = label_selector("spec.selector", {"job": churn.some("pod")} if churn.rarely(0.5) else {"app": "x"}, ())
    return DisruptionBudget("default", name, f"uid-{name}", selector, churn.chance.randint(0, 3))


def _a_pod_set(churn: Churn, name: str) -> PodSet:
    kind = churn.chance.choice(["Service", "ReplicaSet"])
    return PodSet(
        "Service" if kind else "", "default", name, label_selector("s", {"app": "x", "job": churn.some("pod")}, ())
    )


def _a_claim(churn: Churn, name: str) -> VolumeClaim:
    bound = churn.rarely(0.4)
    return VolumeClaim(
        churn.chance.choice(["default", "team"]),
        name,
        volume=churn.some("volume") if bound else "",
        bound=bound,
        uid=f"uid-{name}",
        storage_class=churn.chance.choice(["local", churn.some("class"), f"class-{name}"]),
        request_bytes=churn.chance.randint(1, 10**9),
        version=str(churn.events),
    )


def _a_volume(churn: Churn, name: str) -> Volume:
    taken = churn.rarely(0.5)
    return Volume(
        name,
        storage_class=churn.chance.choice(["local", churn.some("class"), f"class-{name}"]),
        capacity_bytes=churn.chance.randint(1, 10**10),
        claim=ClaimRef("default", churn.some("claim"), "") if taken else None,
        available=not taken,
        labels={"topology.kubernetes.io/zone": name},
        version=str(churn.events),
    )


MAKERS: Final[dict[str, Callable[[Churn, str], Any]]] = {
    "pod": _a_pod,
    "node": _a_node,
    "pool": _a_pool,
    "gang": _a_gang,
    "budget": _a_budget,
    "pod set": _a_pod_set,
    "claim": _a_claim,
    "volume": _a_volume,
    "namespace": lambda churn, name: (name, {"team": "yes"} if churn.rarely(0.5) else {name: name}),
    "class": lambda churn, name: StorageClass(name, f"driver-{name}", waits=churn.rarely(0.5)),
    "csi node": lambda churn, name: CsiNode(churn.some("node"), {f"driver-{name}": churn.chance.randint(1, 3)}),
    "csi driver": lambda churn, name: CsiDriver(f"driver-{name}", tracks_capacity=churn.rarely(0.5)),
    "capacity": lambda churn, name: StorageCapacity("default", name, churn.some("class"), limit_bytes=churn.events),
    "attachment": lambda churn, name: VolumeAttachment(
        name, f"driver-{name}", churn.some("node"), churn.some("volume")
    ),
}
KINDS: Final = [kind for kind in MAKERS if kind not in ("pod", "node")]


def seen(one: Any) -> Event:
    """Return the event of an object as it is now."""
    match one:
        case Pod():
            return Seen(one)
        case Node():
            return Seen(one)
        case Pool():
            return Seen(one)
        case Gang():
            return Seen(one)
        case DisruptionBudget():
            return Seen(one)
        case PodSet():
            return Seen(one)
        case VolumeClaim():
            return Seen(one)
        case Volume():
            return Seen(one)
        case (name, labels):
            return Seen(Namespace(name, labels))
        case _:
            return Seen(one)


def ended(one: Any) -> Event:
    """Return the event of an object that is gone."""
    match one:
        case Pod():
            return gone(Pod, one.uid)
        case Node():
            return gone(Node, one.name)
        case Pool():
            return gone(Pool, one.name)
        case Gang():
            return gone(Gang, *astuple(one.key))
        case DisruptionBudget():
            return gone(DisruptionBudget, one.namespace, one.name)
        case PodSet():
            return gone(PodSet, one.kind, one.namespace, one.name)
        case VolumeClaim():
            return gone(VolumeClaim, one.namespace, one.name)
        case Volume():
            return gone(Volume, one.name)
        case (name, _):
            return gone(Namespace, name)
        case _:
            return Gone(type(one).__name__, (getattr(one, "namespace", ""), one.name))
