import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode import pod_spec
from aischeduler.kube.decode.api_types import NodeDocument, PodDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_node, read_pod
from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import HostPort, Pod, Toleration
from aischeduler.model.resources import PodRequest
from aischeduler.model.selectors import NodeSelectorTerm, Operator, PreferredSchedulingTerm, Requirement
from tests.kube import api_objects

MEMORY_100M = 100_000_000


def decode_pod(document: dict[str, Any], specs: SpecCache | None = None) -> Pod:
    return read_pod(msgspec.json.decode(json.dumps(document).encode(), type=PodDocument), specs or SpecCache())


def decode_node(document: dict[str, Any]) -> Node:
    return read_node(msgspec.json.decode(json.dumps(document).encode(), type=NodeDocument))


def container(name: str = "c", **parts: Any) -> dict[str, Any]:
    return {"name": name, "image": "perl", **parts}


def asking(**requests: Any) -> dict[str, Any]:
    return {"requests": {name.replace("_", "-"): amount for name, amount in requests.items()}}


def test_pod_of_the_first_job_is_read() -> None:
    found = decode_pod(
        api_objects.pod(
            "test-job-cpu-x",
            metadata={"annotations": {"resource.aibee.cn/pool": "cpu-pool", "other": "x"}},
            spec={
                "containers": [
                    container(resources={"limits": {"cpu": "1"}, **asking(cpu="1", memory="100M")}),
                ],
                "priority": 7,
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            },
        )
    )
    assert (found.namespace, found.name, found.uid) == ("default", "test-job-cpu-x", "uid-test-job-cpu-x")
    assert (found.pool, found.scheduler_name, found.priority) == ("cpu-pool", "ai-scheduler", 7)
    assert found.created_seconds == int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp())
    assert found.spec.request == PodRequest({"cpu": 1000, "memory": MEMORY_100M}, 1000, MEMORY_100M)
    assert found.spec.tolerations == (Toleration("a", "Exists", "", "NoExecute"),)
    assert found.spec.invalid == ""
    assert not found.terminating


def test_annotation_wins_over_label_and_label_is_accepted() -> None:
    key = "resource.aibee.cn/pool"
    assert decode_pod(api_objects.pod(metadata={"labels": {key: "l"}, "annotations": {key: "a"}})).pool == "a"
    assert decode_pod(api_objects.pod(metadata={"labels": {key: "l"}, "annotations": {}})).pool == "l"
    assert decode_pod(api_objects.pod(metadata={"labels": None})).pool == ""


@pytest.mark.parametrize("name", ["two\nlines", "red \x1b[31m", "x" * 254, "rtl \u202e"])
def test_text_that_is_not_a_pool_name_is_escaped_and_shortened(name: str) -> None:
    found = decode_pod(api_objects.pod(metadata={"annotations": {"resource.aibee.cn/pool": name}})).pool
    assert found.isascii()
    assert found.isprintable()
    assert 0 < len(found) < 100
    assert found != name


def test_annotation_of_250_kilobytes_is_not_kept() -> None:
    key = "resource.aibee.cn/pool"
    found = decode_pod(api_objects.pod(metadata={"annotations": {"notes": "n" * 250_000, key: "p" * 250_000}}))
    assert len(found.pool) < 100


def test_pods_of_one_job_share_their_labels() -> None:
    specs = SpecCache()
    labels = {"job-name": "j", "resource.aibee.cn/pool": "gpu"}
    first, second = (decode_pod(api_objects.pod(name, metadata={"labels": labels}), specs) for name in ("a", "b"))
    assert first.labels == labels
    assert first.labels is second.labels
    assert decode_pod(api_objects.pod("c"), specs).labels == {}


def test_memory_of_labels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_spec, "LABELS_AND_OWNERS_MAX", 10)
    specs = SpecCache()
    for number in range(50):
        found = decode_pod(api_objects.pod(metadata={"labels": {"index": str(number)}}), specs)
        assert found.labels == {"index": str(number)}
    assert len(specs._labels_and_owners) <= 10


@pytest.mark.parametrize("labels", ["text", 5, {"a": 1}])
def test_labels_that_are_not_strings_count_as_none(labels: Any) -> None:
    assert decode_pod(api_objects.pod(metadata={"labels": labels})).labels == {}


def test_fields_that_preemption_uses_are_read() -> None:
    found = decode_pod(
        api_objects.pod(
            metadata={"deletionTimestamp": "2026-01-02T04:00:00Z", "deletionGracePeriodSeconds": 3600},
            spec={"preemptionPolicy": "Never"},
            status={"startTime": "2026-01-02T03:04:06Z", "nominatedNodeName": "n1"},
        )
    )
    assert not found.preempts
    assert found.started_seconds == found.created_seconds + 1
    assert (found.nominated_node, found.grace_seconds, found.terminating) == ("n1", 3600, True)
    plain = decode_pod(api_objects.pod())
    assert (plain.guarded, plain.started_seconds, plain.nominated_node, plain.grace_seconds) == (False, 0, "", 0)
    assert decode_pod(api_objects.pod() | {"status": None}).started_seconds == 0


@pytest.mark.parametrize(
    "spec", [{}, {"preemptionPolicy": None}, {"preemptionPolicy": "PreemptLowerPriority"}], ids=str
)
def test_pod_preempts_unless_its_policy_is_never(spec: dict[str, Any]) -> None:
    assert decode_pod(api_objects.pod(spec=spec)).preempts


@pytest.mark.parametrize(
    ("metadata", "guarded"),
    [
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}, True),
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}, False),
        ({"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}, False),
        ({"ownerReferences": None}, False),
        ({"ownerReferences": ["DaemonSet"]}, False),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "DaemonSet", "controller": True}]}, False),
        ({"annotations": {"kubernetes.io/config.mirror": ""}}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "abc"}}, True),
        ({"annotations": {"kubernetes.io/config.hash": "abc"}}, False),
    ],
)
def test_pods_of_daemon_sets_and_mirrors_are_guarded(metadata: Any, guarded: bool) -> None:
    assert decode_pod(api_objects.pod(metadata=metadata)).guarded is guarded


def test_equal_bytes_share_one_spec() -> None:
    specs = SpecCache()
    spec = {"containers": [container(resources=asking(cpu="1"))]}
    first, second = (decode_pod(api_objects.pod(name, spec=spec), specs) for name in ("a", "b"))
    assert first.spec is second.spec


def test_fields_that_do_not_matter_to_scheduling_do_not_split_classes() -> None:
    plain = decode_pod(
        api_objects.pod(spec={"containers": [container(env=[{"name": "A"}], resources=asking(cpu="1"))]})
    )
    limits = {"limits": {"cpu": "2"}, "requests": {"cpu": "1000m"}}
    other = decode_pod(api_objects.pod(spec={"containers": [container("x", volumeMounts=[], resources=limits)]}))
    assert plain.spec.key == other.spec.key


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(resources=asking(cpu="2"))]},
        {"containers": [container(), container("d")]},
        {"containers": [container()], "nodeSelector": {"a": "b"}},
        {"containers": [container()], "overhead": {"cpu": "1"}},
        {"containers": [container()], "resources": asking(cpu="1")},
        {"containers": [container()], "tolerations": [{"operator": "Exists"}]},
        {"containers": [container(ports=[{"containerPort": 1, "hostPort": 80}])]},
        {"containers": [container()], "initContainers": [container(resources=asking(cpu="1"))]},
        {
            "containers": [container()],
            "initContainers": [container(resources=asking(cpu="1"), restartPolicy="Always"), container()],
        },
    ],
)
def test_fields_that_matter_to_scheduling_split_classes(spec: dict[str, Any]) -> None:
    plain = decode_pod(api_objects.pod(spec={"containers": [container()]}))
    assert decode_pod(api_objects.pod(spec=spec)).spec.key != plain.spec.key


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}, True),
        ({"status": "False", "lastTransitionTime": None, "reason": "SchedulingGated"}, False),
        ({"status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}, False),
        ({"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}, False),
        ({"status": 7}, False),
    ],
)
def test_pod_is_said_to_wait_if_its_condition_is_false_with_a_time(condition: dict[str, Any], said: bool) -> None:
    status = {"conditions": [{"type": "PodScheduled", **condition}]}
    assert decode_pod(api_objects.pod(status=status)).said_to_wait is said
    assert not decode_pod(api_objects.pod(spec={"nodeName": "n1"}, status=status)).said_to_wait
    assert not decode_pod(api_objects.pod(status={"conditions": None})).said_to_wait


def test_init_containers_sidecars_overhead_and_pod_level_amounts_count() -> None:
    found = decode_pod(
        api_objects.pod(
            spec={
                "containers": [container(resources=asking(cpu="1", memory="1Gi"))],
                "initContainers": [
                    container("side", resources=asking(cpu="500m"), restartPolicy="Always"),
                    container("init", resources=asking(cpu="3", nvidia_com="1")),
                ],
                "overhead": {"cpu": "250m"},
                "resources": asking(memory="3Gi"),
            }
        )
    )
    assert found.spec.request.amounts == {"cpu": 3750, "memory": 3 * 2**30, "nvidia-com": 1}


def test_numbers_are_quantities_too() -> None:
    found = decode_pod(api_objects.pod(spec={"containers": [container(resources=asking(cpu=1.5, memory=1024))]}))
    assert found.spec.request.amounts == {"cpu": 1500, "memory": 1024}


def test_bad_quantity_names_the_field_and_the_rest_counts() -> None:
    found = decode_pod(
        api_objects.pod(spec={"nodeName": "n1", "containers": [container(resources=asking(cpu="1.5.3", memory="1Gi"))]})
    )
    assert found.spec.invalid.startswith("spec.containers[0].resources.requests.cpu: '1.5.3' is not a quantity")
    assert found.spec.request.amounts == {"memory": 2**30}
    assert found.node_name == "n1"


def test_quantity_of_250_kilobytes_makes_a_short_reason() -> None:
    found = decode_pod(api_objects.pod(spec={"containers": [container(resources=asking(cpu="9" * 250_000))]}))
    assert 0 < len(found.spec.invalid) < 200


def test_bound_pod_counts_what_the_kubelet_granted() -> None:
    grown = {
        "phase": "Running",
        "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "4"}, "resources": asking(cpu="2")}],
    }
    spec = {"containers": [container(resources=asking(cpu="1"))]}
    pending, bound = spec, spec | {"nodeName": "n1"}
    assert decode_pod(api_objects.pod(spec=bound, status=grown)).spec.request.amounts == {"cpu": 4000}
    assert decode_pod(api_objects.pod(spec=pending, status=grown)).spec.request.amounts == {"cpu": 1000}
    same = decode_pod(
        api_objects.pod(spec=bound, status={"containerStatuses": [{"name": "c", "resources": asking(cpu="1")}]})
    )
    assert same.spec.key == decode_pod(api_objects.pod(spec=pending)).spec.key


def test_affinity_and_selector_are_read() -> None:
    required = {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a100", "h100"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
            }
        ]
    }
    preferred = [{"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]
    found = decode_pod(
        api_objects.pod(
            spec={
                "nodeSelector": {"b": "2", "a": "1"},
                "affinity": {
                    "podAntiAffinity": {"anything": 1},
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": required,
                        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                    },
                },
            }
        )
    ).spec
    assert found.node_selector == (("a", "1"), ("b", "2"))
    assert found.required == (
        NodeSelectorTerm(
            (Requirement("gpu", Operator.IN, ("a100", "h100")),),
            (Requirement("metadata.name", Operator.IN, ("n1",)),),
        ),
    )
    assert found.preferred == (PreferredSchedulingTerm(5, NodeSelectorTerm((Requirement("zone", Operator.EXISTS),))),)
    assert found.invalid == ""


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, "matchExpressions[0].operator"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "matchExpressions[0].values"),
        ({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["y"]}]}, "matchFields[0]"),
        ({"matchExpressions": 5}, "nodeSelectorTerms[0].matchExpressions: must be a list, not a whole number"),
    ],
)
def test_invalid_affinity_names_the_field(terms: dict[str, Any], reason: str) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [terms]}}}
    found = decode_pod(api_objects.pod(spec={"affinity": affinity})).spec
    assert reason in found.invalid


def test_host_ports_of_containers_and_sidecars_are_read() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"containerPort": 81}]
    sidecar = container("s", restartPolicy="Always", ports=[{"hostPort": 9}])
    init = container("i", ports=[{"hostPort": 10}])
    found = decode_pod(
        api_objects.pod(spec={"containers": [container(ports=ports)], "initContainers": [sidecar, init]})
    ).spec
    assert found.host_ports == (HostPort("TCP", 9), HostPort("UDP", 8080, "10.0.0.1"))


def test_gates_phase_and_termination_are_read() -> None:
    found = decode_pod(
        api_objects.pod(
            metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"},
            spec={"schedulingGates": [{"name": "later"}]},
            status={"phase": "Running"},
        )
    )
    assert (found.gates, found.phase, found.terminating) == (("later",), "Running", True)


def test_nulls_are_what_absent_fields_are() -> None:
    nulls = {"containers": None, "initContainers": None, "tolerations": None, "affinity": None, "priority": None}
    found = decode_pod(api_objects.pod(spec=nulls | {"nodeSelector": None, "schedulingGates": None, "overhead": None}))
    assert found.spec == decode_pod(api_objects.pod(spec={"containers": []})).spec


def test_node_is_read() -> None:
    found = decode_node(
        api_objects.node(
            metadata={"labels": {"pool": "cpu"}},
            spec={"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            status={"capacity": {"cpu": "8"}, "allocatable": {"cpu": "7500m", "nvidia.com/gpu": "8", "memory": "1Ki"}},
        )
    )
    assert found == Node(
        "n",
        "uid-n",
        {"pool": "cpu"},
        (Taint("k"),),
        unschedulable=True,
        allocatable={"cpu": 7500, "nvidia.com/gpu": 8, "memory": 1024},
        capacity={"cpu": 8000},
    )


def test_node_without_amounts_has_none() -> None:
    assert decode_node(api_objects.node(status={})).allocatable == {}


def test_bad_quantity_of_a_node_counts_as_nothing_and_is_named() -> None:
    found = decode_node(api_objects.node(status={"allocatable": {"cpu": "1.5.3", "memory": "1Ki"}}))
    assert found.allocatable == {"memory": 1024}
    assert found.invalid.startswith("status.allocatable.cpu: '1.5.3' is not a quantity")


@pytest.mark.parametrize(("ready", "unready"), [("False", True), ("True", False), ("Unknown", False)])
def test_pod_on_a_node_is_unready_if_its_condition_says_so(ready: str, unready: bool) -> None:
    status = {"conditions": [{"type": "Initialized", "status": "False"}, {"type": "Ready", "status": ready}]}
    assert decode_pod(api_objects.pod(spec={"nodeName": "n1"}, status=status)).unready is unready
    assert not decode_pod(api_objects.pod(status=status)).unready
