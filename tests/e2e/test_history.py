"""The record of pods detects each fault."""

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.cluster import create_nodes, create_pods
from tests.e2e.history import History
from tests.objects import binding_object, node_object, pod_object


def bind(plane: ControlPlane, namespace: str, name: str, node: str) -> int:
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
    return plane.api("POST", path, binding_object(name, node)).status


def wait_for_place(history: History, namespace: str, node: str) -> None:
    history.wait_until(lambda: history.bound(namespace) == {"p": node}, f"the pod on {node}")


def test_overbooked_node_is_detected_even_for_a_moment(
    control_plane: ControlPlane, namespace: str, history: History
) -> None:
    create_nodes(control_plane, [node_object("n", cpu="1")])
    create_pods(control_plane, namespace, [pod_object(name, namespace=namespace, cpu="600m") for name in ("a", "b")])
    assert [bind(control_plane, namespace, name, "n") for name in ("a", "b")] == [201, 201]
    history.wait_for_bound(namespace, 2)
    control_plane.kubectl("delete", "pod", "a", "-n", namespace, "--force")
    history.wait_until(lambda: len(history.pods(namespace)) == 1, "the end of the first pod")
    assert history.overcommitted()[0] == "n has 1000 cpu, 1200 are used since b"


@pytest.mark.parametrize("restarted", [False, True])
def test_pod_of_an_old_name_is_another_pod(
    control_plane: ControlPlane, namespace: str, history: History, restarted: bool
) -> None:
    create_nodes(control_plane, [node_object("n", cpu="1"), node_object("m", cpu="1")])
    for node in ("n", "m"):
        create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, cpu="1")])
        assert bind(control_plane, namespace, "p", node) == 201
        wait_for_place(history, namespace, node)
        if restarted:
            control_plane.kill("kube-apiserver")
            control_plane.restart("kube-apiserver")
        if node == "n":
            control_plane.kubectl("delete", "pod", "p", "-n", namespace, "--force")
    assert sorted(history.nodes_of().values()) == [["m"], ["n"]]
    assert history.overcommitted() == []


def test_second_binding_is_in_the_record_with_its_refusal(
    control_plane: ControlPlane, namespace: str, history: History
) -> None:
    create_nodes(control_plane, [node_object("n"), node_object("m")])
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace)])
    assert [bind(control_plane, namespace, "p", node) for node in ("n", "m")] == [201, 409]
    history.wait_for_bound(namespace, 1)
    assert [(one.pod, one.node, one.status) for one in bindings(control_plane, namespace)] == [
        ("p", "n", 201),
        ("p", "m", 409),
    ]
    assert list(history.nodes_of().values()) == [["n"]]
