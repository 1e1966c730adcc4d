import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind
from aischeduler.sim.virtual_cluster import STARTED_AT, VirtualCluster
from aischeduler.sim.virtual_shell import Network, VirtualShell
from tests.objects import node_object, pod_object

PODS = "/api/v1/namespaces/default/pods"


class Always:
    """Chance that always comes out the same."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


def a_shell(cluster: VirtualCluster, network: Network, chance: float = 0.0) -> VirtualShell:
    """A scheduler in the cluster, with one node and one pod."""
    cluster.ask("POST", "/api/v1/nodes", node_object("n"))
    cluster.ask("POST", PODS, pod_object("p"))
    return cluster.start(Scheduler(default_profile(), "run"), "ai-scheduler", network, Always(chance))


def is_bound(cluster: VirtualCluster) -> bool:
    return b'"nodeName":"n"' in cluster.ask("GET", f"{PODS}/p").body


def binds(shell: VirtualShell) -> int:
    return len([logged for logged in shell.log if isinstance(logged.action, Bind)])


def test_time_passes_only_as_far_as_it_is_let() -> None:
    cluster = VirtualCluster()
    cluster.run(86_400.0)
    assert cluster.now == STARTED_AT + 86_400.0


def test_binding_takes_as_long_as_the_network_says() -> None:
    cluster = VirtualCluster()
    shell = a_shell(cluster, Network(bind_seconds=2.0))
    cluster.run(1.9)
    assert (binds(shell), is_bound(cluster)) == (1, False)
    cluster.run(0.2)
    assert is_bound(cluster)


def test_lost_answer_of_a_binding_that_arrived_is_found_out_by_reading() -> None:
    cluster = VirtualCluster()
    shell = a_shell(cluster, Network(lost_share=1.0), chance=0.1)
    cluster.run(60.0)
    assert (binds(shell), is_bound(cluster)) == (1, True)


def test_binding_that_never_arrives_is_given_up_and_tried_anew() -> None:
    cluster = VirtualCluster()
    shell = a_shell(cluster, Network(lost_share=1.0), chance=0.9)
    cluster.run(45.0)
    assert binds(shell) == 1
    cluster.run(30.0)
    assert (binds(shell), is_bound(cluster)) == (2, False)


def test_stopped_scheduler_sends_nothing_more() -> None:
    cluster = VirtualCluster()
    shell = a_shell(cluster, Network(bind_seconds=2.0))
    cluster.run(1.0)
    cluster.stop(shell)
    cluster.run(60.0)
    assert not is_bound(cluster)


def test_two_schedulers_of_one_name_bind_each_pod_once() -> None:
    cluster = VirtualCluster()
    first = a_shell(cluster, Network(bind_seconds=0.1))
    second = cluster.start(Scheduler(default_profile(), "other"), "ai-scheduler", Network(), Always(0.0))
    cluster.run(10.0)
    assert (binds(first), binds(second), is_bound(cluster)) == (1, 1, True)


def test_something_that_moves_for_ever_within_one_instant_is_an_error() -> None:
    cluster = VirtualCluster()

    def again() -> None:
        cluster.agenda.put(cluster.now, again)

    cluster.agenda.put(cluster.now, lambda: None)
    cluster.run(0.0)
    cluster.agenda.put(cluster.now, again)
    with pytest.raises(RuntimeError, match="moves for ever"):
        cluster.run(1.0)
