"""An invalid object gets an event or a condition, and affects no other object."""

import json

import pytest

from aischeduler.kube.crds import pool_crd
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    CPU_POOL,
    condition,
    create_nodes,
    create_pods,
    create_pools,
    events,
    install,
    pod,
    wait_for_event,
)
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object, pool_object

LARGE_BYTES = 250_000
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"


@pytest.fixture
def running(cluster: None, daemon: Daemon) -> Daemon:
    """Return the running scheduler on the cluster of the examples."""
    daemon.start()
    return daemon


def others_go_on(plane: ControlPlane, history: History, namespace: str) -> None:
    """Check that a pod of an ordinary pool is bound."""
    create_pods(plane, namespace, [pod_object("other", namespace=namespace, pool=CPU_POOL)])
    history.wait_until(lambda: "other" in history.bound(namespace), "the other pod bound")


def pool_condition(plane: ControlPlane, history: History, name: str, kind: str, status: str) -> Json:
    """Wait until a Pool has this condition with this status."""

    def found() -> Json:
        return condition(plane.api("GET", f"{POOLS}/{name}").body, kind)

    history.wait_until(lambda: found().get("status") == status, f"{kind}={status} of the pool {name}")
    return found()


def test_pool_with_an_operator_that_does_not_exist_is_refused_by_kubectl(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    expression = {"key": "team", "operator": "Near", "values": ["a"]}
    bad = pool_object("bad", nodeSelector={"matchExpressions": [expression]})
    applied = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(bad))
    assert applied.returncode == 1
    assert 'spec.nodeSelector.matchExpressions[0].operator: Unsupported value: "Near"' in applied.stderr
    others_go_on(control_plane, history, namespace)


def test_pod_with_an_annotation_of_250_kilobytes_is_bound(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    large = pod_object("large", namespace=namespace, pool=CPU_POOL, annotations={"note": "x" * LARGE_BYTES})
    create_pods(control_plane, namespace, [large])
    history.wait_until(lambda: "large" in history.bound(namespace), "the pod with the large annotation bound")
    others_go_on(control_plane, history, namespace)


def test_pool_name_of_250_kilobytes_is_cut_wherever_it_is_shown(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool="y" * LARGE_BYTES)])
    said = wait_for_event(control_plane, history, namespace, "UnknownPool", "p")
    assert "yyyyyyyy" in said
    assert len(said) < 1024
    others_go_on(control_plane, history, namespace)
    assert len(running.log) < LARGE_BYTES


def test_line_breaks_and_escapes_in_a_pool_name_are_escaped_in_the_log(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    nasty = 'cpu-pool\n{"event":"bind","pod":"forged"}\r\x1b[31m{}'
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool=nasty)])
    said = wait_for_event(control_plane, history, namespace, "UnknownPool", "p")
    assert "\n" not in said
    assert "\x1b" not in said
    assert "cpu-pool" in said
    others_go_on(control_plane, history, namespace)
    assert [line["pod"] for line in running.said("bind")] == ["other"]
    assert "\x1b" not in running.log


def test_invalid_quantity_is_refused_by_the_server_and_affects_no_other_pod(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    bad = pod_object("bad", namespace=namespace, cpu="1.5.3", pool=CPU_POOL)
    applied = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(bad))
    assert applied.returncode == 1
    assert "quantities must match the regular expression" in applied.stderr
    others_go_on(control_plane, history, namespace)


def test_pod_with_an_enormous_request_waits_and_affects_no_other_pod(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    huge = pod_object("huge", namespace=namespace, cpu="1E", memory="7E", pool=CPU_POOL)
    create_pods(control_plane, namespace, [huge])
    said = wait_for_event(control_plane, history, namespace, "FailedScheduling", "huge")
    assert said.startswith(f"pool {CPU_POOL}: 0/12 nodes are available: 12 Insufficient cpu, 12 Insufficient memory.")
    others_go_on(control_plane, history, namespace)


def test_node_without_any_resources_takes_no_pod(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    create_nodes(control_plane, [bare])
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace)])
    refused = "pool default: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods."

    def is_told() -> bool:  # the pod may be seen, and tried, before the node
        return events(control_plane, namespace, "FailedScheduling").get("p", "").startswith(refused)

    history.wait_until(is_told, "an event that names the node without resources")
    others_go_on(control_plane, history, namespace)


def test_without_the_pool_resource_everything_belongs_to_the_default_pool_until_it_is_defined(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    definitions = f"crd/{pool_crd()['metadata']['name']}"
    deleted = control_plane.kubectl("delete", definitions, "--wait=true")
    assert deleted.returncode == 0, deleted.stderr
    try:
        create_nodes(control_plane, [node_object("n")])
        create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool="later")])
        daemon.launch()  # it decides, but is not ready without the definition
        history.wait_until(lambda: history.bound(namespace) == {"p": "n"}, "the pod bound without Pools")
    finally:
        install(control_plane)
    create_nodes(control_plane, [node_object("m", labels={"later": "true"})])
    create_pools(control_plane, pool_object("later", labels={"later": "true"}))
    pool_condition(control_plane, history, "later", "Accepted", "True")
    create_pods(control_plane, namespace, [pod_object("q", namespace=namespace, pool="later")])
    history.wait_until(lambda: history.bound(namespace).get("q") == "m", "the pod in the pool that came")
    assert pod(control_plane, namespace, "q")["spec"]["nodeName"] == "m"
