"""Random small clusters for the differential test: nodes, running pods, and what else the rules read.

Invariants:
- A state is a list of API documents, as a user writes them; a pod on a node has `spec.nodeName`.
- The first node tolerates no mistake of the test: it has room for pods that ask for nothing.
- Start times of running pods are distinct, so that preemption has one choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from aischeduler.model.names import SCHEDULER_NAME
from tests.e2e.peer_features import Feature
from tests.e2e.peer_volumes import add_volumes
from tests.objects import Json, present

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = "rack"
KEYS: Final = (ZONE, HOSTNAME, RACK)
FOO: Final = "example.com/foo"
NAMESPACES: Final = {"peer-blue": {"team": "blue", "tier": "front"}, "peer-green": {"team": "green"}, "peer-red": {}}
SELECTED: Final = (
    {"matchLabels": {"team": "blue"}},
    {"matchLabels": {"team": "green"}},
    {"matchLabels": {"team": "none"}},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
)
"""Selectors of namespaces, of which none matches a namespace without labels."""
APPS: Final = ("web", "db", "cache")
VERSIONS: Final = ("1", "2")
PRIORITIES: Final = {"peer-low": 10, "peer-middle": 100, "peer-high": 1_000, "peer-top": 10_000, "peer-never": 10_000}
NEVER: Final = "peer-never"
"""The class whose pods do not preempt."""
RUNTIMES: Final = {"peer-thin": ("50m", "16Mi"), "peer-thick": ("750m", "300Mi")}
"""RuntimeClass -> its overhead."""
IMAGES: Final = {"small": 20, "middle": 300, "large": 900, "huge": 3_000}
"""Image -> MiB."""
WORKER: Final = "registry.example/worker:1"
TAINTS: Final = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
    {"key": "gone", "effect": "NoExecute"},
    {"key": "slow", "effect": "PreferNoSchedule"},
    {"key": "noisy", "value": "yes", "effect": "PreferNoSchedule"},
)
PORTS: Final = (8080, 9090)
ADDRESSES: Final = ("", "127.0.0.1", "127.0.0.2")
TERMINATING_SHARE: Final = 0.3
NODES_MIN, NODES_MAX = 5, 11
RUNNING_MAX, CROWDED_MAX = 5, 9
"""The most running pods that a node may get, and the same where pods are evicted."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node, and what its running pods leave: CPU in milli, memory in MiB, `foo`, and pods."""

    document: Json
    cpu: int
    memory: int
    foo: int
    pods: int

    @property
    def name(self) -> str:
        name: str = self.document["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class State:
    """A cluster: its nodes with what is free, running pods, other objects, and what it has for the probes."""

    name: str
    machines: tuple[Machine, ...]
    running: tuple[Json, ...]
    others: tuple[Json, ...] = ()
    features: frozenset[Feature] = field(default_factory=frozenset)
    terminating: tuple[Json, ...] = ()
    """Those of the running pods that are deleted, and stay because there is no kubelet."""

    @property
    def nodes(self) -> list[Json]:
        return [one.document for one in self.machines]


def a_state(chance: Random, name: str, features: frozenset[Feature]) -> State:
    """Return a cluster which has these features of states."""
    machines, running, crowded = list[Machine](), list[Json](), Feature.PREEMPTION in features
    for number in range(chance.randint(NODES_MIN, NODES_MAX)):
        machine = _machine(chance, f"{name}-n{number:02d}", roomy=number == 0)
        for _ in range(chance.randint(2, CROWDED_MAX) if crowded else chance.randint(0, RUNNING_MAX)):
            pod = running_pod(chance, f"{name}-r{len(running):02d}", features)
            left = _beside(machine, pod)
            there = [one for one in running if one["spec"]["nodeName"] == machine.name]
            if min(left.cpu, left.memory, left.foo, left.pods - 1) >= 0 and not _share_a_port(pod, there):
                pod["spec"]["nodeName"] = machine.name
                machine = left
                running.append(pod)
        machines.append(machine)
    if crowded:
        _start(chance, running)
    others = _budgets(chance, name) if Feature.BUDGETS in features else []
    if Feature.SPREAD_SYSTEM_DEFAULT in features:
        others += [_service(f"{name}-{app}", namespace, {"app": app}) for app in APPS[:2] for namespace in NAMESPACES]
    others += add_volumes(chance, name, [one.document for one in machines], running, features)
    going = [pod for pod in running if Feature.TERMINATING in features and chance.random() < TERMINATING_SHARE]
    return State(name, tuple(machines), tuple(running), tuple(others), features, tuple(going))


def running_pod(chance: Random, name: str, features: frozenset[Feature]) -> Json:
    """Return a pod, not yet on a node."""
    container: Json = {"name": "main", "image": WORKER, "resources": {"requests": _requests(chance)}}
    if chance.random() < 0.25:
        container["ports"] = [a_port(chance)]
    if chance.random() < 0.1:
        container["resources"] = {"limits": {FOO: "1"}, "requests": container["resources"]["requests"] | {FOO: "1"}}
    spec: Json = {"schedulerName": SCHEDULER_NAME, "containers": [container], "tolerations": [{"operator": "Exists"}]}
    if Feature.PREEMPTION in features:
        spec["priorityClassName"] = chance.choice(list(PRIORITIES)[:3])
    affinity: Json = {}
    if Feature.EXISTING_ANTI_AFFINITY in features and chance.random() < 0.12:
        affinity["podAntiAffinity"] = required_terms(_term_of_running(chance))
    if Feature.EXISTING_PREFERRED in features and chance.random() < 0.4:
        kind = chance.choice(("podAffinity", "podAntiAffinity"))
        affinity[kind] = affinity.get(kind, {}) | preferred_terms((chance.randint(1, 100), _term_of_running(chance)))
        if chance.random() < 0.4:
            affinity["podAffinity"] = affinity.get("podAffinity", {}) | required_terms(_term_of_running(chance))
    spec |= present(affinity=affinity)
    pod = pod_document(name, chance.choice(list(NAMESPACES)), some_labels(chance), spec)
    if Feature.RESIZE in features and chance.random() < 0.5:
        pod["status"] = _resized(chance, container["resources"].get("requests", {}))
    return pod


def _resized(chance: Random, requests: Json) -> Json:
    """Return the status of a pod whose node has not, or not yet, given it what its spec asks."""
    of = {"cpu": chance.choice((50, 400, 1_100)), "memory": chance.choice((64, 300, 900))}
    given = {key: f"{of[key]}{requests[key].lstrip('0123456789')}" for key in requests if key in of}
    status: Json = {"name": "main", "image": WORKER, "imageID": "", "ready": True, "restartCount": 0}
    if chance.random() < 0.8:
        status["allocatedResources"] = given
    if chance.random() < 0.8:
        status["resources"] = {"requests": given if chance.random() < 0.7 else requests}
    pending = {"type": "PodResizePending", "status": "True", "reason": chance.choice(("Infeasible", "Deferred"))}
    return {"containerStatuses": [status], **present(conditions=[pending] if chance.random() < 0.5 else [])}


def pod_document(name: str, namespace: str, labels: Json, spec: Json) -> Json:
    """Return a pod."""
    metadata = {"name": name, "namespace": namespace, **present(labels=labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def some_labels(chance: Random) -> Json:
    """Return the labels of a pod."""
    labels = {"app": chance.choice(APPS), "version": chance.choice(VERSIONS)}
    return {key: value for key, value in labels.items() if chance.random() < 0.9}


def a_port(chance: Random) -> Json:
    """Return a port of a container that the node must have free."""
    number = chance.choice(PORTS)
    protocol = {"protocol": "UDP"} if chance.random() < 0.2 else {}
    return {"containerPort": number, "hostPort": number, **protocol, **present(hostIP=chance.choice(ADDRESSES))}


def a_selector(chance: Random) -> Json:
    """Return a selector of pods."""
    match chance.randrange(10):
        case 0:
            return {}
        case 1:
            return {"matchExpressions": [{"key": "app", "operator": "In", "values": chance.sample(APPS, 2)}]}
        case 2:
            return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [chance.choice(APPS)]}]}
        case 3:
            exists = {"key": "app", "operator": chance.choice(("Exists", "DoesNotExist"))}
            return {"matchExpressions": [exists]}
        case 4:
            unlike = {"key": "app", "operator": "NotIn", "values": [chance.choice(APPS)]}
            return {"matchExpressions": [unlike, {"key": "app", "operator": "Exists"}]}
        case _:
            return {"matchLabels": {"app": chance.choice(APPS)}}


def a_term(chance: Random) -> Json:
    """Return an affinity term; it means the pods of its own namespace, in half of the cases of named ones."""
    term: Json = {"labelSelector": a_selector(chance), "topologyKey": chance.choice(KEYS)}
    if chance.random() < 0.5:
        term["namespaces"] = chance.sample(list(NAMESPACES), chance.randint(1, 2))
    return term


def _term_of_running(chance: Random) -> Json:
    """Return an affinity term of a running pod, which may select any namespaces."""
    no_tier = {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}
    selector = {"namespaceSelector": chance.choice(({}, no_tier, *SELECTED))} if chance.random() < 0.3 else {}
    return a_term(chance) | selector


def required_terms(*terms: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}


def preferred_terms(*weighed: tuple[int, Json]) -> Json:
    terms = [{"weight": weight, "podAffinityTerm": term} for weight, term in weighed]
    return {"preferredDuringSchedulingIgnoredDuringExecution": terms}


def _machine(chance: Random, name: str, *, roomy: bool) -> Machine:
    cpu, memory = chance.choice((2_000, 2_000, 4_000, 8_000)), chance.choice((2, 4, 8, 16)) * 1_024
    foo, pods = chance.choice((0, 0, 2, 4)), 110 if roomy else chance.choice((110, 110, 110, 4))
    amounts = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": str(pods), "ephemeral-storage": "20Gi"}
    amounts |= present(**{FOO: str(foo) if foo else ""})
    labels = {HOSTNAME: name, "disk": chance.choice(("ssd", "hdd")), "generation": str(chance.randint(1, 4))}
    for key, values in ((ZONE, ("a", "b", "c")), (RACK, ("r1", "r2", "r3", "r4"))):
        if chance.random() < 0.88:
            labels[key] = chance.choice(values)
    taints = {one["key"]: one for one in chance.sample(TAINTS, chance.choice((0, 0, 0, 1, 1, 2)))}
    spec = present(
        taints=list(taints.values()),
        unschedulable=chance.random() < 0.08,
    )
    images = [
        {
            "names": [
                f"registry.example/{image}:{tag}" for tag in chance.choice((("1",), ("1", "latest"), ("latest",)))
            ],
            "sizeBytes": size * 2**20 + chance.randrange(2**20),
        }
        for image, size in IMAGES.items()
        if chance.random() < 0.5
    ]
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": dict(amounts), **present(images=images)},
    }
    return Machine(document, cpu, memory, foo, pods)


def _beside(machine: Machine, pod: Json) -> Machine:
    """Return the machine with this pod on it."""
    requests = pod["spec"]["containers"][0]["resources"].get("requests", {})
    return Machine(
        machine.document,
        machine.cpu - int(requests.get("cpu", "0m")[:-1]),
        machine.memory - int(requests.get("memory", "0Mi")[:-2]),
        machine.foo - int(requests.get(FOO, "0")),
        machine.pods - 1,
    )


def _share_a_port(pod: Json, others: Sequence[Json]) -> bool:
    """Return whether the pod has a port number of others: no scheduler puts pods with equal ports together."""
    taken = {port["hostPort"] for one in others for port in one["spec"]["containers"][0].get("ports", ())}
    return any(port["hostPort"] in taken for port in pod["spec"]["containers"][0].get("ports", ()))


def _requests(chance: Random) -> Json:
    """Return small requests, or none."""
    cpu, memory = chance.choice((0, 50, 250, 500, 1_000, 1_500)), chance.choice((0, 64, 256, 700, 1_200))
    return present(cpu=f"{cpu}m" if cpu else "", memory=f"{memory}Mi" if memory else "")


def _start(chance: Random, running: Sequence[Json]) -> None:
    """Give the pods distinct start times; most are ready."""
    for second, pod in zip(chance.sample(range(3_600), len(running)), running, strict=True):
        ready = [{"type": "Ready", "status": "True" if chance.random() < 0.8 else "False"}]
        started = f"2026-01-02T{3 + second // 3_600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        status = pod.setdefault("status", {})
        status["conditions"] = ready + status.get("conditions", [])
        status |= {"phase": "Running", "startTime": started}


def _budgets(chance: Random, name: str) -> list[Json]:
    """Return budgets; each pod is under one at most, because the controller counts it for one only."""
    pairs = [(namespace, app) for namespace in NAMESPACES for app in APPS]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"{name}-b{number}", "namespace": namespace},
            "spec": {"minAvailable": chance.randint(0, 4), "selector": {"matchLabels": {"app": app}}},
        }
        for number, (namespace, app) in enumerate(chance.sample(pairs, 3))
    ]


def _service(name: str, namespace: str, selector: Json) -> Json:
    spec = {"selector": selector, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
