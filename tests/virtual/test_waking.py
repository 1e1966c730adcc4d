"""The changes that wake a waiting pod; other changes wake none."""

import pytest

from tests.harness import Harness, Json
from tests.objects import node_object, pod_object

CLOSED = {"key": "closed", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "refusal", "change", "subresource"),
    [
        ({"taints": [CLOSED]}, "node(s) had untolerated taint(s)", {"spec": {"taints": None}}, ""),
        ({"unschedulable": True}, "node(s) were unschedulable", {"spec": {"unschedulable": None}}, ""),
        (
            {"labels": {"disk": "hdd"}},
            "node(s) didn't match Pod's node affinity/selector",
            {"metadata": {"labels": {"disk": "ssd"}}},
            "",
        ),
        ({"cpu": "1"}, "Insufficient cpu", {"status": {"allocatable": {"cpu": "2"}}}, "status"),
    ],
    ids=["taint", "cordon", "label", "size"],
)
def test_node_that_begins_to_fit_wakes(node: Json, refusal: str, change: Json, subresource: str) -> None:
    fields: Json = {"labels": {"disk": "ssd"}, **node}
    unschedulable = fields.pop("unschedulable", False)
    document = node_object("n", **fields)
    document["spec"]["unschedulable"] = unschedulable
    h = Harness(document, pod_object("p", cpu="2", node_selector={"disk": "ssd"}))
    h.run()
    assert h.refusal("p") == f"0/1 nodes are available: 1 {refusal}."
    h.patch("Node", "n", change, subresource)
    h.run()
    assert h.node_of("p") == "n"


def test_new_node_wakes() -> None:
    h = Harness(pod_object("p"))
    h.run()
    assert h.why("p") == "no nodes available to schedule pods"
    h.add(node_object("n"))
    h.run()
    assert h.node_of("p") == "n"


def test_added_toleration_wakes() -> None:
    h = Harness(node_object("n", taints=[CLOSED]), pod_object("p"))
    h.run()
    given = h.get("Pod", "p")["spec"].get("tolerations", [])
    h.patch("Pod", "p", {"spec": {"tolerations": [*given, {"key": "closed", "operator": "Exists"}]}})
    h.run()
    assert h.node_of("p") == "n"


def test_room_of_a_leaving_pod_is_claimed_by_the_pod_that_then_gets_it() -> None:
    h = Harness(node_object("n", cpu="4"), pod_object("small", cpu="1"), pod_object("large", cpu="3"))
    h.run()
    h.add(pod_object("first", cpu="1"), pod_object("second", cpu="1"))
    h.run(seconds=20)
    h.delete("Pod", "small")
    h.run(seconds=0.5)
    assert h.get("Pod", "first")["status"]["nominatedNodeName"] == "n"
    assert h.why("first").endswith("preemption: nominated to node n, waits for pods that are leaving.")
    h.run(seconds=60)
    assert h.binds == ["large", "small", "first"]
    assert "nominatedNodeName" not in h.get("Pod", "second")["status"]
    assert h.scheduler.waiting() == {"default": {"parked": 1}}


def test_five_minute_flush_saves_no_pod() -> None:
    h = Harness(node_object("n", cpu="2", taints=[CLOSED]), pod_object("a", cpu="2"), pod_object("b", cpu="2"))
    h.run(seconds=400)
    h.patch("Node", "n", {"spec": {"taints": None}})
    h.run(seconds=400)
    (first,) = h.binds
    h.delete("Pod", first)
    h.run(seconds=400)
    assert sorted(h.binds) == ["a", "b"]
    assert h.scheduler.net_saves() == 0


def test_pod_that_cannot_fit_is_tried_more_and_more_rarely_and_has_one_event() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("p", cpu="2"))
    h.run(seconds=3600)
    told = "pool default: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
    assert h.events_about("p") == [f"{told}1 Preemption is not helpful for scheduling."]


def test_changed_reason_has_a_new_event() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("p", cpu="2"))
    h.run()
    h.patch("Node", "n", {"spec": {"taints": [CLOSED]}})
    h.add(node_object("m", cpu="1"))
    h.run(seconds=400)
    assert h.refusal("p") == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
    assert h.events_about("p")[-1] == f"pool default: {h.why('p')}"
    assert h.condition("Pod", "p", "PodScheduled")["message"] == f"pool default: {h.why('p')}"
