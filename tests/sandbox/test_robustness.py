"""The server answers every request: each value of each kind of object is replaced by junk in turn."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from aischeduler.kube.crds import pool_crd
from aischeduler.sandbox.controllers.controller_manager import ControllerManager
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.request import Request, Response, request
from tests.build import replace
from tests.sandbox.cluster import PODS, Cluster

JUNK: tuple[Any, ...] = (None, True, -1, 2**62, "", "x\ny", [None], {"": None}, {"a": {"b": []}})
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
DEFINITION = "pools.resource.aibee.cn"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": [], "ownerReferences": []}
CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "livenessProbe": {"httpGet": {"port": 80}},
    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}},
}
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
POD_SPEC = {
    "containers": [CONTAINER],
    "initContainers": [{"name": "i", "image": "i"}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeName": "here",
    "overhead": {"cpu": "1"},
    "volumes": [{"name": "v", "configMap": {"name": "c"}}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchFields": []}}],
        }
    },
}
POOL = orjson.dumps({"metadata": {"name": "x"}, "spec": {"nodeSelector": SELECTOR, "disableSharing": True}})
JOB_POD = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["nodeSelector"],
            "properties": {
                "nodeSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "disableSharing": {"type": "boolean", "default": False},
                "parts": {"type": "array", "maxItems": 3, "items": {"type": "string", "pattern": "a", "enum": ["a"]}},
                "tags": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
                "amount": {"x-kubernetes-int-or-string": True, "maxLength": 9},
            },
        },
    },
}
VERSION = {
    "name": "v1alpha1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": SCHEMA},
    "subresources": {"status": {}},
    "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.parts[0]"}],
}
OBJECTS: dict[str, tuple[str, Any]] = {
    "pod": (
        PODS,
        {"spec": POD_SPEC, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    ),
    "node": (
        "/api/v1/nodes",
        {
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {"capacity": {"cpu": "1"}, "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]},
        },
    ),
    "namespace": ("/api/v1/namespaces", {"spec": {"finalizers": []}}),
    "job": (
        "/apis/batch/v1/namespaces/default/jobs",
        {
            "spec": {"completions": 2, "parallelism": 1, "template": {"metadata": {"labels": {}}, "spec": JOB_POD}},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        },
    ),
    "budget": (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {
            "spec": {"minAvailable": "50%", "selector": SELECTOR},
            "status": {"disruptedPods": {"x": "2026-01-01T00:00:00Z"}},
        },
    ),
    "priority": ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 1, "preemptionPolicy": "Never"}),
    "lease": ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"spec": {"leaseDurationSeconds": 1}}),
    "event": (
        "/api/v1/namespaces/default/events",
        {"involvedObject": {"name": "x"}, "series": {"count": 2}, "source": {"component": "a"}, "type": "Normal"},
    ),
    "definition": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"spec": {**pool_crd()["spec"], "versions": [VERSION]}, "status": {"storedVersions": []}},
    ),
    "pool": (
        POOLS,
        {"spec": {"nodeSelector": SELECTOR, "disableSharing": True}, "status": {"conditions": [{"type": "Ready"}]}},
    ),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*path, key)
        yield from places(inner, (*path, key))


def with_junk(document: Any, path: tuple[Any, ...], junk: Any) -> Any:
    copied = orjson.loads(orjson.dumps(document))
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = junk
    return copied


@pytest.mark.parametrize("kind", sorted(OBJECTS))
def test_junk_anywhere_is_answered_and_controllers_survive_accepted_junk(kind: str) -> None:
    collection, body = OBJECTS[kind]
    document = {"metadata": METADATA, **body}
    cluster = Cluster()
    cluster.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", pool_crd())
    cluster.add_node("here")
    accepted = 0
    controllers = ControllerManager(cluster.server, KubeletOptions(0, 0))
    for number, path in enumerate(places(document)):
        for junk in JUNK:
            changed = with_junk(document, path, junk)
            name = f"x{number}" if kind != "definition" else DEFINITION
            if path[0] != "metadata":
                changed["metadata"] = {**METADATA, "name": name}
            raw = orjson.dumps(changed)
            target = f"{collection}/{name}"
            for method, url, content_type in (
                ("POST", collection, "application/json"),
                ("PUT", f"{target}/status", "application/json"),
                ("PATCH", target, MERGE),
                ("PATCH", f"{target}/status", STRATEGIC),
                ("POST", POOLS, "application/json"),
                ("GET", POOLS, "application/json"),
                ("POST", f"{target}/eviction", "application/json"),
                ("DELETE", target, "application/json"),
            ):
                if method == "DELETE":
                    controllers.step(cluster.now)
                content = POOL if (method, url, kind) == ("POST", POOLS, "definition") else raw
                asked = request(method, url, content, content_type)
                answer = cluster.server.handle(replace(asked, accept=TABLE), cluster.now)
                assert isinstance(answer, Response)
                if answer.content_type == "application/json":
                    orjson.loads(answer.body)
                accepted += answer.status < 300
            cluster.now += 1
        controllers.step(cluster.now)
    assert accepted > 10
    table = cluster.server.handle(Request("GET", collection, accept=TABLE), cluster.now)
    assert isinstance(table, Response)
    assert table.status in {200, 404}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"[" * 900 + b"]" * 900),
        ("application/json", b'{"a":' * 900 + b"1" + b"}" * 900),
        ("application/json", b"\xff"),
        ("", b"{}"),
        (MERGE, b'{"metadata":{"annotations":' + b'{"a":' * 900 + b"1" + b"}" * 902),
        (STRATEGIC, b'{"status":{"conditions":[7,{"type":[]},{"$patch":"delete"}]}}'),
        (STRATEGIC, b'{"$retainKeys":7,"$deleteFromPrimitiveList/x":[1],"$setElementOrder/y":null}'),
        (JSON_PATCH, b'[{"op":"add","path":"/metadata/labels/a/b/c","value":1}]'),
        (JSON_PATCH, b'[{"op":7},{},null]'),
        (JSON_PATCH, b'[{"op":"add","path":"","value":7}]'),
    ],
)
def test_body_of_any_form_is_answered(content_type: str, body: bytes) -> None:
    cluster = Cluster()
    cluster.add_pod("x")
    for method, url in (("POST", PODS), ("PUT", f"{PODS}/x"), ("PATCH", f"{PODS}/x"), ("DELETE", f"{PODS}/x")):
        answer = cluster.call(method, url, body, content_type)
        assert answer.status in {200, 400, 404, 413, 415, 422}, (method, answer)
