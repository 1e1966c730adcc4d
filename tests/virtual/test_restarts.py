"""Restarts of the scheduler and of the API server, and a whole run repeated from its seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds
from tests.harness import Harness
from tests.objects import job_object, node_object, pod_object, pool_object
from tests.virtual.virtual_daemon import Network

ROOT = Path(__file__).parent.parent.parent
RUN = """
from tests.virtual.test_restarts import a_busy_day
for action in a_busy_day().actions:
    print(action)
"""


def a_backlog() -> Harness:
    """Return a cluster with two nodes for eight pods, and twelve pods."""
    nodes = [node_object(name, cpu="4") for name in ("n", "m")]
    pods = [pod_object(f"p{number:02}", cpu="1") for number in range(12)]
    return Harness(*nodes, *pods, network=Network(bind_seconds=0.1))


def a_busy_day() -> Harness:
    """Run Jobs in three pools with lost answers, a deleted node, and restarts of scheduler and API server."""
    h = Harness(
        *(node_object(f"{pool}-{number}", cpu="8", labels={"pool": pool}) for pool in "abc" for number in range(4)),
        *(pool_object(pool, labels={"pool": pool}) for pool in "ab"),
        seed=seeds.number("a busy day"),
        network=Network(bind_seconds=0.05, lost_share=0.1),
    )
    for number, pool in enumerate(["a", "b", "", "a", "nowhere"]):
        h.add(job_object(f"j{number}", completions=12, parallelism=12, cpu="1", pool=pool))
        h.run(seconds=0.02)
    h.delete("Node", "a-1")
    h.run(seconds=1)
    h.restart_scheduler()
    h.run(seconds=30)
    h.restart_server()
    h.delete("Job", "j0", propagationPolicy="Background")
    h.run(seconds=120)
    return h


def test_restarted_scheduler_loses_nothing_and_binds_nothing_twice() -> None:
    h = a_backlog()
    h.run(seconds=0.05)
    assert len(h.binds) == 8
    h.run(seconds=0.06)
    h.restart_scheduler()
    h.run(seconds=30)
    bound = [name for name, node in h.nodes_of_pods().items() if node]
    assert len(bound) == len(h.binds) == 8
    h.add(node_object("o", cpu="4"))
    h.run(seconds=30)
    assert all(h.nodes_of_pods().values())
    assert len(h.binds) == len({*h.binds}) == 12


def test_scheduler_killed_with_bindings_in_flight_learns_their_outcomes() -> None:
    h = a_backlog()
    h.run(seconds=0.05)
    h.restart_scheduler()
    h.run(seconds=30)
    nodes = list(h.nodes_of_pods().values())
    assert sorted(nodes.count(node) for node in ("n", "m", "")) == [4, 4, 4]


def test_decisions_of_a_new_scheduler_have_a_prefix_of_their_own() -> None:
    h = Harness(node_object("n"), pod_object("a"))
    h.run()
    h.restart_scheduler()
    h.add(pod_object("b"))
    h.run()
    decisions = [h.marks(name)["scheduling.resource.aibee.cn/decision"] for name in ("a", "b")]
    assert decisions == ["run1-1", "run2-1"]


def test_restarted_api_server_loses_nothing() -> None:
    h = a_backlog()
    h.run(seconds=0.05)
    h.restart_server()
    h.delete("Pod", "p11")
    h.add(node_object("o", cpu="2"))
    h.run(seconds=30)
    nodes = list(h.nodes_of_pods().values())
    assert sorted(nodes.count(node) for node in ("n", "m", "o", "")) == [1, 2, 4, 4]
    assert len(h.binds) == 10


def test_pod_deleted_while_the_api_server_restarts_frees_its_room() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a", cpu="1"), pod_object("b", cpu="1"))
    h.run()
    h.restart_server()
    h.delete("Pod", "a", gracePeriodSeconds=0)
    h.run(seconds=30)
    assert h.node_of("b") == "n"


def test_busy_day_ends_with_every_pod_that_fits_on_a_node() -> None:
    h = a_busy_day()
    waiting = [name for name, node in h.nodes_of_pods().items() if not node]
    assert waiting == []
    assert h.scheduler.net_saves() == 0


def test_same_seed_gives_the_same_actions() -> None:
    assert a_busy_day().actions == a_busy_day().actions


@pytest.mark.parametrize("hash_seed", ["1", "31337"])
def test_order_of_hashes_changes_no_action(hash_seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-W", "ignore", "-c", RUN]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines() == [str(action) for action in a_busy_day().actions]
