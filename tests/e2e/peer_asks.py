"""What a pending pod of the differential test may ask for: one function for each feature, which changes its document.

Invariant: the API server accepts every pod, whatever features it has together.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.e2e import peer_cross_row_asks as across
from tests.e2e.peer_draft import PREFERRED, REQUIRED, Draft
from tests.e2e.peer_features import Feature
from tests.e2e.peer_states import (
    FOO,
    HOSTNAME,
    IMAGES,
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
    pod_document,
    some_labels,
)
from tests.e2e.peer_volumes import VOLUMES, claims_for, use_claim
from tests.objects import Json, present

GATE: Final = "example.com/gate"
TAINT_KEYS: Final = ("dedicated", "gone", "slow", "noisy", "node.kubernetes.io/unschedulable")
EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule", "")


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
    expressions = [_expression(draft) for _ in range(chance.choice((1, 1, 2)))]
    for one in expressions if fields else ():  # a preferred bound of text is an error, which is tried again and again
        if one["operator"] in ("Gt", "Lt") and chance.random() < 0.2:
            one["values"] = [chance.choice(("many", "", "1.5", "99999999999999999999"))]
    return {"matchExpressions": expressions}


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


def _image_locality(draft: Draft) -> None:
    """Use images that some nodes have, by a tag or without one, in one or two containers or before they start."""
    chance = draft.chance
    images = [_an_image(chance, image) for image in chance.sample(list(IMAGES), chance.randint(1, 3))]
    draft.main["image"] = images[0]
    if len(images) > 1:
        draft.spec["containers"].append({"name": "beside", "image": images[1]})
    if len(images) > 2:
        draft.spec.setdefault("initContainers", []).append({"name": "before", "image": images[2]})


def _an_image(chance: Random, image: str) -> str:
    return f"registry.example/{image}{chance.choice((':1', ':1', ':latest', '', ':none'))}"


def _pod_level_resources(draft: Draft) -> None:
    """Ask for about what a node has left, and at least for what the containers ask."""
    containers = [*draft.spec["containers"], *draft.spec.get("initContainers", ())]
    least = sum(_milli(one.get("resources", {}).get("requests", {}).get("cpu", "0m")) for one in containers)
    cpu = max(least, draft.machine().cpu + draft.chance.choice((-700, 0, 1)), 1)
    draft.spec["resources"] = {"requests": {"cpu": f"{cpu}m"}}


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1_000


def _use_claim(feature: Feature, draft: Draft) -> None:
    """Use one or two claims of the state that were made for the feature."""
    metadata, found = draft.pod["metadata"], claims_for(draft.state.others, feature)
    if "volumes" not in draft.spec:
        metadata["namespace"] = draft.chance.choice(found)["metadata"]["namespace"]
    near = [one["metadata"]["name"] for one in found if one["metadata"]["namespace"] == metadata["namespace"]]
    for name in draft.chance.sample(near, min(len(near), draft.chance.choice((1, 1, 2)))):
        use_claim(draft.pod, name)
    if feature is Feature.VOLUMES_UNUSABLE and draft.chance.random() < 0.3:
        use_claim(draft.pod, "no-claim-of-this-name")


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
    Feature.SPREAD_HARD: across.spread_hard,
    Feature.SPREAD_SOFT: across.spread_soft,
    Feature.SPREAD_MIN_DOMAINS: across.spread_min_domains,
    Feature.SPREAD_POLICIES: across.spread_policies,
    Feature.SPREAD_MATCH_LABEL_KEYS: across.spread_match_label_keys,
    Feature.SPREAD_SYSTEM_DEFAULT: across.spread_system_default,
    Feature.AFFINITY_REQUIRED: across.affinity_required,
    Feature.ANTI_AFFINITY_REQUIRED: across.anti_affinity_required,
    Feature.AFFINITY_PREFERRED: across.affinity_preferred,
    Feature.ANTI_AFFINITY_PREFERRED: across.anti_affinity_preferred,
    Feature.NAMESPACE_SELECTOR: across.namespace_selector,
    Feature.MATCH_LABEL_KEYS: across.match_label_keys,
    Feature.EXISTING_ANTI_AFFINITY: across.existing_anti_affinity,
    Feature.EXISTING_PREFERRED: across.existing_preferred,
    Feature.IMAGE_LOCALITY: _image_locality,
    Feature.POD_LEVEL_RESOURCES: _pod_level_resources,
    Feature.RESIZE: _of_state,
    Feature.TERMINATING: _of_state,
    Feature.PREEMPTION: _preemption,
    Feature.BUDGETS: _preemption,
    **{feature: partial(_use_claim, feature) for feature in VOLUMES},
}
