"""The steps of a remedy: the documents that they lead to are judged in test_truth."""

from copy import deepcopy
from typing import Any

import pytest

from aischeduler.analysis.explanation import (
    AddNode,
    Edit,
    EditNode,
    EditPool,
    EndPods,
    LowerRequest,
    Remedy,
    RemedyKind,
    Start,
)
from aischeduler.analysis.remedy_steps import lowered, steps
from tests.build import a_pod
from tests.objects import Json, pod_object


def told(edit: Edit, pod: Json | None = None) -> list[Any]:
    return list(steps(Remedy(RemedyKind.FLAG, "", edit, Start("n", "pool"), (0, "")), pod or {}))


def test_pool_and_node_are_patched() -> None:
    assert told(EditPool("blue", {"disableSharing": False})) == [
        {
            "verb": "patch",
            "apiVersion": "resource.aibee.cn/v1alpha1",
            "kind": "Pool",
            "namespace": "",
            "name": "blue",
            "body": {"spec": {"disableSharing": False}},
        }
    ]
    (uncordon,) = told(EditNode("n", uncordon=True))
    assert (uncordon["kind"], uncordon["body"]) == ("Node", {"spec": {"unschedulable": False}})
    (label,) = told(EditNode("n", labels={"disk": "ssd"}))
    assert label["body"] == {"metadata": {"labels": {"disk": "ssd"}}}


def test_pods_are_deleted_by_uid() -> None:
    (step,) = told(EndPods((a_pod("p", namespace="team", uid="u"),)))
    assert (step["verb"], step["namespace"], step["name"]) == ("delete", "team", "p")
    assert step["body"] == {"preconditions": {"uid": "u"}}


def test_node_that_must_be_added_has_no_step() -> None:
    assert told(AddNode("n")) == []


def test_pod_is_made_again_with_request_and_limit_of_a_device() -> None:
    (step,) = told(LowerRequest("nvidia.com/gpu", 2), pod_object("p", cpu="1", memory="1Gi", gpu=4))
    (container,) = step["body"]["spec"]["containers"]
    assert (step["verb"], step["name"], container["image"]) == ("recreate", "p", "registry.example/worker:1")
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }


def test_limit_of_cpu_stays() -> None:
    pod = pod_object("p", cpu="2")
    pod["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "4"}
    (container,) = lowered(pod, "cpu", 1500)["containers"]
    assert (container["resources"]["limits"], container["resources"]["requests"]["cpu"]) == ({"cpu": "4"}, "1500m")


@pytest.mark.parametrize(
    ("amount", "main", "second"), [(5, "3", "2"), (4, "2", "2"), (1, "0", "1")], ids=["largest", "equal", "all"]
)
def test_largest_container_is_lowered_first(amount: int, main: str, second: str) -> None:
    pod = pod_object("p", gpu=4)
    other = deepcopy(pod["spec"]["containers"][0])
    other["name"] = "second"
    other["resources"]["requests"]["nvidia.com/gpu"] = other["resources"]["limits"]["nvidia.com/gpu"] = "2"
    pod["spec"]["containers"].append(other)
    found = lowered(pod, "nvidia.com/gpu", amount)["containers"]
    assert [one["resources"]["requests"]["nvidia.com/gpu"] for one in found] == [main, second]


def test_init_containers_and_the_overhead_count() -> None:
    pod = pod_object("p", cpu="4")
    step, sidecar = (deepcopy(pod["spec"]["containers"][0]) for _ in range(2))
    step |= {"name": "step"}
    sidecar |= {"name": "sidecar", "restartPolicy": "Always"}
    sidecar["resources"]["requests"]["cpu"] = "1"
    pod["spec"] |= {"initContainers": [sidecar, step], "overhead": {"cpu": "500m"}}
    found = lowered(pod, "cpu", 3500)
    assert found["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert [one["resources"]["requests"]["cpu"] for one in found["initContainers"]] == ["1", "2"]


def test_request_of_the_whole_pod_is_lowered_too() -> None:
    pod = pod_object("p", cpu="1")
    pod["spec"]["resources"] = {"requests": {"cpu": "4"}}
    assert lowered(pod, "cpu", 2000) == {"resources": {"requests": {"cpu": "2"}}}


def test_document_that_cannot_be_read_gives_no_step() -> None:
    pod = pod_object("p", cpu="1")
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1.5.3"
    assert told(LowerRequest("cpu", 1), pod) == told(LowerRequest("cpu", 1), {"metadata": {"name": "p"}}) == []
