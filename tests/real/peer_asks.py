"""What a pending pod of the differential test may ask for: one function for each feature, which changes its document.

Invariant: the API server accepts every pod, whatever features it has together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.objects import Json, present
from tests.real.peer_features import Feature
from tests.real.peer_states import (
    APPS,
    FOO,
    HOSTNAME,
    IMAGES,
    KEYS,
    NAMESPACES,
    NEVER,
    PORTS,
    PRIORITIES,
    RACK,
    RUNTIMES,
    WORKER,
    ZONE,
    Machine,
    State,
    a_port,
    a_selector,
    a_term,
    pod_document,
    some_labels,
)

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
GATE: Final = "example.com/gate"
TAINT_KEYS: Final = ("dedicated", "gone", "slow", "noisy", "node.kubernetes.io/unschedulable")
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule", "")


@dataclass(frozen=True, slots=True)
class Draft:
    """A pending pod for a state, while it is written."""

    chance: Random
    state: State
    pod: Json

    @property
    def spec(self) -> Json:
        spec: Json = self.pod["spec"]
        return spec

    @property
    def main(self) -> Json:
        """The main container."""
        container: Json = self.spec["containers"][0]
        return container

    def machine(self) -> Machine:
        """Return a node of the state."""
        return self.chance.choice(self.state.machines)

    def affinity(self, kind: str) -> Json:
        """Return a part of the pod's affinity, to be changed."""
        part: Json = self.spec.setdefault("affinity", {}).setdefault(kind, {})
        return part

    def request(self, resource: str, amount: str) -> None:
        """Let the main container ask for this; other than CPU and memory it is a limit too."""
        resources = self.main.setdefault("resources", {})
        resources.setdefault("requests", {})[resource] = amount
        if resource not in ("cpu", "memory", "ephemeral-storage"):
            resources.setdefault("limits", {})[resource] = amount


def a_pod(chance: Random, state: State, name: str, features: list[Feature]) -> Json:
    """Return a pending pod with these features."""
    container: Json = {"name": "main", "image": WORKER}
    pod = pod_document(name, chance.choice(list(NAMESPACES)), some_labels(chance), {"containers": [container]})
    draft = Draft(chance, state, pod)
    if chance.random() < 0.85:
        draft.request("cpu", f"{chance.choice((20, 150, 333, 700, 1_400))}m")
        draft.request("memory", f"{chance.choice((20, 100, 333, 700, 1_500))}Mi")
    for feature in features:
        ASKS[feature](draft)
    return pod


def _fit(draft: Draft) -> None:
    """Ask for exactly what a node has left, for a little more, for more than any has, or for nothing."""
    chance, machine = draft.chance, draft.machine()
    match chance.randrange(8):
        case 0:
            draft.main.pop("resources", None)
        case 1:
            draft.request("cpu", "17")
        case 2:
            draft.request("ephemeral-storage", chance.choice(("1Gi", "20Gi", "21Gi")))
        case 3:
            share = max(machine.cpu // 2, 1)
            draft.request("cpu", f"{share}m")
            second = {"requests": {"cpu": f"{max(machine.cpu - share, 0) + chance.randint(0, 1)}m"}}
            draft.spec["containers"].append({"name": "second", "image": WORKER, "resources": second})
        case 4:
            draft.request("cpu", "50m")
            _init_containers(draft, machine)
        case _:
            draft.request("cpu", f"{machine.cpu + chance.choice((-500, 0, 0, 1)) or 1}m".replace("-", ""))
            draft.request("memory", f"{max(machine.memory + chance.choice((-300, 0, 0, 1)), 1)}Mi")


def _init_containers(draft: Draft, machine: Machine) -> None:
    """Add an init container and a sidecar in some order, which together ask for about what the node has left."""
    chance = draft.chance
    side = chance.choice((10, 100, 600))
    init = max(machine.cpu - chance.choice((0, side, side - 1)), 1)
    first = {"name": "init", "image": WORKER, "resources": {"requests": {"cpu": f"{init}m"}}}
    sidecar = {"name": "sidecar", "image": WORKER, "restartPolicy": "Always"}
    sidecar["resources"] = {"requests": {"cpu": f"{side}m"}}  # type: ignore[assignment]
    draft.spec["initContainers"] = chance.choice(([first], [first, sidecar], [sidecar, first]))


def _extended_resources(draft: Draft) -> None:
    resource = FOO if draft.chance.random() < 0.85 else "example.com/none"
    draft.request(resource, str(draft.chance.randint(1, 5)))


def _overhead(draft: Draft) -> None:
    draft.spec["runtimeClassName"] = draft.chance.choice(list(RUNTIMES))
    draft.request("cpu", f"{max(draft.machine().cpu - draft.chance.choice((50, 750, 749)), 1)}m")


def _gates(draft: Draft) -> None:
    draft.spec["schedulingGates"] = [{"name": GATE}]


def _node_affinity(draft: Draft) -> None:
    chance = draft.chance
    if chance.random() < 0.4:
        node = draft.machine().document["metadata"]["labels"]
        key = chance.choice([one for one in node if one != HOSTNAME])
        draft.spec["nodeSelector"] = {key: node[key]}
    if chance.random() < 0.75:
        terms = [_node_term(draft, fields=True) for _ in range(chance.choice((1, 1, 2, 3)))]
        draft.affinity("nodeAffinity")[REQUIRED] = {"nodeSelectorTerms": terms}


def _node_affinity_preferred(draft: Draft) -> None:
    terms = [
        {"weight": draft.chance.randint(1, 100), "preference": _node_term(draft, fields=False)}
        for _ in range(draft.chance.randint(1, 4))
    ]
    draft.affinity("nodeAffinity")[PREFERRED] = terms


def _node_term(draft: Draft, *, fields: bool) -> Json:
    chance = draft.chance
    if fields and chance.random() < 0.2:
        names = chance.sample([one.name for one in draft.state.machines], 2)
        field = {"key": "metadata.name", "operator": chance.choice(("In", "In", "NotIn")), "values": names[:1]}
        expressions = [_expression(draft)] if chance.random() < 0.3 else []
        return {"matchFields": [field], **present(matchExpressions=expressions)}
    if chance.random() < 0.05:
        return {}
    return {"matchExpressions": [_expression(draft) for _ in range(chance.choice((1, 1, 2)))]}


def _expression(draft: Draft) -> Json:
    chance = draft.chance
    if chance.random() < 0.25:
        return {"key": "generation", "operator": chance.choice(("Gt", "Lt")), "values": [str(chance.randint(0, 4))]}
    key = chance.choice((ZONE, RACK, "disk", "generation", "absent"))
    operator = chance.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    if operator in ("Exists", "DoesNotExist"):
        return {"key": key, "operator": operator}
    found = sorted({one.document["metadata"]["labels"].get(key, "other") for one in draft.state.machines})
    return {"key": key, "operator": operator, "values": chance.sample(found, min(len(found), chance.randint(1, 2)))}


def _taints(draft: Draft) -> None:
    """Tolerate some taints."""
    chance = draft.chance
    tolerations = []
    for _ in range(chance.choice((0, 1, 2, 3))):
        effect = {"effect": chance.choice(EFFECTS)}
        match chance.randrange(8):
            case 0:
                tolerations.append({"operator": "Exists"})
            case 1 | 2 | 3:
                exists = {"key": chance.choice(TAINT_KEYS), "operator": "Exists"}
                tolerations.append(exists | present(**effect))
            case _:
                value = chance.choice(("ml", "web", "yes", ""))
                equal = {"key": chance.choice(TAINT_KEYS), "operator": "Equal", "value": value}
                tolerations.append(equal | present(**effect))
    draft.spec["tolerations"] = tolerations


def _ports(draft: Draft) -> None:
    ports = [a_port(draft.chance) for _ in range(draft.chance.randint(1, 2))]
    draft.main["ports"] = ports[:1] if len({one["containerPort"] for one in ports}) < len(ports) else ports


def _spread(draft: Draft, unsatisfiable: str) -> Json:
    """Return a constraint of the pod, which it has already or gets now."""
    constraints = draft.spec.setdefault("topologySpreadConstraints", [])
    taken = {one["topologyKey"] for one in constraints if one["whenUnsatisfiable"] == unsatisfiable}
    free = [key for key in KEYS if key not in taken]
    if not free or (taken and draft.chance.random() < 0.5):
        of_kind: Json = draft.chance.choice([one for one in constraints if one["whenUnsatisfiable"] == unsatisfiable])
        return of_kind
    made = {
        "topologyKey": draft.chance.choice(free),
        "maxSkew": draft.chance.choice((1, 1, 2, 3)),
        "whenUnsatisfiable": unsatisfiable,
        "labelSelector": a_selector(draft.chance),
    }
    constraints.append(made)
    return made


def _spread_hard(draft: Draft) -> None:
    _spread(draft, "DoNotSchedule")


def _spread_soft(draft: Draft) -> None:
    _spread(draft, "ScheduleAnyway")


def _spread_min_domains(draft: Draft) -> None:
    _spread(draft, "DoNotSchedule")["minDomains"] = draft.chance.randint(1, 5)


def _spread_policies(draft: Draft) -> None:
    constraint = _spread(draft, draft.chance.choice(_kinds(draft)))
    constraint["nodeAffinityPolicy"] = draft.chance.choice(("Honor", "Ignore"))
    constraint["nodeTaintsPolicy"] = draft.chance.choice(("Honor", "Ignore"))
    if "nodeSelector" not in draft.spec and draft.chance.random() < 0.5:
        draft.spec["nodeSelector"] = {"disk": draft.chance.choice(("ssd", "hdd"))}


def _spread_match_label_keys(draft: Draft) -> None:
    constraint = _spread(draft, draft.chance.choice(_kinds(draft)))
    constraint["matchLabelKeys"] = draft.chance.choice((["version"], ["absent"], ["version", "absent"]))


def _kinds(draft: Draft) -> list[str]:
    """Return the kinds of constraints that the pod may get: soft ones where some are compared."""
    soft = any(one["whenUnsatisfiable"] == "ScheduleAnyway" for one in draft.spec.get("topologySpreadConstraints", ()))
    return ["DoNotSchedule", "ScheduleAnyway"] if soft else ["DoNotSchedule"]


def _spread_system_default(draft: Draft) -> None:
    """Be a pod of a Service, without constraints of its own."""
    draft.spec.pop("topologySpreadConstraints", None)
    draft.pod["metadata"]["labels"] = {"app": draft.chance.choice(APPS[:2]), "version": "1"}


def _affinity_required(draft: Draft) -> None:
    part = draft.affinity("podAffinity")
    part.setdefault(REQUIRED, []).append(a_term(draft.chance))
    if draft.chance.random() < 0.2:
        part[REQUIRED].append(a_term(draft.chance))


def _anti_affinity_required(draft: Draft) -> None:
    draft.affinity("podAntiAffinity").setdefault(REQUIRED, []).append(a_term(draft.chance))


def _affinity_preferred(draft: Draft) -> None:
    _prefer(draft, "podAffinity")


def _anti_affinity_preferred(draft: Draft) -> None:
    _prefer(draft, "podAntiAffinity")


def _prefer(draft: Draft, kind: str) -> None:
    for _ in range(draft.chance.randint(1, 2)):
        term = {"weight": draft.chance.randint(1, 100), "podAffinityTerm": a_term(draft.chance)}
        draft.affinity(kind).setdefault(PREFERRED, []).append(term)


def _term_to_change(draft: Draft) -> Json:
    """Return an affinity term of the pod, which it gets where it has none."""
    found: list[Json] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        part = draft.spec.get("affinity", {}).get(kind, {})
        found += [*part.get(REQUIRED, ()), *(one["podAffinityTerm"] for one in part.get(PREFERRED, ()))]
    if not found:
        found = [a_term(draft.chance)]
        draft.affinity(draft.chance.choice(("podAffinity", "podAntiAffinity")))[REQUIRED] = found
    return draft.chance.choice(found)


def _namespace_selector(draft: Draft) -> None:
    chance = draft.chance
    by_team = {"matchLabels": {"team": chance.choice(("blue", "green"))}}
    tiered = {"matchExpressions": [{"key": "tier", "operator": chance.choice(("Exists", "DoesNotExist"))}]}
    _term_to_change(draft)["namespaceSelector"] = chance.choice(({}, by_team, tiered, {"matchLabels": {"team": "no"}}))


def _match_label_keys(draft: Draft) -> None:
    term = _term_to_change(draft)
    term[draft.chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]


def _existing_anti_affinity(draft: Draft) -> None:
    """Be a pod that a required anti-affinity term of a running pod matches, in most cases."""
    _be_meant(draft, lambda affinity: affinity.get("podAntiAffinity", {}).get(REQUIRED, ()))


def _existing_preferred(draft: Draft) -> None:
    def terms(affinity: Json) -> list[Json]:
        parts = [affinity.get(kind, {}) for kind in ("podAffinity", "podAntiAffinity")]
        weighed = [one["podAffinityTerm"] for part in parts for one in part.get(PREFERRED, ())]
        return [*weighed, *parts[0].get(REQUIRED, ())]

    _be_meant(draft, terms)


def _be_meant(draft: Draft, terms: Callable[[Json], object]) -> None:
    carriers = [pod for pod in draft.state.running if terms(pod["spec"].get("affinity", {}))]
    if carriers:
        of = draft.chance.choice(carriers)
        draft.pod["metadata"]["namespace"] = of["metadata"]["namespace"]
    draft.pod["metadata"]["labels"] = {"app": draft.chance.choice(APPS), "version": draft.chance.choice(("1", "2"))}


def _image_locality(draft: Draft) -> None:
    images = [f"registry.example/{image}:1" for image in draft.chance.sample(list(IMAGES), draft.chance.randint(1, 2))]
    draft.main["image"] = images[0]
    if len(images) > 1:
        draft.spec["containers"].append({"name": "beside", "image": images[1]})


def _pod_level_resources(draft: Draft) -> None:
    """Ask for about what a node has left, and at least for what the containers ask."""
    containers = [*draft.spec["containers"], *draft.spec.get("initContainers", ())]
    least = sum(_milli(one.get("resources", {}).get("requests", {}).get("cpu", "0m")) for one in containers)
    cpu = max(least, draft.machine().cpu + draft.chance.choice((-700, 0, 1)), 1)
    draft.spec["resources"] = {"requests": {"cpu": f"{cpu}m"}}


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1_000


def _of_state(_: Draft) -> None:
    """The state has it: every pod of the probe is affected."""


def _preemption(draft: Draft) -> None:
    """Be more important than some running pods, and ask for about what a node has in all."""
    chance = draft.chance
    draft.spec["priorityClassName"] = NEVER if chance.random() < 0.1 else chance.choice(list(PRIORITIES)[1:4])
    most = max(int(one.document["status"]["allocatable"]["cpu"][:-1]) for one in draft.state.machines)
    match chance.randrange(10):
        case 0 | 1 | 2 | 3 | 4 | 5:
            draft.request("cpu", f"{max(most - chance.choice((0, 300, 1_000, 1_700, 3_000)), 1)}m")
        case 6 | 7:
            draft.main["ports"] = [{"containerPort": port, "hostPort": port} for port in PORTS]
        case 8:
            draft.request(FOO, str(chance.randint(1, 4)))


ASKS: Final[Mapping[Feature, Callable[[Draft], None]]] = {
    Feature.FIT: _fit,
    Feature.EXTENDED_RESOURCES: _extended_resources,
    Feature.OVERHEAD: _overhead,
    Feature.GATES: _gates,
    Feature.NODE_AFFINITY: _node_affinity,
    Feature.NODE_AFFINITY_PREFERRED: _node_affinity_preferred,
    Feature.TAINTS: _taints,
    Feature.PORTS: _ports,
    Feature.SPREAD_HARD: _spread_hard,
    Feature.SPREAD_SOFT: _spread_soft,
    Feature.SPREAD_MIN_DOMAINS: _spread_min_domains,
    Feature.SPREAD_POLICIES: _spread_policies,
    Feature.SPREAD_MATCH_LABEL_KEYS: _spread_match_label_keys,
    Feature.SPREAD_SYSTEM_DEFAULT: _spread_system_default,
    Feature.AFFINITY_REQUIRED: _affinity_required,
    Feature.ANTI_AFFINITY_REQUIRED: _anti_affinity_required,
    Feature.AFFINITY_PREFERRED: _affinity_preferred,
    Feature.ANTI_AFFINITY_PREFERRED: _anti_affinity_preferred,
    Feature.NAMESPACE_SELECTOR: _namespace_selector,
    Feature.MATCH_LABEL_KEYS: _match_label_keys,
    Feature.EXISTING_ANTI_AFFINITY: _existing_anti_affinity,
    Feature.EXISTING_PREFERRED: _existing_preferred,
    Feature.IMAGE_LOCALITY: _image_locality,
    Feature.POD_LEVEL_RESOURCES: _pod_level_resources,
    Feature.RESIZE: _of_state,
    Feature.PREEMPTION: _preemption,
    Feature.BUDGETS: _preemption,
}
