"""What people see of elastic jobs on a real API server: `jobs`, `explain job/NAME`, and `plan`."""

import json
from pathlib import Path

import pytest

from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pools
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.e2e.test_access import command
from tests.e2e.test_elastic import POOL, running, start_job
from tests.objects import job_object, node_object, pool_object


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of two nodes of four CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object(f"node-{n}", cpu="4", labels={"team": "a"}) for n in range(2)])


def test_commands_show_a_job_that_has_grown_and_what_another_one_would_do(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part, tmp_path: Path
) -> None:
    where = ("--kubeconfig", str(control_plane.kubeconfig))
    daemon.start()
    start_job(control_plane, namespace, "train", 2, 60, window="5m")
    history.wait_until(lambda: len(running(history, namespace, "train")) == 8, "instances on all CPUs", 30.0)

    listed = command("jobs", "-n", namespace, "-o", "json", *where)
    assert (listed.returncode, listed.stderr) == (0, "")
    (row,) = json.loads(listed.stdout)
    assert (row["kind"], row["name"], row["size"], row["running"]) == ("Job", "train", 8, 8)
    assert (row["minInstances"], row["maxInstances"], row["nextSize"], row["state"]) == (2, 60, None, "running")
    assert row["frozenUntilSeconds"] > 0
    assert row["serviceCoreSeconds"] >= 0

    table = command("jobs", *where)
    assert f"Job/{namespace}/train" in table.stdout
    assert "8/8/2-60" in table.stdout

    explained = command("explain", "job/train", "-n", namespace, *where)
    assert (explained.returncode, explained.stderr) == (0, "")
    first, _, why, *_ = explained.stdout.splitlines()
    assert first == f"Job/{namespace}/train is elastic: 8 of its 8 instances are on nodes, between 2 and 60."
    assert why.startswith("Why this size: It is frozen until ")
    assert explained.stdout.count(f"{namespace}/train-") == 8

    file = tmp_path / "other.json"
    document = job_object("other", namespace=namespace, completions=4, parallelism=4, cpu="1", pool=POOL)
    document["spec"]["completionMode"] = "Indexed"
    document["metadata"]["annotations"] = {
        "resource.aibee.cn/min-instances": "2",
        "resource.aibee.cn/max-instances": "4",
        "resource.aibee.cn/priority-level": "Production",
    }
    file.write_text(json.dumps(document))
    planned = command("plan", "-f", str(file), "-o", "json", *where)
    assert planned.returncode == 0, planned.stderr
    made = json.loads(planned.stdout)
    (unit,) = made["units"]
    assert (unit["pods"], unit["verdict"], unit["evicts"]) == (2, "starts", [])
    assert unit["instances"]["minimum"] == 2
    assert made["resizes"] == [{"job": f"Job/{namespace}/train", "before": 8, "after": 6}]
