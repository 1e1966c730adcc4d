"""Requests by chance: what users, kubelets and schedulers may send, right and wrong, about a few objects of few names.

Law: nothing here wakes a controller, so that an answer depends on the requests before it and on nothing else.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tests.objects import (
    binding_object,
    eviction_object,
    job_object,
    node_object,
    pod_object,
    pool_object,
    priority_class_object,
)
from tests.worlds.world import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Call, Json, encode

NAMES = ("a", "b", "c")
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WRONG_UID = {"preconditions": {"uid": "another"}}


class Chance(Protocol):
    """A seeded source of choices."""

    def choice(self, among: Any, /) -> Any: ...

    def random(self) -> float: ...


def a_request(chance: Chance, namespace: str) -> Call:
    """Return one request about an object of the namespace."""
    kind: Callable[[Chance, str, str], Call] = chance.choice(KINDS)
    return kind(chance, namespace, chance.choice(NAMES))


def _pods(namespace: str, name: str = "", subresource: str = "") -> str:
    return "/".join(filter(None, (f"/api/v1/namespaces/{namespace}/pods", name, subresource)))


def _sometimes(chance: Chance, **fields: Any) -> Json:
    """Each field in one case of four, with one of its values."""
    return {field: chance.choice(values) for field, values in fields.items() if chance.random() < 0.25}


def _a_pod(chance: Chance, namespace: str, name: str) -> Json:
    taints = [{"key": "k", "operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    amounts = {"cpu": ("1", "100m", "1.5", "0.1", ""), "memory": ("1Gi", "100M", "0.5Gi", "")}
    return pod_object(
        name,
        namespace=namespace,
        **{resource: chance.choice(texts) for resource, texts in amounts.items()},
        **_sometimes(
            chance,
            labels=[{"tier": "gold"}, {"tier": "tin"}],
            annotations=[{"note": "1"}],
            gates=[["example.com/wait"]],
            gpu=[1, 2],
            tolerations=[[taint] for taint in taints],
            priority_class=["system-node-critical", "nope"],
            node=["n1"],
            node_selector=[{"disk": "ssd"}],
        ),
    )


def _create_pod(chance: Chance, namespace: str, name: str) -> Call:
    return Call("POST", _pods(namespace), encode(_a_pod(chance, namespace, name)))


def _create_pod_with_options(chance: Chance, namespace: str, name: str) -> Call:
    query = chance.choice(["dryRun=All", "dryRun=Some", "fieldValidation=Strict", "fieldValidation=Ignore"])
    document = _a_pod(chance, namespace, name)
    document["spec"] |= _sometimes(
        chance,
        wish=["a field that is none"],
        hostNetwork=[True, "yes"],
        restartPolicy=["Always", "Sometimes"],
        terminationGracePeriodSeconds=[0, 5, -1],
        initContainers=[[{"name": "init", "image": "registry.example/init:1", "restartPolicy": "Always"}]],
        affinity=[{}, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}],
    )
    return Call("POST", f"{_pods(namespace)}?{query}", encode(document))


def _replace_pod(chance: Chance, namespace: str, name: str) -> Call:
    return Call("PUT", _pods(namespace, name), encode(_a_pod(chance, namespace, name)))


def _get_pod(_chance: Chance, namespace: str, name: str) -> Call:
    return Call("GET", _pods(namespace, name))


def _list_pods(chance: Chance, namespace: str, _name: str) -> Call:
    query = chance.choice(
        [
            "labelSelector=tier%3Dgold",
            "labelSelector=tier+notin+(tin)",
            "fieldSelector=status.phase%3DPending",
            "fieldSelector=status.phase!%3DRunning",
            "fieldSelector=spec.nodeName%3D",
            "fieldSelector=spec.weather%3Dfine",
            "resourceVersion=abc",
            "resourceVersionMatch=Sideways&resourceVersion=1",
        ]
    )
    return Call("GET", f"{_pods(namespace)}?{query}")


def _delete_pod(chance: Chance, namespace: str, name: str) -> Call:
    options = chance.choice([{}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, WRONG_UID])
    return Call("DELETE", _pods(namespace, name), encode(options))


def _bind_pod(chance: Chance, namespace: str, name: str) -> Call:
    given = _sometimes(chance, uid=["another"], annotations=[{"mark": "1"}], labels=[{"mark": "1"}])
    binding = binding_object(name, chance.choice(["n1", "n2"]), **given)
    return Call("POST", _pods(namespace, name, "binding"), encode(binding))


def _evict_pod(_chance: Chance, namespace: str, name: str) -> Call:
    return Call("POST", _pods(namespace, name, "eviction"), encode(eviction_object(name, namespace=namespace)))


def _patch_pod(chance: Chance, namespace: str, name: str) -> Call:
    change = chance.choice(
        [
            {"metadata": {"labels": {"tier": "gold"}}},
            {"metadata": {"labels": {"tier": None}}},
            {"metadata": {"finalizers": ["example.com/held"]}},
            {"metadata": {"finalizers": None}},
            {"metadata": {"name": "other"}},
            {"metadata": {"uid": "another"}},
            {"metadata": {"resourceVersion": "1"}},
            {"spec": {"schedulingGates": None}},
            {"spec": {"nodeName": "n9"}},
            {"spec": {"priority": 5}},
            {"spec": {"activeDeadlineSeconds": 5}},
            {"spec": {"tolerations": [{"operator": "Exists"}]}},
        ]
    )
    return Call("PATCH", _pods(namespace, name), encode(change), MERGE_PATCH)


def _patch_pod_by_steps(chance: Chance, namespace: str, name: str) -> Call:
    path = chance.choice(["/metadata/labels/tier", "/metadata/annotations/note", "/spec/schedulingGates"])
    operation = {"op": chance.choice(["add", "remove", "test"]), "path": path, "value": "v"}
    return Call("PATCH", _pods(namespace, name), encode([operation]), JSON_PATCH)


def _merge_into_pod(chance: Chance, namespace: str, name: str) -> Call:
    change = chance.choice(
        [
            {"spec": {"containers": [{"name": "main", "image": "registry.example/worker:2"}]}},
            {"spec": {"containers": [{"name": "side", "image": "registry.example/side:1"}]}},
            {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}},
            {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/wait"}]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/held"]}},
            {"wish": "a field that is none"},
        ]
    )
    return Call("PATCH", _pods(namespace, name), encode(change), STRATEGIC_PATCH)


def _replace_status(chance: Chance, namespace: str, name: str) -> Call:
    document = pod_object(name, namespace=namespace)
    document["status"] = {"phase": chance.choice(["Running", "Pending"]), "message": "by hand"}
    return Call("PUT", _pods(namespace, name, "status"), encode(document))


def _patch_conditions(chance: Chance, namespace: str, name: str) -> Call:
    condition = {"type": chance.choice(["Ready", "PodScheduled"]), "status": chance.choice(["True", "False"])}
    change = {"status": {"conditions": [condition]}}
    return Call("PATCH", _pods(namespace, name, "status"), encode(change), STRATEGIC_PATCH)


def _patch_phase(chance: Chance, namespace: str, name: str) -> Call:
    change = {"status": {"phase": chance.choice(["Running", "Succeeded", "Failed"])}}
    return Call("PATCH", _pods(namespace, name, "status"), encode(change), MERGE_PATCH)


def _touch_pool(chance: Chance, namespace: str, name: str) -> Call:
    pool = f"{namespace}-{name}"
    specs: list[Json] = [{}, {"disableSharing": True}, {"placement": "Pack"}, {"disableSharing": "yes"}, {"wish": 1}]
    placement = {"spec": {"placement": chance.choice(["Pack", "Spread", "Sideways", None])}}
    status = {
        "metadata": chance.choice([{}, {"labels": {"a": "b"}}, {"finalizers": ["example.com/held"]}]),
        "status": {"observedGeneration": chance.choice([1, 2, -1])},
    }
    call: Call = chance.choice(
        [
            Call("POST", POOLS, encode(pool_object(pool, **chance.choice(specs)))),
            Call("PATCH", f"{POOLS}/{pool}", encode(placement), MERGE_PATCH),
            Call("PATCH", f"{POOLS}/{pool}/status", encode(status), MERGE_PATCH),
            Call("DELETE", f"{POOLS}/{pool}", encode(chance.choice([{}, WRONG_UID]))),
            Call("GET", f"{POOLS}/{pool}"),
        ]
    )
    return call


def _touch_node(chance: Chance, namespace: str, _name: str) -> Call:
    node = f"/api/v1/nodes/{namespace}-n"
    change = chance.choice(
        [
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
            {"spec": {"unschedulable": True}},
            {"spec": {"unschedulable": None}},
            {"metadata": {"labels": {"zone": "east"}}},
        ]
    )
    amounts = {"status": {"allocatable": chance.choice([{"cpu": "1.5"}, {"nvidia.com/gpu": "x"}, {"pods": None}])}}
    call: Call = chance.choice(
        [
            Call("PATCH", f"{node}/status", encode(amounts), chance.choice([MERGE_PATCH, STRATEGIC_PATCH])),
            Call("POST", "/api/v1/nodes", encode(node_object(f"{namespace}-n", gpu=chance.choice([0, 2])))),
            Call("PATCH", node, encode(change), chance.choice([MERGE_PATCH, STRATEGIC_PATCH])),
            Call("GET", node),
        ]
    )
    return call


def _touch_lease(chance: Chance, namespace: str, name: str) -> Call:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    document = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": chance.choice([15, 0])},
    }
    method = chance.choice(["POST", "PUT", "GET", "DELETE"])
    if method == "POST":
        return Call("POST", leases, encode(document))
    return Call(method, f"{leases}/{name}", encode(document) if method == "PUT" else b"")


def _touch_suspended_job(chance: Chance, namespace: str, name: str) -> Call:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    document = job_object(name, namespace=namespace, completions=chance.choice([2, -1]), parallelism=2)
    document["spec"]["managedBy"] = "example.com/nobody"
    change = {"spec": chance.choice([{"completions": 9}, {"backoffLimit": 1}, {"parallelism": 4}])}
    call: Call = chance.choice(
        [
            Call("POST", jobs, encode(document)),
            Call("PATCH", f"{jobs}/{name}", encode(change), MERGE_PATCH),
            Call("GET", f"{jobs}/{name}"),
        ]
    )
    return call


def _touch_priority_class(chance: Chance, namespace: str, name: str) -> Call:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    document = priority_class_object(f"{namespace}-{name}", value=chance.choice([5, 2_000_000_000]))
    change = chance.choice([{"value": 6}, {"description": "a text"}, {"preemptionPolicy": "Never"}])
    call: Call = chance.choice(
        [
            Call("POST", classes, encode(document)),
            Call("PATCH", f"{classes}/{namespace}-{name}", encode(change), MERGE_PATCH),
            Call("GET", f"{classes}/{namespace}-{name}"),
        ]
    )
    return call


def _touch_settings(chance: Chance, namespace: str, name: str) -> Call:
    settings = f"/api/v1/namespaces/{namespace}/configmaps"
    metadata = {"name": name, "namespace": namespace}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "1"}}
    change = chance.choice([{"data": {"x": None}}, {"data": {"y": "2"}}, {"data": {"y": 2}}, {"immutable": True}])
    call: Call = chance.choice(
        [
            Call("POST", settings, encode(document)),
            Call("PUT", f"{settings}/{name}", encode(document | {"data": {"z": "3"}})),
            Call("PATCH", f"{settings}/{name}", encode(change), chance.choice([MERGE_PATCH, STRATEGIC_PATCH])),
            Call("DELETE", f"{settings}/{name}"),
            Call("GET", settings),
        ]
    )
    return call


def _touch_event(chance: Chance, namespace: str, name: str) -> Call:
    newer = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    document = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "type": chance.choice(["Normal", "Alarm"]),
        "reason": chance.choice(["Scheduled", ""]),
        "action": chance.choice(["Binding", ""]),
        "note": "a note",
        "reportingController": "ai-scheduler",
        "reportingInstance": "ai-scheduler-0",
        "regarding": {"kind": "Pod", "namespace": chance.choice([namespace, "other"]), "name": "a"},
    }
    older = f"/api/v1/namespaces/{namespace}/events/{name}"
    call: Call = chance.choice(
        [Call("POST", newer, encode(document)), Call("GET", f"{newer}/{name}"), Call("GET", older)]
    )
    return call


KINDS = (
    *(_create_pod, _create_pod, _create_pod, _create_pod),
    *(_get_pod, _list_pods, _replace_pod, _delete_pod, _bind_pod, _evict_pod),
    *(_patch_pod, _patch_pod, _patch_pod_by_steps, _merge_into_pod, _patch_conditions, _patch_phase),
    *(_create_pod_with_options, _replace_status, _touch_priority_class, _touch_settings),
    *(_touch_pool, _touch_node, _touch_lease, _touch_suspended_job, _touch_event),
)
