"""Sequences of equal pods for two schedulers: clusters on which every order of good choices ends in the same counts.

Invariants:
- Nodes are equal but for their labels and the number of pods that they take, so that no score leads elsewhere.
- Which of several equal domains gets a pod is a matter of chance; how many pods the domains have at the end is not. So
  the nodes are the domains of soft constraints, which resources may outweigh in a zone of few nodes, and of affinity,
  which leaves the choice to the resources. Affinity finds one pod from the start: pods that want each other draw the
  next one to where they are, so that with two the first choice, which is a matter of chance, would decide all.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from aischeduler.model.names import SCHEDULER_NAME
from tests.e2e.peer_features import Feature
from tests.e2e.peer_states import HOSTNAME, WORKER, ZONE, Machine, State, pod_document, preferred_terms, required_terms
from tests.objects import Json

PODS: Final = 50
LABELS: Final = {"app": "web"}
SELECTOR: Final = {"matchLabels": LABELS}
NAMESPACE: Final = "peer-blue"
CPU, MEMORY, FOO = 64_000, 64 * 1_024, 0


@dataclass(frozen=True, slots=True)
class Sequence:
    """A cluster, the pods that come one after the other, and the key of the domains that are counted."""

    state: State
    pods: tuple[Json, ...]
    key: str

    def counts(self, placed: Mapping[str, str]) -> list[int]:
        """Return how many pods each domain has with those of pod -> node, sorted."""
        domains = {one.name: one.document["metadata"]["labels"].get(self.key, "") for one in self.state.machines}
        nodes = [*placed.values(), *(pod["spec"]["nodeName"] for pod in self.state.running)]
        found = Counter(domains.values())
        found.subtract(domains.values())
        found.update(domains[node] for node in nodes)
        return sorted(found.values())


def a_sequence(chance: Random, name: str, kind: Feature) -> Sequence:
    """Return a sequence of pods with this feature."""
    key = HOSTNAME if kind is Feature.SPREAD_SOFT else chance.choice((ZONE, HOSTNAME))
    running: list[Json] = []
    machines = tuple(_machine(chance, f"{name}-n{number:02d}") for number in range(chance.randint(4, 10)))
    for place, machine in enumerate(machines):
        for _ in range(place == 0 if kind is Feature.AFFINITY_REQUIRED else chance.choice((0, 0, 0, 1, 2))):
            document = _pod(f"{name}-r{len(running)}", {})
            document["spec"] |= {"nodeName": machine.name, "schedulerName": SCHEDULER_NAME}
            running.append(document)
    spec = KINDS[kind](chance, key)
    pods = tuple(_pod(f"{name}-p{number:02d}", spec) for number in range(PODS))
    counted = HOSTNAME if kind is Feature.AFFINITY_REQUIRED else key
    return Sequence(State(name, machines, tuple(running)), pods, counted)


def _spread_hard(chance: Random, key: str) -> Json:
    return _spread(key, chance.choice(({}, {"minDomains": chance.randint(2, 5)})), "DoNotSchedule")


def _spread_soft(_: Random, key: str) -> Json:
    return _spread(key, {}, "ScheduleAnyway")


def _spread(key: str, more: Json, unsatisfiable: str) -> Json:
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": unsatisfiable, "labelSelector": SELECTOR}
    return {"topologySpreadConstraints": [constraint | more]}


def _anti_affinity(_: Random, key: str) -> Json:
    return {"affinity": {"podAntiAffinity": required_terms({"labelSelector": SELECTOR, "topologyKey": key})}}


def _affinity(_: Random, key: str) -> Json:
    return {"affinity": {"podAffinity": required_terms({"labelSelector": SELECTOR, "topologyKey": key})}}


def _anti_affinity_preferred(_: Random, key: str) -> Json:
    return {"affinity": {"podAntiAffinity": preferred_terms((100, {"labelSelector": SELECTOR, "topologyKey": key}))}}


KINDS: Final[Mapping[Feature, Callable[[Random, str], Json]]] = {
    Feature.SPREAD_HARD: _spread_hard,
    Feature.SPREAD_SOFT: _spread_soft,
    Feature.AFFINITY_REQUIRED: _affinity,
    Feature.ANTI_AFFINITY_REQUIRED: _anti_affinity,
    Feature.ANTI_AFFINITY_PREFERRED: _anti_affinity_preferred,
}


def _pod(name: str, spec: Json) -> Json:
    container = {"name": "main", "image": WORKER, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return pod_document(name, NAMESPACE, LABELS, {"containers": [container], **spec})


def _machine(chance: Random, name: str) -> Machine:
    pods = chance.choice((110, 110, 12))
    amounts = {"cpu": f"{CPU}m", "memory": f"{MEMORY}Mi", "pods": str(pods)}
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: chance.choice("abc")}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }
    return Machine(document, CPU, MEMORY, FOO, pods)
