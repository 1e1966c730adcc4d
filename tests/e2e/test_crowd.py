"""Many pods, and failures while they are bound: no pod is lost or bound twice, and no node is overcommitted."""

import time
from datetime import datetime
from pathlib import Path

import pytest

from aischeduler.kube.report.report_queue import LANE_IN_FLIGHT_MAX
from tests.controlplane.many import Request, send
from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.cluster import CPU_POOL, backlog, condition, create_pods, events, later, pod, wait_for_event
from tests.e2e.crowd_invariants import judge
from tests.e2e.daemon import MODULE, WITHOUT_UVLOOP, Daemon
from tests.e2e.history import History
from tests.e2e.replicas import Arrivals
from tests.objects import pod_object

pytestmark = pytest.mark.usefixtures("cluster")

MIDDLE = 60
"""The number of bound pods at the time of a failure."""
ALL = 300
FEW = 10
"""Pods that are bound when a part is stopped that must leave some: the record may be behind by many."""
FEW_IN_FLIGHT = """\
apiVersion: config.resource.aibee.cn/v1alpha1
kind: AiSchedulerConfiguration
bindInFlight: 8
"""
"""Few Bindings in flight, so that some pods are not decided yet in the middle."""
PER_SECOND, BURST = 5, 50
FEW_EVENTS = f"""\
apiVersion: config.resource.aibee.cn/v1alpha1
kind: AiSchedulerConfiguration
events: {{perSecond: {PER_SECOND}, burst: {BURST}}}
"""
AT_ONCE = {"gracePeriodSeconds": 0}
SUCCEEDED = {"status": {"phase": "Succeeded"}}


def halfway(plane: ControlPlane, namespace: str, daemon: Daemon, history: History, bound: int = MIDDLE) -> None:
    """Start the scheduler, and wait until half of the backlog is bound, or so many pods."""
    create_pods(plane, namespace, backlog(namespace))
    daemon.launch()
    history.wait_for_bound(namespace, bound)


@pytest.mark.parametrize(
    "program", [pytest.param(MODULE, id="uvloop"), pytest.param(WITHOUT_UVLOOP, id="asyncio", marks=pytest.mark.soak)]
)
def test_backlog_and_pods_created_meanwhile_are_all_bound_once(
    control_plane: ControlPlane, namespace: str, history: History, program: tuple[str, ...]
) -> None:
    create_pods(control_plane, namespace, backlog(namespace))
    with Daemon(control_plane, program=program) as daemon:
        daemon.launch()
        history.wait_for_bound(namespace, 1)
        create_pods(control_plane, namespace, later(namespace))
        history.wait_for_bound(namespace, ALL)
        assert daemon.stop() == 0
    judge(control_plane, history, namespace)
    assert [one.status for one in bindings(control_plane, namespace)] == [201] * ALL
    assert len(daemon.said("bind")) == ALL, "each decision has one log line"


def test_two_schedulers_by_mistake_bind_every_pod_and_none_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    """Nodes may be overbooked here: only leader election prevents that."""
    create_pods(control_plane, namespace, backlog(namespace))
    daemon.launch()
    with Daemon(control_plane, name="other-scheduler") as other:
        other.launch()
        history.wait_for_bound(namespace, len(backlog(namespace)))
        assert [daemon.stop(), other.stop()] == [0, 0]
    assert {len(nodes) for nodes in history.nodes_of().values()} == {1}
    answered = bindings(control_plane, namespace)
    accepted = [one.uid for one in answered if one.status == 201]
    assert len(accepted) == len(set(accepted)) == len(backlog(namespace))
    assert {one.status for one in answered} <= {201, 409}


def test_killed_scheduler_loses_nothing_and_binds_nothing_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history, FEW)
    daemon.kill()
    assert len(history.bound(namespace)) < len(backlog(namespace))
    create_pods(control_plane, namespace, later(namespace))
    daemon.launch()
    history.wait_for_bound(namespace, ALL)
    judge(control_plane, history, namespace)


def test_killed_api_server_loses_nothing_and_binds_nothing_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history, FEW)
    control_plane.kill("kube-apiserver")
    assert len(history.bound(namespace)) < len(backlog(namespace))
    control_plane.restart("kube-apiserver")
    create_pods(control_plane, namespace, later(namespace))
    history.wait_for_bound(namespace, ALL)
    assert daemon.running()
    assert daemon.said("list or watch failed") != []
    judge(control_plane, history, namespace)


@pytest.mark.soak
def test_graceful_end_of_the_api_server_while_pods_come_loses_nothing_and_binds_nothing_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    """The server refuses connections at once, but watches stay open for a minute: the daemon reads but cannot write."""
    halfway(control_plane, namespace, daemon, history)
    log_before = len(control_plane.log("kube-apiserver"))
    with Arrivals(control_plane, namespace, later(namespace), 5) as arrivals:
        control_plane.restart("kube-apiserver", gracefully=True)
        assert "Stopped listening on" in control_plane.log("kube-apiserver")[log_before:]
        history.wait_for_bound(namespace, ALL, 90)
    assert arrivals.failure is not None, "pods came while the API server ended"
    assert daemon.running()
    judge(control_plane, history, namespace)


def test_killed_etcd_loses_nothing_and_binds_nothing_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history)
    control_plane.restart("etcd")
    history.wait_for_bound(namespace, len(backlog(namespace)))
    assert daemon.running()
    judge(control_plane, history, namespace)


def test_silent_api_server_costs_only_the_time_of_its_silence(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history)
    control_plane.pause("kube-apiserver")
    time.sleep(2.0)
    control_plane.resume("kube-apiserver")
    history.wait_for_bound(namespace, len(backlog(namespace)))
    judge(control_plane, history, namespace)


def test_paused_scheduler_continues_where_it_was(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history)
    daemon.pause()
    create_pods(control_plane, namespace, later(namespace))
    daemon.resume()
    history.wait_for_bound(namespace, ALL)
    judge(control_plane, history, namespace)


def test_terminated_scheduler_finishes_what_is_in_flight_and_exits_with_0(
    control_plane: ControlPlane, namespace: str, history: History, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FEW_IN_FLIGHT)
    with Daemon(control_plane, None, "--config", str(config)) as daemon:
        halfway(control_plane, namespace, daemon, history, FEW)
        assert daemon.stop() == 0
        decided = {line["uid"] for line in daemon.said("bind")}
        bound = {one.pod for one in bindings(control_plane, namespace)}
        assert decided == {one.uid for one in bindings(control_plane, namespace) if one.status == 201}
        assert len(decided) < len(backlog(namespace))
        assert set(events(control_plane, namespace, "Scheduled")) == bound
        daemon.launch()
        history.wait_for_bound(namespace, len(backlog(namespace)))
    judge(control_plane, history, namespace)


def test_events_of_many_pods_come_at_their_rate_and_delay_no_condition_no_warning_and_no_exit(
    control_plane: ControlPlane, namespace: str, history: History, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FEW_EVENTS)
    create_pods(control_plane, namespace, backlog(namespace))
    with Daemon(control_plane, None, "--config", str(config)) as daemon:
        daemon.launch()
        history.wait_for_bound(namespace, len(backlog(namespace)))
        create_pods(control_plane, namespace, [pod_object("vast", namespace=namespace, cpu="48", pool=CPU_POOL)])
        said = wait_for_event(control_plane, history, namespace, "FailedScheduling", "vast")
        history.wait_until(lambda: why_waiting(control_plane, namespace, "vast") == said, "its condition")
        assert daemon.stop() == 0
        (left,) = daemon.said("events not written")
    moments = event_moments(control_plane, namespace)
    assert len(moments) + left["count"] == len(backlog(namespace)) + 1
    at_once = BURST + LANE_IN_FLIGHT_MAX  # each writer may have a token that it uses later
    soonest = [moments[0] + max(0, number + 1 - at_once) / PER_SECOND for number in range(len(moments))]
    assert [number for number, at in enumerate(moments) if at < soonest[number] - 0.5] == []
    judge(control_plane, history, namespace)


def why_waiting(plane: ControlPlane, namespace: str, name: str) -> str | None:
    return condition(pod(plane, namespace, name), "PodScheduled").get("message")


def event_moments(plane: ControlPlane, namespace: str) -> list[float]:
    """Return when each event of a namespace was sent, by the clock of its sender."""
    items = plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    return sorted(datetime.fromisoformat(item["eventTime"]).timestamp() for item in items)


def test_pods_recreated_under_their_names_meanwhile_are_bound_again(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    halfway(control_plane, namespace, daemon, history)
    pods = backlog(namespace)
    replaced = pods[::2]
    path = f"/api/v1/namespaces/{namespace}/pods"
    send(control_plane.connect, [Request("DELETE", f"{path}/{pod['metadata']['name']}", AT_ONCE) for pod in replaced])
    create_pods(control_plane, namespace, replaced)
    history.wait_until(lambda: len(history.bound(namespace)) == len(pods), "every pod, old or new, bound")
    judge(control_plane, history, namespace)
    assert len(history.nodes_of()) == len(pods) + len(replaced)


def test_room_of_finished_pods_is_used_again_and_never_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    """250 pods of four CPUs run in the room for 48 in cpu-pool; a bound pod soon succeeds."""
    pods = [pod_object(f"p-{n:03d}", namespace=namespace, cpu="4", memory="64Mi", pool=CPU_POOL) for n in range(250)]
    create_pods(control_plane, namespace, pods)
    daemon.launch()
    done: dict[str, None] = {}
    deadline = time.monotonic() + 60.0
    while len(done) < len(pods):
        assert time.monotonic() < deadline, f"{len(done)} pods came through"
        new = [name for name in history.bound(namespace) if name not in done]
        path = f"/api/v1/namespaces/{namespace}/pods"
        send(control_plane.connect, [Request("PATCH", f"{path}/{name}/status", SUCCEEDED) for name in new])
        done |= dict.fromkeys(new)
    judge(control_plane, history, namespace)
