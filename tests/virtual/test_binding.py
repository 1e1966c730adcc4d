"""Slow Bindings: changes while one is under way, and the result of each refusal."""

from tests import seeds
from tests.harness import Harness
from tests.objects import binding_object, job_object, node_object, pod_object
from tests.virtual.virtual_daemon import Network

SLOW = Network(bind_seconds=1.0)


def bind_by_hand(h: Harness, pod: str, node: str) -> None:
    """Bind a pod as another scheduler does."""
    answer = h.cluster.request("POST", f"/api/v1/namespaces/default/pods/{pod}/binding", binding_object(pod, node))
    assert answer.status == 201, answer


def test_pod_whose_binding_is_in_flight_counts_on_its_node() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a"), pod_object("b"), network=SLOW)
    h.run(seconds=0.5)
    assert h.binds == ["a"]
    assert h.refusal("b") == "0/1 nodes are available: 1 Insufficient cpu."


def test_room_of_a_pod_deleted_while_it_is_bound_goes_to_the_next() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a"), pod_object("b"), network=SLOW)
    h.run(seconds=0.5)
    h.delete("Pod", "a")
    h.run(seconds=10)
    assert h.binds == ["a", "b"]
    assert h.node_of("b") == "n"


def test_pod_recreated_under_its_name_while_it_is_bound_is_bound_as_itself() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a"), network=SLOW)
    h.run(seconds=0.5)
    old = h.get("Pod", "a")["metadata"]["uid"]
    h.delete("Pod", "a")
    h.add(pod_object("a"))
    h.run(seconds=10)
    assert h.node_of("a") == "n"
    assert h.get("Pod", "a")["metadata"]["uid"] != old
    assert h.binds == ["a", "a"]


def test_pod_that_another_scheduler_bound_counts_on_its_node() -> None:
    h = Harness(node_object("n", cpu="1"), node_object("m", cpu="8"), pod_object("a", cpu="1"), network=SLOW)
    h.patch("Node", "m", {"spec": {"unschedulable": True}})
    h.run(seconds=0.5)
    bind_by_hand(h, "a", "m")
    h.add(pod_object("b", cpu="1"))
    h.run(seconds=10)
    assert (h.node_of("a"), h.node_of("b")) == ("m", "n")


def test_binding_that_had_been_done_already_is_a_success() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a"), network=SLOW)
    h.run(seconds=0.5)
    bind_by_hand(h, "a", "n")
    h.run(seconds=10)
    assert h.binds == ["a"]
    assert h.events_about("a", "Scheduled") == ["Successfully assigned default/a to n"]


def test_pod_that_began_to_terminate_while_it_was_bound_is_not_tried_again() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a"), pod_object("b"), network=SLOW)
    h.patch("Pod", "a", {"metadata": {"finalizers": ["example.com/held"]}})
    h.run(seconds=0.5)
    h.delete("Pod", "a")
    h.run(seconds=30)
    assert h.binds == ["a", "b"]
    assert h.node_of("a") == ""


def test_job_is_completed_although_a_node_is_deleted_while_a_pod_is_bound_to_it() -> None:
    h = Harness(node_object("n", cpu="1"), job_object("j", completions=1, parallelism=1, cpu="1"), network=SLOW)
    h.run(seconds=0.5)
    h.delete("Node", "n")
    h.add(node_object("m", cpu="1"))
    h.run(seconds=300)
    assert set(h.nodes_of_pods().values()) == {"m"}


def test_pod_on_a_node_that_is_gone_does_not_count_in_its_pool() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("a", cpu="1"), network=SLOW)
    h.run(seconds=0.5)
    h.delete("Node", "n")
    h.run(seconds=5)
    (default,) = h.scheduler.summary()
    assert (default.nodes, default.used.get("cpu", 0)) == (0, 0)


def test_lost_answers_bind_every_pod_once() -> None:
    h = Harness(
        *(node_object(f"n{number}", cpu="10") for number in range(4)),
        *(pod_object(f"p{number}") for number in range(40)),
        network=Network(bind_seconds=0.1, lost_share=0.5),
        seed=seeds.number("lost answers"),
    )
    h.run(seconds=120)
    nodes = list(h.nodes_of_pods().values())
    assert sorted(nodes.count(node) for node in {*nodes}) == [10, 10, 10, 10]
    assert len(h.binds) == 40
