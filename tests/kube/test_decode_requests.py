"""Rows R13 and R14 of kube-scheduler's own cases: what an assigned pod counts during a resize, and overhead."""

from typing import Any

import pytest

from aischeduler.model.pod import Pod
from tests.kube import api_objects
from tests.kube.test_decode import asking, container, decode_pod

PENDING = "PodResizePending"
SMALL, LARGE = {"cpu": "2"}, {"cpu": "4"}
HUGE = "hugepages-2Mi"


def cpu(found: Pod) -> int:
    return found.spec.request.amounts.get("cpu", 0)


def conditions(*found: tuple[str, str]) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason} for kind, reason in found]}


def resized(asks: str, status: dict[str, Any], *, node: str = "n1", **said: Any) -> Pod:
    """Return a pod of one container that asks for so much CPU, with this status of the container and of the pod."""
    spec = {"nodeName": node, "containers": [container(resources=asking(cpu=asks))]}
    statuses = {"containerStatuses": [{"name": "c", **status}]}
    return decode_pod(api_objects.pod(spec=spec, status=statuses | said))


@pytest.mark.parametrize(
    ("asks", "allocated", "actual", "said", "counts"),
    [
        ("1", "2", "2", {}, 2000),
        ("4", "2", "2", {}, 4000),
        ("4", "2", "2", conditions((PENDING, "Deferred")), 4000),
        ("4", "2", "2", conditions((PENDING, "Infeasible")), 2000),
        ("4", "2", "3", conditions((PENDING, "Infeasible")), 3000),
        ("4", "3", "2", conditions((PENDING, "Infeasible")), 3000),
        ("4", "2", "2", conditions(("Ready", "Infeasible"), (PENDING, "Deferred")), 4000),
        ("4", "2", "2", {"conditions": [{"type": PENDING, "status": 7}]}, 4000),
        ("4", "2", "2", {"conditions": 5}, 4000),
    ],
)
def test_r13_assigned_pod_counts_the_most_and_an_infeasible_resize_does_not_count(
    asks: str, allocated: str, actual: str, said: dict[str, Any], counts: int
) -> None:
    status = {"allocatedResources": {"cpu": allocated}, "resources": asking(cpu=actual)}
    assert cpu(resized(asks, status, **said)) == counts
    assert cpu(resized(asks, status, node="", **said)) == int(asks) * 1000


def test_amounts_that_a_refused_resize_and_the_kubelet_leave_out_are_not_counted() -> None:
    """Source: determineEffectiveRequests of Kubernetes: the spec does not count at all."""
    spec = {"nodeName": "n1", "containers": [container(resources=asking(cpu="4", memory="1Gi"))]}
    statuses = [{"name": "c", "allocatedResources": SMALL, "resources": {"requests": SMALL}}]
    refused = conditions((PENDING, "Infeasible"))
    found = decode_pod(api_objects.pod(spec=spec, status={"containerStatuses": statuses, **refused}))
    assert found.spec.request.amounts == {"cpu": 2000}


@pytest.mark.parametrize("resources", [None, "absent"])
def test_allocation_counts_only_beside_what_the_container_has(resources: Any) -> None:
    status = {"allocatedResources": LARGE} | ({} if resources == "absent" else {"resources": resources})
    assert cpu(resized("1", status)) == 1000
    assert cpu(resized("1", status | {"resources": {}})) == 4000


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    inits = [
        container("side", resources=asking(cpu="1"), restartPolicy="Always"),
        container("init", resources=asking(cpu="2")),
    ]
    spec = {"nodeName": "n1", "containers": [container(resources=asking(cpu="1"))], "initContainers": inits}
    grown = [{"name": name, "allocatedResources": LARGE, "resources": {"requests": LARGE}} for name in ("side", "init")]
    found = decode_pod(api_objects.pod(spec=spec, status={"initContainerStatuses": grown}))
    assert cpu(found) == max(4000 + 1000, 4000 + 2000)


@pytest.mark.parametrize(
    ("status", "said", "counts"),
    [
        ({}, {}, 3000),
        ({"allocatedResources": LARGE}, {}, 3000),
        ({"allocatedResources": LARGE, "resources": {}}, {}, 4000),
        ({"allocatedResources": SMALL, "resources": {"requests": LARGE}}, {}, 4000),
        ({"allocatedResources": SMALL, "resources": {"requests": SMALL}}, {}, 3000),
        ({"allocatedResources": SMALL, "resources": {"requests": SMALL}}, conditions((PENDING, "Infeasible")), 2000),
        ({"allocatedResources": None, "resources": None}, conditions((PENDING, "Infeasible")), 3000),
    ],
)
def test_resize_of_the_whole_pod_counts_as_that_of_a_container(
    status: dict[str, Any], said: dict[str, Any], counts: int
) -> None:
    spec = {"nodeName": "n1", "containers": [container(resources=asking(cpu="1"))], "resources": asking(cpu="3")}
    assert cpu(decode_pod(api_objects.pod(spec=spec, status=status | said))) == counts


def test_whole_pod_counts_only_resources_that_its_spec_names() -> None:
    spec = {"nodeName": "n1", "containers": [container(resources=asking(memory="1Gi"))], "resources": asking(cpu="1")}
    status = {"allocatedResources": {"cpu": "2", "memory": "9Gi"}, "resources": {"requests": {HUGE: "2Mi"}}}
    found = decode_pod(api_objects.pod(spec=spec, status=status))
    assert found.spec.request.amounts == {"cpu": 2000, "memory": 2**30}


def test_pod_level_requests_have_huge_pages_and_no_devices() -> None:
    level = {"requests": {"cpu": "2", HUGE: "4Mi", "example.com/fpga": "3"}}
    containers = [container(resources={"requests": {HUGE: "2Mi", "example.com/fpga": "1"}})]
    found = decode_pod(api_objects.pod(spec={"containers": containers, "resources": level}))
    assert found.spec.request.amounts == {"cpu": 2000, HUGE: 4 * 2**20, "example.com/fpga": 1}


def test_r14_overhead_of_a_runtime_class_counts_for_every_resource() -> None:
    device = "example.com/beardsecond"
    containers = [container(resources={"requests": {device: "200"}})]
    found = decode_pod(api_objects.pod(spec={"containers": containers, "overhead": {device: "250"}}))
    assert found.spec.request.amounts == {device: 450}


def test_bad_amount_in_the_status_names_the_field() -> None:
    found = resized("1", {"allocatedResources": {"cpu": "1.5.3"}, "resources": asking(cpu="2")})
    assert found.spec.invalid.startswith("status.containerStatuses[c].allocatedResources.cpu")
    assert cpu(found) == 2000


def test_refused_resize_is_another_class_than_one_that_waits() -> None:
    status = {"allocatedResources": SMALL, "resources": {"requests": SMALL}}
    waits, refused = (
        resized("4", status, **conditions((PENDING, reason))).spec for reason in ("Deferred", "Infeasible")
    )
    assert (waits.key == refused.key, waits.request == refused.request) == (False, False)
