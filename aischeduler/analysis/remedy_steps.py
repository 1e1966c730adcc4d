"""The steps of a remedy, as requests to an API server that can be carried out as they stand.

Invariants:
- A step has every field of `Step`; its objects are those that the explanation was made from.
- A pod is deleted by uid, so that no other pod of the name is deleted.
- A pod that is made again requests exactly the amount that was verified.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, Literal, TypedDict, assert_never

from aischeduler.analysis.explanation import (
    AddNode,
    EditNode,
    EditPool,
    EditQueue,
    EditQueues,
    EndPods,
    LowerRequest,
    Remedy,
)
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GROUP, MEMORY, VERSION
from aischeduler.model.quantity import QuantityError, quantity_text
from aischeduler.model.resources import parse_resource_list
from aischeduler.model.tenant_queue import QueueSource

Json = Mapping[str, Any]

OVERCOMMITTED: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
"""The resources whose limit may exceed the request; of every other resource, both are equal."""
VOLCANO_VERSION: Final = "scheduling.volcano.sh/v1beta1"
SIDECAR: Final = "Always"
"""The restartPolicy of an init container that keeps running."""


class Step(TypedDict):
    """One request. `patch`: the body is a merge patch. `delete`: the body is the options of the delete.

    `recreate`: delete the pod and create it again, with the body merged into it as a merge patch.
    """

    verb: Literal["patch", "delete", "recreate"]
    apiVersion: str
    kind: str
    namespace: str
    name: str
    body: dict[str, Any]


def steps(remedy: Remedy, pod: Json) -> list[Step]:
    """Return the steps; `pod` is the document of the pod. Empty where a machine is needed, or the document differs."""
    match remedy.edit:
        case LowerRequest(resource, amount):
            spec, meta = lowered(pod, resource, amount), pod.get("metadata", {})
            return [_step("recreate", "Pod", meta["name"], {"spec": spec}, meta.get("namespace", ""))] if spec else []
        case EditPool(name, patch):
            return [_step("patch", "Pool", name, {"spec": dict(patch)})]
        case EditQueues(edits):
            return [_queue_step(edit) for edit in edits]
        case EditNode(name, True):
            return [_step("patch", "Node", name, {"spec": {"unschedulable": False}})]
        case EditNode(name, _, labels):
            return [_step("patch", "Node", name, {"metadata": {"labels": dict(labels or {})}})]
        case EndPods(pods):
            return [
                _step("delete", "Pod", pod.name, {"preconditions": {"uid": pod.uid}}, pod.namespace) for pod in pods
            ]
        case AddNode():
            return []
        case _:
            assert_never(remedy.edit)


def lowered(pod: Json, resource: str, amount: int) -> dict[str, Any]:
    """Return the fields of spec with which the pod requests this amount; empty where the document cannot be read.

    Of the containers that run at one time, those with the largest requests are lowered first.
    """
    spec = pod.get("spec", {})
    try:
        left = amount - _amount(spec.get("overhead") or {}, resource)
        inits, containers = deepcopy(spec.get("initContainers") or []), deepcopy(spec["containers"])
        sidecars = [init for init in inits if init.get("restartPolicy") == SIDECAR]
        _lower([*containers, *sidecars], resource, left)
        running = 0
        for init in inits:
            if init.get("restartPolicy") == SIDECAR:
                running += _requested(init, resource)
            else:
                _lower([init], resource, left - running)
    except (QuantityError, KeyError, TypeError, AttributeError):
        return {}
    changed: dict[str, Any] = {}
    if containers != spec["containers"]:
        changed["containers"] = containers
    if inits != (spec.get("initContainers") or []):
        changed["initContainers"] = inits
    whole = deepcopy(spec.get("resources") or {})
    if resource in (whole.get("requests") or {}):
        _set(whole, resource, left)
        changed["resources"] = whole
    return changed


def _step(
    verb: Literal["patch", "delete", "recreate"], kind: str, name: str, body: dict[str, Any], namespace: str = ""
) -> Step:
    version = f"{GROUP}/{VERSION}" if kind in ("Pool", "Queue") else "v1"
    return {"verb": verb, "apiVersion": version, "kind": kind, "namespace": namespace, "name": name, "body": body}


def _queue_step(edit: EditQueue) -> Step:
    step = _step("patch", "Queue", edit.queue, dict(edit.patch))
    return {**step, "apiVersion": VOLCANO_VERSION} if edit.source is QueueSource.VOLCANO else step


def _lower(containers: Sequence[dict[str, Any]], resource: str, most: int) -> None:
    """Lower the largest requests until the sum is at most this; equal ones are lowered in their order."""
    excess = sum(_requested(container, resource) for container in containers) - max(most, 0)
    for container in sorted(containers, key=lambda container: -_requested(container, resource)):
        request = _requested(container, resource)
        less = min(max(excess, 0), request)
        if less:
            _set(container["resources"], resource, request - less)
            excess -= less


def _set(resources: dict[str, Any], resource: str, amount: int) -> None:
    """Set a request, and the limit where both must be equal."""
    text = quantity_text(resource, amount)
    resources["requests"] = {**(resources.get("requests") or {}), resource: text}
    if resource not in OVERCOMMITTED and resource in (resources.get("limits") or {}):
        resources["limits"] = {**resources["limits"], resource: text}


def _requested(container: Json, resource: str) -> int:
    """Return the request; without one, the API server takes the limit."""
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    return _amount({**limits, **requests}, resource)


def _amount(quantities: Json, resource: str) -> int:
    return parse_resource_list("requests", {resource: str(quantities.get(resource, "0"))})[resource]
