"""Small random clusters as API documents, the engine of such a cluster, and what steps make of the documents.

Every pod on a node is bound and every other pod waits: no claim and no eviction is under way.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - a type; the generator comes from the caller
from typing import Any, Final

import msgspec

from aischeduler.analysis.remedy_steps import Step
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import Event, gone
from aischeduler.model.names import POOL_KEY, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodRecord
from tests.checked_scheduler import answers
from tests.objects import Json, node_object, pod_object, pool_object
from tests.pairs import PAIR, pair_profile

KINDS: Final = ("Namespace", "Pool", "Node", "Pod")
"""The order in which the objects are observed."""
RESOURCES: Final[dict[str, Any]] = {
    "Namespace": watched_resources.namespaces(),
    "Pool": watched_resources.pools(),
    "Node": watched_resources.nodes(),
    "Pod": watched_resources.pods(SpecCache()),
}
POOLS: Final = ("blue", "green", "red")
ROUNDS_MAX: Final = 20


def uncordon(node: Json) -> None:
    """Do what Kubernetes' node controller does once a node is uncordoned."""
    spec = node["spec"]
    spec["taints"] = [t for t in spec.get("taints", []) if t["key"] != "node.kubernetes.io/unschedulable"]


@dataclass
class Documents:
    """Objects by kind, namespace and name, and the profile of their engine.

    A document is replaced, never changed: each is read once.
    """

    objects: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    profile: Profile = field(default_factory=default_profile)
    _read: dict[int, tuple[Json, Event]] = field(default_factory=dict)
    """The identity of a document -> the document, which keeps the identity its own, and its event."""

    def put(self, *documents: Json) -> None:
        """Add objects; each gets a uid."""
        for document in documents:
            meta = document["metadata"]
            meta.setdefault("uid", f"uid-{document['kind']}-{meta['name']}")
            self.objects[document["kind"], meta.get("namespace", ""), meta["name"]] = document

    def copy(self) -> "Documents":
        """Return the same documents, of which some can then be replaced."""
        return Documents(dict(self.objects), self.profile, self._read)

    def of(self, kind: str) -> list[Json]:
        """Return the objects of a kind, in the order in which they were added."""
        return [document for key, document in self.objects.items() if key[0] == kind]

    def pod(self, name: str) -> Json:
        """Return a pod of the namespace `default`."""
        return self.objects["Pod", "default", name]

    def events(self) -> list[Event]:
        """Return the events of a list of everything."""
        return [self.event(document) for kind in KINDS for document in self.of(kind)]

    def event(self, document: Json) -> Event:
        """Return the event of a document."""
        known = self._read.get(id(document))
        if known is None:
            resource = RESOURCES[document["kind"]]
            event = resource.seen_event(resource.object_decoder.decode(msgspec.json.encode(document)))
            known = self._read[id(document)] = (document, event)
        return known[1]

    def engine(self) -> Scheduler:
        """Return an engine that has observed everything and decided nothing."""
        scheduler = Scheduler(self.profile, "run")
        for event in self.events():
            scheduler.observe(event, 0.0)
        return scheduler

    def after(self, steps: Sequence[Step]) -> "Documents":
        """Return the documents as they are once these steps were carried out."""
        changed = self.copy()
        for step in steps:
            key = (step["kind"], step["namespace"], step["name"])
            before = self.objects[key]
            if step["verb"] == "delete":
                assert step["body"] == {"preconditions": {"uid": before["metadata"]["uid"]}}
                del changed.objects[key]
                continue
            assert (step["verb"] == "recreate") == (step["kind"] == "Pod")
            document = merged(before, step["body"])
            if step["kind"] == "Node" and not document["spec"].get("unschedulable"):
                document = deepcopy(document)
                uncordon(document)
            changed.objects[key] = document
        return changed


def merged(target: Any, change: Any) -> Any:
    """Return a document after a merge patch, as RFC 7396 says."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def settled(documents: Documents) -> Scheduler:
    """Decide until nothing changes, write every decision into the documents, and return the engine.

    A pod that is bound starts at once, and an evicted pod is gone at once.
    """
    scheduler = documents.engine()
    now = 0.0
    for _ in range(ROUNDS_MAX):
        changed = False
        while pools := scheduler.ready(now):
            for pool in pools:
                actions = scheduler.decide(pool, now, 64)
                for action in actions:
                    changed |= _carry_out(documents, scheduler, action, now)
                for event in answers(actions):
                    scheduler.observe(event, now)
        if not changed:
            return scheduler
        now += 20.0
    raise AssertionError("the cluster does not settle")


def _carry_out(documents: Documents, scheduler: Scheduler, action: object, now: float) -> bool:
    match action:
        case Bind(pod, node):
            status = {"phase": "Running", "startTime": f"2026-01-01T00:00:{int(now) % 60:02}Z"}
            bound = merged(documents.pod(pod.name), {"spec": {"nodeName": node}, "status": status})
            documents.put(bound)
            scheduler.observe(documents.event(bound), now)
        case Evict(victim):
            del documents.objects["Pod", "default", victim.name]
            scheduler.observe(gone(Pod, victim.uid), now)
        case _:
            return False
    return True


def cluster_of(scheduler: Scheduler) -> Cluster:
    """Return the state of an engine."""
    return scheduler.cluster


def waiting(cluster: Cluster) -> list[PodRecord]:
    """Return the pods that wait, sorted by name."""
    return sorted((r for r in cluster.records.values() if r.queue), key=lambda record: record.pod.name)


def random_documents(chance: Random) -> Documents:
    """Return a small cluster with more pods than room."""
    documents = Documents()
    documents.put(*({"kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "x"}}},))
    for name in POOLS:
        documents.put(_pool(chance, name))
    for number in range(chance.randint(3, 9)):
        documents.put(_node(chance, f"n{number}"))
    for number in range(chance.randint(8, 26)):
        documents.put(random_pod(chance, f"p{number}", documents))
    return documents


def random_pairs(chance: Random) -> Documents:
    """Return a small cluster with more pods than room, in which some pods form pairs, or threes that start as pairs."""
    documents = random_documents(chance)
    documents.profile = pair_profile()
    pods = [pod for pod in documents.of("Pod") if pod["spec"]["schedulerName"] == SCHEDULER_NAME]
    while pods:
        first = pods[0]["metadata"].get("annotations", {})
        size = chance.choice((1, 2, 2, 2, 2, 3))
        for pod in pods[:size]:
            label = {PAIR: pods[0]["metadata"]["name"]} if size > 1 or chance.random() < 0.3 else {}
            pair = merged(pod, {"metadata": {"labels": label, "annotations": {POOL_KEY: None, **first}}})
            if chance.random() < 0.7:  # else few pairs have a remedy: a single change must make room for both
                small = pod_object("", cpu=chance.choice(("1", "2")), gpu=chance.choice((0, 1)))
                pair["spec"] = {**pair["spec"], "containers": small["spec"]["containers"]}
            documents.put(pair)
        del pods[:size]
    return documents


def _pool(chance: Random, name: str) -> Json:
    spec: dict[str, Any] = {}
    for flag, odds in (("disablePreemption", 0.4), ("disableBorrowing", 0.3), ("disableSharing", 0.4)):
        if chance.random() < odds:
            spec[flag] = True
    for limit in ("lendingLimit", "borrowingLimit"):
        if chance.random() < 0.35:
            spec[limit] = {"nvidia.com/gpu": str(chance.randint(0, 6))}
            if chance.random() < 0.3:
                spec[limit]["cpu"] = f"{chance.randint(0, 12000)}m"
    if chance.random() < 0.2:
        spec["borrowingPools"] = sorted(chance.sample([other for other in POOLS if other != name], 1))
    if chance.random() < 0.3:
        spec["makeRoom"] = "BorrowThenPreempt"
    if chance.random() < 0.08:
        spec["allowedNamespaces"] = {"matchLabels": {"team": "y"}}
    return pool_object(name, labels={"pool": name}, **spec)


def _node(chance: Random, name: str) -> Json:
    labels = {"pool": chance.choice((*POOLS, "none")), "kubernetes.io/hostname": name}
    if chance.random() < 0.5:
        labels["disk"] = chance.choice(("ssd", "hdd"))
    if chance.random() < 0.4:
        labels["zone"] = chance.choice(("a", "b"))
    taints = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if chance.random() < 0.2 else []
    cordoned = chance.random() < 0.2
    if cordoned:
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    node = node_object(
        name,
        cpu=chance.choice(("4", "8", "7500m")),
        memory=chance.choice(("16Gi", "8Gi", "12345678Ki")),
        gpu=chance.choice((0, 4, 8)),
        pods=chance.choice((3, 110)),
        labels=labels,
        taints=taints,
    )
    if cordoned:
        node["spec"]["unschedulable"] = True
    return node


def random_pod(chance: Random, name: str, documents: Documents) -> Json:
    """Return a pod for the nodes of these documents."""
    pod = pod_object(
        name,
        cpu=chance.choice(("500m", "1", "2", "3500m", "9")),
        memory=chance.choice(("1Gi", "2Gi", "5Gi", "10Gi")),
        gpu=chance.choice((0, 0, 1, 2, 4, 8)),
        pool=chance.choice((*POOLS, "")),
        node_selector=chance.choice(({}, {}, {}, {"disk": "ssd"}, {"disk": "hdd", "zone": "a"})),
        tolerations=[{"operator": "Exists", "key": "dedicated"}] if chance.random() < 0.3 else [],
    )
    pod["spec"]["priority"] = chance.choice((0, 0, 0, 10, 100))
    if chance.random() < 0.1:
        pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": chance.choice((80, 81))}]
    if chance.random() < 0.2:
        _split(chance, pod)
    if chance.random() < 0.15:  # another scheduler's pod, wherever it put it
        pod["spec"]["schedulerName"] = "default-scheduler"
        pod["metadata"].get("annotations", {}).pop(POOL_KEY, None)
        pod["spec"]["nodeName"] = chance.choice(documents.of("Node"))["metadata"]["name"]
    return pod


def _split(chance: Random, pod: Json) -> None:
    """Give the pod further containers."""
    more = deepcopy(pod["spec"]["containers"][0])
    more["name"] = "second"
    more.pop("ports", None)
    if chance.random() < 0.5:
        pod["spec"]["containers"].append(more)
    else:
        more["restartPolicy"] = "Always"
        pod["spec"]["initContainers"] = [more]
