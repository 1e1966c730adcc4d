"""Two releases with different scheduler names in one cluster: they share Pools without conflict."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.commands import SCHEDULER
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import POOLS_PATH, create_nodes, create_pods, create_pools, pod
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.e2e.rights import used
from tests.objects import node_object, pod_object, pool_object

OTHER = "other-scheduler"
CHANGES = 6
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def other(control_plane: ControlPlane, clean_cluster: None, pools_served: None, tmp_path: Path) -> Iterator[Daemon]:
    """Yield a scheduler of another name, not yet started."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"schedulerName": OTHER}))
    with Daemon(control_plane, None, "--config", str(config), name=OTHER) as daemon:
        yield daemon


def status(plane: ControlPlane, name: str) -> Any:
    return plane.api("GET", f"{POOLS_PATH}/{name}").body.get("status", {})


def counts_pods(plane: ControlPlane, pods: int) -> bool:
    return bool(status(plane, "a").get("pods") == pods)


def keepers(plane: ControlPlane) -> set[str]:
    """Return the schedulers that the statuses of all Pools name; an empty name for a Pool without a status."""
    pools = plane.api("GET", POOLS_PATH).body["items"]
    named = {one.get("status", {}).get("scheduler", "") for one in pools}
    return named if "default" in {one["metadata"]["name"] for one in pools} else named | {""}


def writes(plane: ControlPlane, since: int) -> int:
    """Return how many statuses of Pools were written, from this byte of the audit log on."""
    patched = ("resource.aibee.cn", "pools/status", "patch")
    return [right for right, _ in used(plane, SCHEDULER, since)].count(patched)


def test_two_schedulers_do_not_overwrite_each_others_status_and_one_logs_it_once(
    control_plane: ControlPlane, namespace: str, history: History, daemon: Daemon, other: Daemon
) -> None:
    create_pools(control_plane, pool_object("a", labels={"pool": "a"}))
    create_nodes(control_plane, [node_object("n", cpu="100", labels={"pool": "a"})])
    daemon.start()
    history.wait_until(lambda: keepers(control_plane) == {"ai-scheduler"}, "the statuses of the first")
    other.start()
    since = control_plane.audit_log.stat().st_size
    for number in range(CHANGES):
        ours = pod_object(f"ours-{number}", namespace=namespace, cpu="1", pool="a")
        theirs = pod_object(f"theirs-{number}", namespace=namespace, cpu="1", pool="a", scheduler_name=OTHER)
        create_pods(control_plane, namespace, [ours, theirs])
        history.wait_for_bound(namespace, 2 * number + 2)
        history.wait_until(partial(counts_pods, control_plane, 2 * number + 2), "the number of pods")
    told = status(control_plane, "a")
    assert keepers(control_plane) == {"ai-scheduler"}
    assert (told["scheduler"], told["own"]["cpu"], told["system"]["cpu"]) == (
        "ai-scheduler",
        str(CHANGES),
        str(CHANGES),
    )
    # A pod changes the status when it is assumed, bound and observed; two writers in conflict write endlessly.
    assert writes(control_plane, since) <= 4 * CHANGES
    (line,) = other.said("pool statuses not written")
    assert (line["level"], line["scheduler"]) == ("warning", "ai-scheduler")
    assert daemon.said("pool statuses not written") == []
    assert pod(control_plane, namespace, "theirs-0")["spec"]["nodeName"] == "n"


def test_statuses_whose_writer_is_gone_are_taken_over(
    control_plane: ControlPlane, history: History, daemon: Daemon, other: Daemon
) -> None:
    """The writer stopped some minutes ago: its last status has an old renewTime."""
    create_pools(control_plane, pool_object("a", labels={"pool": "a"}))
    daemon.start()
    history.wait_until(lambda: keepers(control_plane) == {"ai-scheduler"}, "the first statuses")
    assert daemon.stop() == 0
    renewed = json.dumps({"status": {"renewTime": LONG_AGO}})
    for name in ("a", "default"):
        patched = control_plane.kubectl("patch", "pool", name, "--subresource=status", "--type=merge", "-p", renewed)
        assert patched.returncode == 0, patched.stderr
    other.start()
    history.wait_until(lambda: keepers(control_plane) == {OTHER}, "the other one's statuses")
    assert other.said("pool statuses not written") == []
