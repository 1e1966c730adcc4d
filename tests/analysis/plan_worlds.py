"""Small random clusters at rest, and random files to apply to them, for comparing a plan with what then happens."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Final

import msgspec

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.analysis.plan import Plan, UnitVerdict, plan
from aischeduler.cli.documents import Document
from aischeduler.cli.plan_documents import Variant, change_of, plan_input
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.kube.decode.meta_types import Page
from aischeduler.kube.watch.cluster_lister import resources
from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.events import Event
from aischeduler.model.pod import Pod
from tests.harness import NAME, PATHS, Harness, Json
from tests.objects import job_object, node_object, pdb_object, pod_object, pool_object, priority_class_object

POOLS: Final = ("a", "b", "c")
CLASSES: Final = {"high": 10, "low": 5}
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REST_SECONDS: Final = 100.0
"""How long a cluster comes to rest; longer than every backoff and pause of the scheduler but the net."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit: the nodes of its pods, the evicted pods, and the lenders, each sorted."""

    nodes: tuple[str, ...]
    evicts: tuple[str, ...]
    lenders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A file in a cluster: what its plan said of each object, by name, and what then happened."""

    name: str
    planned: dict[str, Outcome]
    happened: dict[str, Outcome]
    verdicts: tuple[UnitVerdict, ...]

    @property
    def differs(self) -> bool:
        """Whether something else happened than planned.

        Where a pod of the file is evicted for another one, objects are not told apart: of pods that are equally
        important the uid decides, and the API server draws it.
        """
        both = (self.planned, self.happened)
        if any(victim in one for one in both for outcome in one.values() for victim in outcome.evicts):
            return _together(self.planned) != _together(self.happened)
        return self.planned != self.happened


def _together(outcomes: dict[str, Outcome]) -> Outcome:
    """Return the outcomes of all objects as one, in which a pod of the file has no name."""
    evicts = [victim for one in outcomes.values() for victim in one.evicts]
    return Outcome(
        tuple(sorted(node for one in outcomes.values() for node in one.nodes)),
        tuple(sorted("new" if victim in outcomes else victim for victim in evicts)),
        tuple(sorted(lender for one in outcomes.values() for lender in one.lenders)),
    )


def snapshot_of(harness: Harness) -> ClusterSnapshot:
    """Return the virtual cluster as it is now."""
    events: list[Event] = []
    for resource in resources():
        query = f"?fieldSelector={resource.field_selector}" if resource.field_selector else ""
        body = harness.cluster.request("GET", f"{resource.path}{query}").body
        page = msgspec.json.decode(body, type=Page[msgspec.Raw])
        events += [event for item in page.items or () for event in resource.read(item)]
    classes = tuple(PriorityClass(name, value) for name, value in sorted(CLASSES.items()))
    return ClusterSnapshot(int(harness.cluster.now), tuple(events), classes)


def a_cluster(chance: Random, seed: int, profile: Profile | None = None) -> Harness:
    """Return a cluster at rest: pools with random rules, nodes, pods that run and pods that wait."""
    harness = Harness(seed=seed, often=False, profile=profile)
    harness.add(*(priority_class_object(name, value=value) for name, value in CLASSES.items()))
    pools = POOLS[: chance.randint(1, 3)]
    harness.add(*(pool_object(name, labels={"pool": name}, **_rules(chance)) for name in pools))
    for number in range(chance.randint(2, 6)):
        label = chance.choice([*pools, *pools, "none"])
        cpu, gpu = str(chance.randint(2, 4)), chance.choice([0, 0, 1, 2])
        harness.add(node_object(f"n{number}", cpu=cpu, gpu=gpu, pods=10, labels={"pool": label}))
    if chance.random() < 0.3:
        budget = pdb_object("x", namespace="default", min_available=chance.randint(0, 3), labels={"app": "x"})
        harness.cluster.request("POST", BUDGETS, budget)
    for number in range(chance.randint(0, 12)):
        harness.add(a_pod(chance, f"old{number}"))
        if chance.random() < 0.4:
            harness.run(chance.choice([0.2, 2.0]))
    harness.run(REST_SECONDS)
    return harness


def _rules(chance: Random) -> Json:
    rules: Json = {}
    for name in ("disablePreemption", "disableBorrowing", "disableSharing"):
        if chance.random() < 0.15:
            rules[name] = True
    if chance.random() < 0.2:
        rules["lendingLimit"] = {"cpu": str(chance.randint(1, 3))}
    if chance.random() < 0.2:
        rules["borrowingLimit"] = {"cpu": str(chance.randint(1, 3))}
    if chance.random() < 0.3:
        rules["makeRoom"] = "BorrowThenPreempt"
    if chance.random() < 0.2:
        rules["placement"] = chance.choice(["Spread", "Pack", "Fragmentation"])
    return rules


def a_pod(chance: Random, name: str) -> Json:
    return pod_object(name, labels={"app": chance.choice(["x", "y"])}, **_wishes(chance))


def _wishes(chance: Random) -> Json:
    return {
        "cpu": chance.choice(["500m", "1", "1", "2", "3"]),
        "gpu": chance.choice([0, 0, 0, 1]),
        "pool": chance.choice([*POOLS, *POOLS, "", "nowhere"]),
        "priority_class": chance.choice(["", "", "high", "low"]),
    }


def a_file(chance: Random, mark: str) -> list[Json]:
    """Return one to four objects: plain pods and Jobs, with the mark in their names."""
    return [_an_object(chance, f"{mark}{number}") for number in range(chance.randint(1, 4))]


def some_leave(chance: Random, harness: Harness) -> None:
    """Delete a third of the pods and all Jobs, and let the cluster come to rest."""
    for job in harness.all("Job"):
        harness.delete("Job", job["metadata"]["name"])
    for pod in harness.all("Pod"):
        if chance.random() < 0.3:
            harness.delete("Pod", pod["metadata"]["name"])
    harness.run(REST_SECONDS)


def _an_object(chance: Random, name: str) -> Json:
    if chance.random() < 0.6:
        return a_pod(chance, f"pod-{name}")
    wishes = _wishes(chance)
    priority_class = wishes.pop("priority_class")
    count = chance.randint(1, 4)
    job = job_object(f"job-{name}", parallelism=count, completions=chance.randint(1, 5), **wishes)
    if priority_class:
        job["spec"]["template"]["spec"]["priorityClassName"] = priority_class
    return job


def an_edit(chance: Random, harness: Harness) -> Json:
    """Return a Pool of the cluster with other rules, sometimes with the nodes of another label too."""
    names = [pool["metadata"]["name"] for pool in harness.all("Pool") if pool["metadata"]["name"] != "default"]
    name = chance.choice(names)
    labels = chance.choice([name, name, "none"])
    policy = chance.choice([{}, {"reclaimPolicy": "Evict"}])
    return pool_object(name, labels={"pool": labels}, **_rules(chance), **policy)


def edit(harness: Harness, pool: Json) -> tuple[list[tuple[str, str]], list[str]]:
    """Replace the spec of a Pool, let the cluster come to rest, and return what happened."""
    before, path = len(harness.actions), f"{PATHS['Pool']}/{pool['metadata']['name']}"
    now = harness.get("Pool", pool["metadata"]["name"])
    harness._ask("PUT", path, now | {"spec": pool["spec"]})
    harness.run(REST_SECONDS)
    return starts_and_victims(harness.actions[before:])


def drain(harness: Harness, node: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Delete a node with its pods and create the pods again, as controllers would; return what happened at rest."""
    before = len(harness.actions)
    pods = [pod for pod in harness.all("Pod") if pod["spec"].get("nodeName") == node]
    harness.delete("Node", node)
    for pod in pods:
        harness.delete("Pod", pod["metadata"]["name"], gracePeriodSeconds=0)
    for pod in pods:
        kept = {name: pod["metadata"][name] for name in ("name", "labels", "annotations") if name in pod["metadata"]}
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        harness.add({"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec})
    harness.run(REST_SECONDS)
    return starts_and_victims(harness.actions[before:])


def starts_and_victims(actions: Iterable[Action]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return which pods started where and were not evicted again, and the victims."""
    found = list(actions)
    victims = {one.victim.uid: one.victim.name for one in found if isinstance(one, Evict)}
    binds = [(one.pod.name, one.node) for one in found if isinstance(one, Bind) and one.pod.uid not in victims]
    return sorted(binds), sorted(victims.values())


def planned(
    snapshot: ClusterSnapshot, objects: list[Json], without: tuple[str, ...] = (), profile: Profile | None = None
) -> Plan:
    """Return the plan of these objects."""
    documents = [Document("f.yaml", str(number), body) for number, body in enumerate(objects, 1)]
    change = change_of(plan_input(documents), snapshot, Variant(), without)
    return plan(ClusterCopy(profile or default_profile(NAME), snapshot), change)


def outcomes(made: Plan) -> dict[str, Outcome]:
    """Return what a plan says of each unit, by name."""
    units = {f"default/{pod.name}": one.unit.name for one in made.units for pod in one.unit.pods}
    return {
        one.unit.name: Outcome(
            tuple(sorted(one.nodes.values())),
            tuple(sorted(units.get(victim, victim) for victim in one.evicts)),
            tuple(sorted(one.lenders.values())),
        )
        for one in made.units
    }


def happens(harness: Harness, objects: list[Json]) -> dict[str, Outcome]:
    """Create the objects, let the cluster come to rest, and return what became of each of them, by name.

    What controllers replace, and what is evicted for replacements, is left out: a plan does not know it.
    """
    before, now = len(harness.actions), int(harness.cluster.now)
    harness.add(*objects)
    harness.run(REST_SECONDS)
    actions = harness.actions[before:]
    units = [body["metadata"]["name"] for body in objects]
    evictions = [
        one
        for one in actions
        if isinstance(one, Evict) and one.beneficiary is not None and one.beneficiary.created_seconds == now
    ]
    evicted = {one.victim.uid for one in evictions}
    binds = [
        one
        for one in actions
        if isinstance(one, Bind) and one.pod.created_seconds == now and one.pod.uid not in evicted
    ]
    return {
        name: Outcome(
            tuple(sorted(one.node for one in binds if _unit_of(one.pod, units) == name)),
            tuple(
                sorted(
                    _unit_of(one.victim, units)
                    for one in evictions
                    if one.beneficiary is not None and _unit_of(one.beneficiary, units) == name
                )
            ),
            tuple(sorted(one.pool for one in binds if one.borrowed and _unit_of(one.pod, units) == name)),
        )
        for name in units
    }


def _unit_of(pod: Pod, units: list[str]) -> str:
    """Return the object that brought a pod, whose name is that of a Job and a random part; else namespace and name."""
    found = next((name for name in units if pod.name == name or pod.name.rpartition("-")[0] == name), "")
    return found or f"default/{pod.name}"
