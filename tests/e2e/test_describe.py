"""The output of `kubectl describe pool`."""

import json
import time
from datetime import datetime
from typing import Any

from tests.api_contract.world import condition
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import apply, create_nodes, create_pools
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, claim_object, node_object, pod_object, pool_object, volume_object


def test_describe_shows_the_numbers_the_conditions_and_the_events_of_a_pool(
    control_plane: ControlPlane, daemon: Daemon, history: History
) -> None:
    create_pools(control_plane, pool_object("first", labels={"a": "1"}), pool_object("second", labels={"b": "1"}))
    create_nodes(control_plane, [node_object("both", cpu="4", labels={"a": "1", "b": "1"})])
    create_nodes(control_plane, [node_object("one", cpu="8", labels={"a": "1"})])
    daemon.start()

    def described() -> str:
        return control_plane.kubectl("describe", "pool", "first").stdout

    history.wait_until(lambda: "NodesClaimedTwice" in described().partition("Events:")[2], "a warning about the pool")
    text = described()
    assert "Pool second also selects nodes, which belong to the pool default: both." in text
    assert "Type:                  Ready" in text
    assert text.index("Allocatable:") < text.index("Events:")
    assert "0/8" in text


def test_describe_names_the_field_of_the_claim_for_which_a_pod_waits_until_it_is_bound(
    control_plane: ControlPlane, daemon: Daemon, history: History
) -> None:
    create_nodes(control_plane, [node_object("n", cpu="4")])
    daemon.start()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    made = (claim_object("data", namespace="default"), pod_object("p", namespace="default", volumes=volumes))
    apply(control_plane, *made)

    def described() -> str:
        return control_plane.kubectl("describe", "pod", "p").stdout

    reason = "spec.volumes[0].persistentVolumeClaim: pod has unbound immediate PersistentVolumeClaims"
    history.wait_until(lambda: reason in described().partition("Events:")[2], "an event that names the claim")
    history.wait_until(lambda: "PodScheduled" in described(), "the condition")
    pod = control_plane.api("GET", "/api/v1/namespaces/default/pods/p").body
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert reason in scheduled["message"]
    apply(control_plane, volume_object("disk"))
    claim = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    completed = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    bound = {"metadata": completed, "spec": {"volumeName": "disk"}}
    changes: dict[str, dict[str, Any]] = {claim: bound, f"{claim}/status": {"status": {"phase": "Bound"}}}
    for path, change in changes.items():
        assert control_plane.api("PATCH", path, change).status == 200
    history.wait_until(lambda: "Successfully assigned" in described().partition("Events:")[2], "its node")
    for path in (claim, "/api/v1/persistentvolumes/disk"):
        control_plane.api("PATCH", path, {"metadata": {"finalizers": None}})


def test_transition_time_of_a_waiting_pod_stays_while_its_message_changes_and_after_a_restart(
    control_plane: ControlPlane, daemon: Daemon, history: History, namespace: str
) -> None:
    create_nodes(control_plane, [node_object("n1", cpu="1")])
    daemon.start()
    made = control_plane.kubectl("create", "-f", "-", stdin=json.dumps(pod_object("p", namespace=namespace, cpu="2")))
    assert made.returncode == 0, made.stderr

    def scheduled() -> Json:
        pod = control_plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/p").body
        return condition(pod, "PodScheduled")

    history.wait_until(lambda: "0/1 nodes" in scheduled().get("message", ""), "the first message")
    first = scheduled()
    since = datetime.fromisoformat(first["lastTransitionTime"]).timestamp()
    history.wait_until(lambda: time.time() >= since + 2, "a time that would show")
    create_nodes(control_plane, [node_object("n2", cpu="1")])
    history.wait_until(lambda: "0/2 nodes" in scheduled().get("message", ""), "a message about two nodes")
    assert scheduled()["lastTransitionTime"] == first["lastTransitionTime"]
    daemon.stop()
    daemon.start()
    create_nodes(control_plane, [node_object("n3", cpu="1")])
    history.wait_until(lambda: "0/3 nodes" in scheduled().get("message", ""), "a message of another process")
    assert scheduled()["lastTransitionTime"] == first["lastTransitionTime"]
