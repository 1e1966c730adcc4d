"""The Binding that gives a pod its node: the fence that no two schedulers can pass.

Source: `BindingREST` in `pkg/registry/core/pod/storage` of Kubernetes 1.36; the answers are as measured there.
"""

from aischeduler.sandbox.bodies import parse_typed
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.objects import JsonObject, encode, set_condition
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.status import Refusal, bad_request, failure, success
from aischeduler.sandbox.writing import precondition_failed


def bind(call: Call) -> Response:
    """Answer POST of a Binding: all checks, the node's name, the marks and the condition in one write."""
    binding = parse_typed(call, "Binding")
    metadata = binding.get("metadata") or {}
    if metadata.get("name", call.name) != call.name:
        raise bad_request("name in URL does not match name in Binding object")
    node = _target(binding)
    entry = call.existing()
    uid, revision = metadata.get("uid"), metadata.get("resourceVersion")
    if uid and uid != entry.uid:
        raise precondition_failed(call, "UID", uid, entry.uid)
    if revision and revision != str(entry.revision):
        raise precondition_failed(call, "ResourceVersion", revision, str(entry.revision))
    pod = entry.decoded()
    why = _refusal(pod, call.name)
    if why is not None:
        raise _binding_conflict(call.name, why)
    pod["spec"]["nodeName"] = node
    status = pod["status"]
    status.pop("nominatedNodeName", None)
    for key in ("annotations", "labels"):
        marks = metadata.get(key)
        if marks:
            pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **marks}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    set_condition(status, scheduled, call.now)
    if not call.dry_run:
        call.collection.put(pod)
    return Response(201, _BOUND)


_BOUND = encode(success(code=201))


def _target(binding: JsonObject) -> str:
    target = binding.get("target") or {}
    kind, node = target.get("kind", ""), target.get("name", "")
    if kind not in {"", "Node"}:
        raise failure(500, "", f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not node:
        raise failure(500, "", "target.name: Required value")
    name: str = node
    return name


def _refusal(pod: JsonObject, name: str) -> str | None:
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod["spec"].get("nodeName"):
        return f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    if pod["spec"].get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def _binding_conflict(name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
    return failure(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
