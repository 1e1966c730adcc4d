"""Pools: their nodes, their pods, and the creation, deletion and conflict of pools."""

from aischeduler.kube.crds import pool_crd
from tests.harness import Harness, Json
from tests.objects import NO_POOL_NOWHERE, node_object, pod_object, pool_object

CPU = {"cpu": "true"}
HOME = "scheduling.resource.aibee.cn/home-pool"
POOL = "scheduling.resource.aibee.cn/pool"
OPEN = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}


def test_pod_of_a_pool_that_does_not_borrow_waits_with_a_reason_although_another_has_room() -> None:
    h = Harness(node_object("full", cpu="1", labels=CPU), node_object("idle", cpu="64"))
    h.add(pool_object("cpu-pool", labels=CPU, disableBorrowing=True), pod_object("p", cpu="2", pool="cpu-pool"))
    h.run()
    assert h.node_of("p") == ""
    assert h.why("p") == (
        "0/1 nodes are available: 1 Insufficient cpu."
        " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        " borrowing: its pool does not borrow."
    )
    assert h.scheduler.waiting() == {"cpu-pool": {"parked": 1}, "default": {}}
    assert h.events_about("p", "FailedScheduling") == [f"pool cpu-pool: {h.why('p')}"]
    assert h.condition("Pod", "p", "PodScheduled")["message"] == f"pool cpu-pool: {h.why('p')}"


def test_pod_that_names_no_pool_belongs_to_the_default_pool() -> None:
    h = Harness(node_object("n", labels=CPU), node_object("other"), pool_object("cpu-pool", labels=CPU))
    h.add(pod_object("p"))
    h.run()
    assert h.node_of("p") == "other"
    assert h.marks("p")[HOME] == "default"


def test_pod_of_an_unknown_pool_belongs_to_the_default_pool_and_is_warned_once() -> None:
    h = Harness(node_object("n", cpu="1"), pod_object("p", cpu="2", pool="nowhere"))
    h.run(seconds=60)
    h.patch("Node", "n", {"status": {"allocatable": {"cpu": "1500m"}}}, "status")
    h.run(seconds=60)
    assert h.warnings == [("p", "UnknownPool")]
    assert h.events_about("p", "UnknownPool") == [NO_POOL_NOWHERE]
    h.patch("Node", "n", {"status": {"allocatable": {"cpu": "2"}}}, "status")
    h.run(seconds=60)
    assert h.node_of("p") == "n"


def test_pool_created_later_gets_its_waiting_pods() -> None:
    h = Harness(node_object("n", labels=CPU, taints=[{"key": "closed", "effect": "NoSchedule"}]))
    h.add(pod_object("p", pool="cpu-pool"))
    h.run()
    assert h.scheduler.waiting() == {"default": {"parked": 1}}
    h.add(pool_object("cpu-pool", labels=CPU))
    h.run()
    assert h.scheduler.waiting() == {"cpu-pool": {"parked": 1}, "default": {}}
    h.patch("Node", "n", {"spec": {"taints": None}})
    h.run(seconds=20)
    assert h.marks("p")[HOME] == "cpu-pool"


def test_conflict_ends_when_the_label_does() -> None:
    h = Harness(node_object("n", labels={"a": "1", "b": "1"}))
    h.add(pool_object("pool-a", labels={"a": "1"}), pool_object("pool-b", labels={"b": "1"}))
    h.run()
    h.patch("Node", "n", {"metadata": {"labels": {"b": None}}})
    h.add(pod_object("p", pool="pool-a"))
    h.run()
    assert h.node_of("p") == "n"
    assert [h.condition("Pool", name, "Conflict")["status"] for name in ("pool-a", "pool-b")] == ["False", "False"]


def store_under_an_older_schema(h: Harness, pool: Json) -> None:
    """Store a Pool that the present schema refuses, as under an older schema."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{pool_crd()['metadata']['name']}"
    for schema in (OPEN, pool_crd()["spec"]["versions"][0]["schema"]):
        versions = [{**pool_crd()["spec"]["versions"][0], "schema": schema}]
        answer = h.cluster.request("PATCH", path, {"spec": {"versions": versions}}, "application/merge-patch+json")
        assert answer.status == 200, answer
        if schema is OPEN:
            h.add(pool)


def test_pool_with_an_invalid_selector_is_not_accepted_and_affects_no_other() -> None:
    h = Harness(node_object("n", labels=CPU), pool_object("good", labels=CPU))
    bad = pool_object("bad", nodeSelector={"matchLabels": {"not a key": "x"}})
    store_under_an_older_schema(h, bad)
    h.add(pod_object("p", pool="good"), pod_object("q", pool="bad"))
    h.run()
    accepted = h.condition("Pool", "bad", "Accepted")
    assert accepted["status"] == "False"
    assert "spec.nodeSelector.matchLabels" in accepted["message"]
    assert h.condition("Pool", "good", "Accepted")["status"] == "True"
    assert (h.node_of("p"), h.node_of("q")) == ("n", "")


def test_condition_has_the_generation_of_the_spec_that_was_read() -> None:
    h = Harness(pool_object("p", labels=CPU))
    h.run()
    h.patch("Pool", "p", {"spec": {"placement": "Pack"}})
    h.run()
    assert h.get("Pool", "p")["status"]["observedGeneration"] == h.get("Pool", "p")["metadata"]["generation"] == 2


def test_selector_changed_moves_the_node_and_the_next_pod_with_it() -> None:
    h = Harness(node_object("n", labels={"b": "1"}), pool_object("p", labels={"a": "1"}, disableBorrowing=True))
    h.add(pod_object("x", pool="p"))
    h.run()
    assert h.node_of("x") == ""
    h.patch("Pool", "p", {"spec": {"nodeSelector": {"matchLabels": {"a": None, "b": "1"}}}})
    h.run(seconds=20)
    assert h.node_of("x") == "n"


def test_pool_without_a_selector_owns_no_nodes_and_only_borrows() -> None:
    h = Harness(node_object("n"), pool_object("borrower"), pool_object("beggar", disableBorrowing=True))
    h.add(pod_object("p", pool="borrower"), pod_object("q"), pod_object("r", pool="beggar"))
    h.run()
    assert h.nodes_of_pods() == {"p": "n", "q": "n", "r": ""}
    assert h.marks("p")[POOL] == "default"


def test_pods_of_one_pool_do_not_wait_for_those_of_another() -> None:
    h = Harness(node_object("a", cpu="1", labels={"a": "1"}), node_object("b", labels={"b": "1"}))
    h.add(pool_object("pool-a", labels={"a": "1"}), pool_object("pool-b", labels={"b": "1"}))
    h.add(*(pod_object(f"a{number}", cpu="2", pool="pool-a") for number in range(50)), pod_object("b0", pool="pool-b"))
    h.run(seconds=0.1)
    assert h.node_of("b0") == "b"


def test_pool_name_with_line_breaks_names_no_pool_and_affects_no_other_pod() -> None:
    odd = {"resource.aibee.cn/pool": "cpu\npool\x1b[31m" + "x" * 100_000}
    h = Harness(node_object("n"), pod_object("odd", annotations=odd), pod_object("fine"))
    h.run()
    assert (h.node_of("odd"), h.node_of("fine")) == ("n", "n")
    (note,) = h.events_about("odd", "UnknownPool")
    assert "\n" not in note
    assert len(note) < 250
