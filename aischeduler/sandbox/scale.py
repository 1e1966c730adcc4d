"""The scale subresource of custom resources: one number to read and write wherever the definition says it lies.

Source: `k8s.io/apiextensions-apiserver`, `subresources.scale`.
"""

from aischeduler.sandbox.bodies import parse
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.jsonpath import find_path
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.patch import JSON_PATCH, json_patch, merge_patch
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.status import bad_request, method_not_allowed
from aischeduler.sandbox.versions import from_stored
from aischeduler.sandbox.writing import update_object


def scale(call: Call, method: str) -> Response:
    """Answer GET, PUT and PATCH of a custom resource's scale."""
    custom = call.resource.custom
    paths = custom.scale if custom is not None else None
    if paths is None:
        raise method_not_allowed()
    entry = call.existing()
    obj = from_stored(call.resource, entry.decoded())
    shown = _scale_of(obj, paths)
    if method == "GET":
        return Response(200, encode(shown))
    change = parse(call.body, call.content_type)
    if method == "PATCH":
        change = json_patch(shown, change) if call.content_type == JSON_PATCH else merge_patch(shown, change)
    elif method != "PUT":
        raise method_not_allowed()
    if not isinstance(change, dict):
        raise bad_request("couldn't get version/kind; json parse error")
    replicas = (change.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas is no integer')
    _put_path(obj, paths["specReplicasPath"], replicas)
    obj["metadata"]["resourceVersion"] = (change.get("metadata") or {}).get("resourceVersion") or str(entry.revision)
    whole = Call(call.cluster, call.resource, call.now, call.namespace, call.name, "", call.query)
    stored = update_object(whole, entry, obj)
    return Response(200, encode(_scale_of(stored.decoded(), paths)))


def _scale_of(obj: JsonObject, paths: JsonObject) -> JsonObject:
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key in {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"}
    }
    status: JsonObject = {"replicas": find_path(obj, paths["statusReplicasPath"]) or 0}
    selector = find_path(obj, paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None
    if selector:
        status["selector"] = selector
    spec = {"replicas": find_path(obj, paths["specReplicasPath"]) or 0}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _put_path(obj: JsonObject, path: str, value: int) -> None:
    *parents, last = path.lstrip(".").split(".")
    for step in parents:
        obj = obj.setdefault(step, {})
    obj[last] = value
