"""The chart's admission policies for devices, on a real API server: what they add, and what they refuse."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY, GPU_UUIDS_KEY
from tests.chart.rendering import Helm
from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import wait_until

SERVED = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
VARIABLE = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{GPU_UUIDS_KEY}']"}},
}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def policies(control_plane: ControlPlane) -> Iterator[None]:
    """The policies, once they are in force."""
    rendered = Helm(the_helm()).render({"devices": {"policies": True}}, SERVED)
    objects = [found for found in rendered.objects if "Policy" in found["kind"] and "Admission" in found["kind"]]
    assert len(objects) == 4
    for found in objects:
        if found["kind"] == "MutatingAdmissionPolicy":
            found["spec"]["failurePolicy"] = "Fail"  # an expression that fails would be silent
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    applied = control_plane.kubectl("apply", "--validate=strict", "-f", "-", stdin=listed)
    assert applied.returncode == 0, applied.stderr
    asking, forged = a_pod("probe", [asks("kubernetes.io/gpu")]), a_pod("probe", [{}], forged=True)
    wait_until(lambda: "env" in created(control_plane, asking)["spec"]["containers"][0], "the variable is added")
    wait_until(lambda: bool(refusal(control_plane, forged)), "the annotation is refused")
    yield
    deleted = control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listed)
    assert deleted.returncode == 0, deleted.stderr


def asks(name: str, **fields: Any) -> Json:
    amounts = {name: "1" if name.startswith("nvidia") else "50"}
    limits = {} if name.startswith("kubernetes") else {"limits": amounts}
    return {"resources": {"requests": amounts, **limits}, **fields}


def a_pod(
    name: str, containers: list[Json], *, init: tuple[Json, ...] = (), ours: bool = True, forged: bool = False
) -> Json:
    annotations = {DEVICE_ALLOCATED_KEY: "{}"} if forged else {}
    scheduler = {"schedulerName": "ai-scheduler"} if ours else {}
    named = [{"name": f"c{at}", "image": "i", **one} for at, one in enumerate(containers)]
    first = [{"name": f"i{at}", "image": "i", **one} for at, one in enumerate(init)]
    spec = {**scheduler, "containers": named, "initContainers": first}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def created(plane: ControlPlane, pod: Json) -> Json:
    ran = plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    assert ran.returncode == 0, ran.stderr
    found: Json = json.loads(ran.stdout)
    return found


def refusal(plane: ControlPlane, pod: Json) -> str:
    ran = plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    return ran.stderr if ran.returncode else ""


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("name", ["kubernetes.io/gpu-core", "koordinator.sh/gpu-memory-ratio"])
def test_containers_that_ask_for_gpus_by_name_see_those_of_the_binding(control_plane: ControlPlane, name: str) -> None:
    other = {"name": "OTHER", "value": "1"}
    spec = created(control_plane, a_pod("p", [asks(name), {}, asks(name, env=[other])], init=(asks(name),)))["spec"]
    assert [one.get("env") for one in spec["containers"]] == [[VARIABLE], None, [other, VARIABLE]]
    assert spec["initContainers"][0]["env"] == [VARIABLE]


@pytest.mark.usefixtures("policies")
def test_containers_that_say_themselves_what_they_see_keep_it(control_plane: ControlPlane) -> None:
    own = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}
    spec = created(control_plane, a_pod("p", [asks("kubernetes.io/gpu", env=[own])]))["spec"]
    assert spec["containers"][0]["env"] == [own]


@pytest.mark.usefixtures("policies")
def test_counts_of_gpus_and_pods_of_other_schedulers_are_left_alone(control_plane: ControlPlane) -> None:
    counted = created(control_plane, a_pod("p", [asks("nvidia.com/gpu")]))
    others = created(control_plane, a_pod("p", [asks("kubernetes.io/gpu")], ours=False))
    assert ["env" in found["spec"]["containers"][0] for found in (counted, others)] == [False, False]


@pytest.mark.usefixtures("policies")
def test_only_the_binding_says_which_devices_a_pod_has(control_plane: ControlPlane, namespace: str) -> None:
    assert "is written with the Binding" in refusal(control_plane, a_pod("p", [{}], forged=True))
    pod = a_pod("p", [{}])
    pod["metadata"]["namespace"] = namespace
    assert control_plane.kubectl("create", "-f", "-", stdin=json.dumps(pod)).returncode == 0
    ran = control_plane.kubectl("annotate", "pod", "p", "-n", namespace, f"{GPU_UUIDS_KEY}=GPU-1")
    assert "is written with the Binding" in ran.stderr
    labelled = control_plane.kubectl("label", "pod", "p", "-n", namespace, "a=b")
    assert labelled.returncode == 0, labelled.stderr
