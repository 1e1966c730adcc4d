"""The wall clock of the leader's machine jumps: the lease is kept, nothing is evicted, and pods are still bound.

Invariants:
- Only the wall clock jumps, as by NTP or by hand; monotonic clocks go on.
- The checks start after the jump took effect: the Lease is renewed with the new time.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.cluster import CPU_POOL, backlog, create_nodes, create_pods, events, later, wait_for_event, wait_until
from tests.e2e.conftest import LEASES
from tests.e2e.history import History
from tests.e2e.replicas import KubeconfigContext, Replica, judge_terms, start_both
from tests.objects import Json, node_object, pod_object

pytestmark = pytest.mark.usefixtures("cluster")

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
HOUR = 3600
JUMPS = (0, HOUR, -HOUR, 5 * 365 * 24 * HOUR, 0)
"""The errors of the clock in seconds, one after the other."""
FEW = 60
"""The pods that are created after each jump."""
CLOSE_SECONDS = 600
"""How far a time of the jumped clock may be off; every jump is longer."""

OF_PYTHON = """\
import pathlib, sys, time
offset, right = pathlib.Path({offset!r}), time.time
time.time = lambda: right() + float(offset.read_text())
from aischeduler.cli.app import main
sys.exit(main(sys.argv[1:]))
"""
"""The program with Python's `time.time` replaced."""
OF_THE_LIBRARY = """\
import os, sys
os.environ |= {environment!r}
os.execv(sys.executable, [sys.executable, "-c", {program!r}, *sys.argv[1:]])
"""
WITHOUT_NANOSLEEP = """\
import select, sys, time
time.sleep = lambda seconds: select.select((), (), (), seconds)
from aischeduler.cli.app import main
sys.exit(main(sys.argv[1:]))
"""
"""libfaketime 0.9.10 breaks clock_nanosleep if it leaves monotonic clocks unchanged."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A wall clock that jumps, and the program that reads it."""

    program: tuple[str, ...]
    offset: Path

    def jump(self, seconds: int) -> None:
        """Set the error of the clock; the file is replaced atomically."""
        new = self.offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self.offset)


@pytest.fixture(params=["time.time", pytest.param("libfaketime", marks=pytest.mark.soak)])
def clock(request: pytest.FixtureRequest, tmp_path: Path) -> Clock:
    """Yield a clock: Python's `time.time`, or that of the whole process if libfaketime is installed."""
    offset = tmp_path / "offset"
    if request.param == "time.time":
        program = OF_PYTHON.format(offset=str(offset))
    elif not LIBRARIES:
        pytest.skip("no libfaketime (Debian: `apt-get install libfaketime`); the same is tried with Python's clock")
    else:
        environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        program = OF_THE_LIBRARY.format(environment=environment, program=WITHOUT_NANOSLEEP)
    found = Clock(("-c", program), offset)
    found.jump(0)
    return found


def read_time(text: str) -> float:
    """Return a time of the API in unix seconds."""
    return datetime.fromisoformat(text).timestamp()


def renewed_by(plane: ControlPlane) -> float:
    """Return the error in seconds of the clock that renewed the Lease last."""
    spec = plane.api("GET", f"{LEASES}/ai-scheduler").body["spec"]
    return read_time(spec["renewTime"]) - time.time()


def told_by(plane: ControlPlane, namespace: str) -> dict[str, float]:
    """Return pod -> the error in seconds of the clock in its event Scheduled."""
    items = plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    return {
        one["regarding"]["name"]: read_time(one["eventTime"]) - read_time(one["metadata"]["creationTimestamp"])
        for one in items
        if one["reason"] == "Scheduled"
    }


def jump_and_bind(plane: ControlPlane, namespace: str, clock: Clock, seconds: int, pods: list[Json]) -> None:
    """Let the clock jump while pods come; wait for a renewal of the Lease and for events with the new time."""
    clock.jump(seconds)
    create_pods(plane, namespace, pods)
    wait_until(
        lambda: abs(renewed_by(plane) - seconds) < CLOSE_SECONDS, f"a renewal by a clock that is wrong by {seconds} s"
    )
    names = {pod["metadata"]["name"] for pod in pods}
    wait_until(lambda: names <= told_by(plane, namespace).keys(), "events of all pods")
    told = told_by(plane, namespace)
    assert {name: told[name] for name in names if abs(told[name] - seconds) > CLOSE_SECONDS} == {}


def test_wall_clock_that_jumps_costs_no_lease_no_pod_and_no_binding(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext, clock: Clock
) -> None:
    pods = [*backlog(namespace), *later(namespace)]
    options = ("--config", str(access.config))
    with (
        Replica(control_plane, access.kubeconfig, *options, name="leader", program=clock.program) as leader,
        Replica(control_plane, access.kubeconfig, *options, name="standby") as standby,
    ):
        start_both(leader, standby)
        create_pods(control_plane, namespace, [pod_object("parked", namespace=namespace, cpu="48", pool=CPU_POOL)])
        wait_for_event(control_plane, history, namespace, "FailedScheduling", "parked")
        for number, seconds in enumerate(JUMPS):
            jump_and_bind(control_plane, namespace, clock, seconds, pods[FEW * number : FEW * (number + 1)])
        create_nodes(control_plane, [node_object("large", cpu="64", labels={"cpu": "true"})])
        history.wait_for_bound(namespace, FEW * len(JUMPS) + 1)
        assert leader.running()
        assert standby.said("leading") == []
        assert events(control_plane, namespace, "Preempted") == {}
        assert [leader.stop(), standby.stop()] == [0, 0]
    assert len(history.nodes_of()) == len(history.bound(namespace)), "a bound pod is gone"
    assert {one.epoch for one in judge_terms(control_plane, history, namespace)} == {"0"}
    assert {one.status for one in bindings(control_plane, namespace)} == {201}
