"""One scheduler leads and another stands by: whatever ends the leader, no pod is lost and no pod is bound twice."""

import time

import pytest

from aischeduler.daemon.leadership import LOST_LEASE
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import backlog, later, wait_until
from tests.e2e.history import History
from tests.e2e.release import Release
from tests.e2e.replicas import LOST, Arrivals, KubeconfigContext, first_of, judge_terms, stand_by, two_replicas

pytestmark = pytest.mark.usefixtures("cluster")

ALL = 300
BEFORE = 30
"""The number of bound pods before the leader ends."""


def arrivals(plane: ControlPlane, namespace: str, seconds: float) -> Arrivals:
    return Arrivals(plane, namespace, [*backlog(namespace), *later(namespace)], seconds)


def test_standby_leads_when_the_lease_of_a_killed_leader_expires(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    with two_replicas(control_plane, access) as (leader, standby), arrivals(control_plane, namespace, 9):
        history.wait_for_bound(namespace, BEFORE)
        leader.kill()
        print(f"killed: {first_of(control_plane, namespace, 1):.2f} s to the first Binding of the next leader")
        history.wait_for_bound(namespace, ALL, 60)
        assert standby.stop() == 0
    assert {one.epoch for one in judge_terms(control_plane, history, namespace)} == {"0", "1"}


def test_terminated_leader_finishes_and_hands_over_at_once(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    with two_replicas(control_plane, access) as (leader, standby), arrivals(control_plane, namespace, 5):
        history.wait_for_bound(namespace, BEFORE)
        assert leader.stop() == 0
        print(f"terminated: {first_of(control_plane, namespace, 1):.2f} s to the first Binding of the next leader")
        history.wait_for_bound(namespace, ALL, 60)
        assert leader.said("lease released") != []
        assert standby.stop() == 0
    answered = judge_terms(control_plane, history, namespace)
    assert {one.epoch for one in answered} == {"0", "1"}
    assert {one.status for one in answered} == {201}, "the next leader knew of every Binding of the last one"


def test_paused_leader_writes_nothing_when_it_continues_after_its_lease_expired(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    with two_replicas(control_plane, access) as (leader, standby), arrivals(control_plane, namespace, 10):
        history.wait_for_bound(namespace, BEFORE)
        leader.pause()
        print(f"paused: {first_of(control_plane, namespace, 1):.2f} s to the first Binding of the next leader")
        leader.resume()
        wait_until(lambda: leader.end_status() is not None, "the end of the deposed leader")
        assert leader.end_status() == LOST_LEASE
        assert len(leader.said(LOST)) == 1
        history.wait_for_bound(namespace, ALL, 60)
        assert standby.stop() == 0
    judge_terms(control_plane, history, namespace)


@pytest.mark.soak
def test_restart_of_the_api_server_leaves_one_leader_and_loses_nothing(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    with two_replicas(control_plane, access) as (leader, standby), arrivals(control_plane, namespace, 9):
        history.wait_for_bound(namespace, BEFORE)
        control_plane.restart("kube-apiserver")
        history.wait_for_bound(namespace, ALL, 90)
        leading = [one for one in (leader, standby) if one.running() and one.samples("ai_scheduler_leader")[0].value]
        assert len(leading) == 1
        assert leading[0].stop() == 0
    judge_terms(control_plane, history, namespace)


@pytest.mark.soak
def test_leader_leads_on_after_the_api_server_was_paused_for_ten_seconds(
    control_plane: ControlPlane, namespace: str, history: History, release: Release
) -> None:
    release.install()
    with two_replicas(control_plane, release.access()) as (leader, standby), arrivals(control_plane, namespace, 9):
        history.wait_for_bound(namespace, BEFORE)
        control_plane.pause("kube-apiserver")
        time.sleep(10.0)
        control_plane.resume("kube-apiserver")
        history.wait_for_bound(namespace, ALL, 60)
        assert standby.running()
        assert standby.said("leading") == []
        assert leader.stop() == 0
    assert {one.epoch for one in judge_terms(control_plane, history, namespace)} == {"0"}


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(10))
def test_many_handovers_with_the_default_lease(
    control_plane: ControlPlane, namespace: str, history: History, release: Release, number: int
) -> None:
    """A leader is killed, stopped and paused for thirty seconds, and the API server is restarted, while pods arrive."""
    release.install()
    took: dict[str, float] = {}
    with two_replicas(control_plane, release.access()) as (leader, standby), arrivals(control_plane, namespace, 100):
        history.wait_for_bound(namespace, BEFORE)
        leader.kill()
        took["killed"] = first_of(control_plane, namespace, 1)
        stand_by(leader)
        assert standby.stop() == 0
        took["told to stop"] = first_of(control_plane, namespace, 2)
        stand_by(standby)
        leader.pause()
        took["paused"] = first_of(control_plane, namespace, 3)
        time.sleep(max(0.0, 30.0 - took["paused"]))
        leader.resume()
        wait_until(lambda: leader.end_status() is not None, "the end of the deposed leader")
        assert leader.end_status() == LOST_LEASE
        stand_by(leader)
        control_plane.restart("kube-apiserver")
        history.wait_for_bound(namespace, ALL, 180)
        running = [one for one in (leader, standby) if one.running()]
        assert sum(one.samples("ai_scheduler_leader")[0].value for one in running) == 1
        assert [one.stop() for one in running] == [0] * len(running)
    answered = judge_terms(control_plane, history, namespace)
    seconds = ", ".join(f"{what} {found:.2f} s" for what, found in took.items())
    print(f"run {number}: {len(answered)} Bindings, none lost, none doubled; to the next leader's first: {seconds}")
