"""A gang that started is kept by the next scheduler, whatever became of its other pods."""

import json
import time

import pytest

from aischeduler.engine.gangs import FINISH_SECONDS
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, pod
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.gang_objects import gang_labels
from tests.objects import node_object, pod_object

pytestmark = pytest.mark.usefixtures("cluster")

NODE = "of-three"
"""The only node of the default pool."""
SUCCEEDED = json.dumps({"status": {"phase": "Succeeded"}})


@pytest.mark.timeout(240)
def test_gang_below_its_minimum_is_kept_after_a_restart_beside_a_pod_that_never_fitted(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    create_nodes(control_plane, [node_object(NODE, cpu="3")])
    daemon.start()
    labels = gang_labels("g", "3")
    pods = [pod_object(f"g-{turn}", namespace=namespace, cpu="1", memory="64Mi", labels=labels) for turn in range(4)]
    create_pods(control_plane, namespace, pods)
    history.wait_for_bound(namespace, 3)
    running = sorted(history.bound(namespace))
    assert control_plane.kubectl("cordon", NODE).returncode == 0
    ended = ("patch", "pod", running[0], "-n", namespace, "--subresource=status", "-p", SUCCEEDED)
    assert control_plane.kubectl(*ended).returncode == 0
    daemon.kill()
    daemon.start()
    time.sleep(FINISH_SECONDS + 5)
    for name in running[1:]:
        assert "deletionTimestamp" not in pod(control_plane, namespace, name)["metadata"]
    assert daemon.said("evict") == []
    assert control_plane.kubectl("uncordon", NODE).returncode == 0
    history.wait_for_bound(namespace, 4)
