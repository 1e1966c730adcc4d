import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind
from tests.objects import node_object, pod_object
from tests.virtual.virtual_cluster import STARTED_AT, VirtualCluster
from tests.virtual.virtual_daemon import Network, VirtualDaemon

PODS = "/api/v1/namespaces/default/pods"


class Always:
    """A random source that always returns the same number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


def a_daemon(cluster: VirtualCluster, network: Network, chance: float = 0.0) -> VirtualDaemon:
    """A scheduler in the cluster, with one node and one pod."""
    cluster.request("POST", "/api/v1/nodes", node_object("n"))
    cluster.request("POST", PODS, pod_object("p"))
    return cluster.start(Scheduler(default_profile(), "run"), "ai-scheduler", network, Always(chance))


def is_bound(cluster: VirtualCluster) -> bool:
    return b'"nodeName":"n"' in cluster.request("GET", f"{PODS}/p").body


def binds(daemon: VirtualDaemon) -> int:
    return len([logged for logged in daemon.log if isinstance(logged.action, Bind)])


def test_clock_stops_at_the_end_of_the_run() -> None:
    cluster = VirtualCluster()
    cluster.run(86_400.0)
    assert cluster.now == STARTED_AT + 86_400.0


def test_binding_takes_as_long_as_the_network_says() -> None:
    cluster = VirtualCluster()
    daemon = a_daemon(cluster, Network(bind_seconds=2.0))
    cluster.run(1.9)
    assert (binds(daemon), is_bound(cluster)) == (1, False)
    cluster.run(0.2)
    assert is_bound(cluster)


def test_binding_with_a_lost_response_is_settled_by_reading_the_pod() -> None:
    cluster = VirtualCluster()
    daemon = a_daemon(cluster, Network(lost_share=1.0), chance=0.1)
    cluster.run(60.0)
    assert (binds(daemon), is_bound(cluster)) == (1, True)


def test_binding_that_never_reaches_the_server_is_given_up_and_tried_again() -> None:
    cluster = VirtualCluster()
    daemon = a_daemon(cluster, Network(lost_share=1.0), chance=0.9)
    cluster.run(45.0)
    assert binds(daemon) == 1
    cluster.run(30.0)
    assert (binds(daemon), is_bound(cluster)) == (2, False)


def test_stopped_scheduler_sends_nothing_more() -> None:
    cluster = VirtualCluster()
    daemon = a_daemon(cluster, Network(bind_seconds=2.0))
    cluster.run(1.0)
    cluster.stop(daemon)
    cluster.run(60.0)
    assert not is_bound(cluster)


def test_two_schedulers_of_one_name_bind_each_pod_once() -> None:
    cluster = VirtualCluster()
    first = a_daemon(cluster, Network(bind_seconds=0.1))
    second = cluster.start(Scheduler(default_profile(), "other"), "ai-scheduler", Network(), Always(0.0))
    cluster.run(10.0)
    assert (binds(first), binds(second), is_bound(cluster)) == (1, 1, True)


def test_something_that_never_ends_within_one_instant_is_an_error() -> None:
    cluster = VirtualCluster()

    def again() -> None:
        cluster.timers.put(cluster.now, again)

    cluster.timers.put(cluster.now, lambda: None)
    cluster.run(0.0)
    cluster.timers.put(cluster.now, again)
    with pytest.raises(RuntimeError, match="does not end"):
        cluster.run(1.0)
