"""The audit of decisions itself, on hand-written records with one eviction each at second 100."""

from typing import Any

import pytest

from tests.e2e.decision_audit import HOME_MARK, Judge
from tests.e2e.record import Changes
from tests.objects import Json, node_object, pod_object, pool_object

EVICTED_AT = 100.0
FULL = "4"
LABEL = "pool"


@pytest.fixture(autouse=True)
def clean_cluster() -> None:
    """Replace the fixture: no test here needs a cluster."""


class Told(Changes):
    """A record in which pool a has node a1, which `low` fills, and `high` waits since second 90."""

    def __init__(self, *, asks: str = "a", asked_at: float = 90.0, **spec: Any) -> None:
        super().__init__()
        self.more: Json = {}
        """More fields for the specs of further pods."""
        self.see("namespaces", {"metadata": {"name": "default", "labels": {"team": "vision"}}}, at=0)
        self.see("pools", pool_object("default"), at=0)
        self.see("pools", pool_object("a", labels={LABEL: "a"}, **spec), at=0)
        self.see("nodes", node_object("a1", labels={LABEL: "a"}), at=0)
        self.pod("low", pool="a", node="a1", at=0)
        self.pod("high", pool=asks, priority=10, at=asked_at)

    def see(self, plural: str, document: Json, *, at: float, gone: bool = False) -> None:
        self.hear(plural, document, gone=gone, at=at)

    def pod(
        self,
        name: str,
        *,
        at: float,
        pool: str = "",
        node: str = "",
        cpu: str = FULL,
        priority: int = 0,
        mark: str = "",
        home: str = "",
        gone: bool = False,
        version: int = 0,
    ) -> None:
        document = pod_object(name, cpu=cpu, pool=pool, node=node, annotations={HOME_MARK: home} if home else {})
        document["metadata"] |= {"uid": f"u-{name}", "resourceVersion": str(version or "")}
        document["spec"] |= {"priority": priority, **self.more}
        document["status"] = {"phase": "Running" if node else "Pending"}
        if mark:
            reason = {"type": "DisruptionTarget", "reason": "PreemptionByScheduler", "message": mark}
            document["status"]["conditions"] = [reason]
        self.see("pods", document, at=at, gone=gone)

    def evict(self, name: str = "low", *, pool: str = "a", node: str = "a1", priority: int = 0) -> "Told":
        mark = "ai-scheduler: preempting to accommodate default/high"
        self.pod(name, pool=pool, node=node, priority=priority, mark=mark, at=EVICTED_AT)
        return self

    def faults(self, held: str = "nothing", seconds: float = 0.0) -> list[str]:
        return list(Judge(self, held, seconds).faults())


def test_eviction_of_a_home_pod_of_lower_priority_is_right() -> None:
    told = Told().evict()
    assert len(Judge(told, "nothing", 0.0).evictions()) == 1
    assert told.faults() == []


def test_eviction_of_a_home_pod_of_equal_priority_is_wrong() -> None:
    assert Told().evict(priority=10).faults() == ["low on a1 for high: the victim is a home pod of no lower priority"]


def test_eviction_of_a_borrower_of_any_priority_is_right() -> None:
    told = Told()
    told.pod("low", pool="a", node="a1", at=50, gone=True)
    told.pod("guest", node="a1", priority=99, at=50)
    assert told.evict("guest", pool="", priority=99).faults() == []


def test_eviction_beside_a_free_node_is_wrong_once_the_node_is_known() -> None:
    for at, wrong in ((97, ["low on a1 for high: a had room on a2"]), (99, [])):
        told = Told()
        told.see("nodes", node_object("a2", labels={LABEL: "a"}), at=at)
        assert told.evict().faults() == wrong


def test_cordoned_node_is_no_room() -> None:
    told = Told()
    node = node_object("a2", labels={LABEL: "a"})
    node["spec"]["unschedulable"] = True
    told.see("nodes", node, at=0)
    assert told.evict().faults() == []


def test_eviction_in_a_pool_that_forbids_it_is_wrong_once_that_is_known() -> None:
    for at, wrong in ((97, ["low on a1 for high: a forbids preemption"]), (99, [])):
        told = Told()
        told.see("pools", pool_object("a", labels={LABEL: "a"}, disablePreemption=True), at=at)
        assert told.evict().faults() == wrong


def test_eviction_in_another_pool_than_the_beneficiarys_is_wrong() -> None:
    told = Told()
    told.see("nodes", node_object("d1"), at=0)
    told.pod("mine", node="d1", at=0)
    assert told.evict("mine", pool="", node="d1").faults() == [
        "mine on d1 for high: default is not the beneficiary's pool a"
    ]


def test_pool_older_than_its_pod_is_known_at_once() -> None:
    told = Told(asks="new", asked_at=99.9)
    told.see("nodes", node_object("d1"), at=0)
    told.pod("mine", node="d1", at=0)
    told.see("pools", pool_object("new", labels={LABEL: "new"}), at=99.8)
    assert told.evict("mine", pool="", node="d1").faults() == [
        "mine on d1 for high: default is not the beneficiary's pool new"
    ]


def test_eviction_for_a_pod_of_a_namespace_that_its_pool_does_not_take_is_wrong() -> None:
    told = Told(allowedNamespaces={"matchLabels": {"team": "speech"}})
    assert told.evict().faults() == ["low on a1 for high: a takes no pods of the beneficiary's namespace"]


def test_end_of_a_loan_is_right_only_where_the_lender_no_longer_lends() -> None:
    for spec, wrong in (({"disableSharing": True}, 0), ({"lendingLimit": {"cpu": "1"}}, 0), ({}, 1)):
        told = Told(reclaimPolicy="Evict", **spec)
        told.pod("guest", node="a1", at=0)
        told.pod(
            "guest", node="a1", mark="ai-scheduler: preempting because pool a no longer lends this room", at=EVICTED_AT
        )
        assert len(told.faults()) == wrong


def test_lagging_pods_count_as_they_were_when_the_eviction_became_possible_and_no_earlier() -> None:
    for allowed_at, wrong in ((0, []), (99, ["low on a1 for high: a had room on a2; or a forbids preemption"])):
        told = Told(disablePreemption=True)
        told.see("nodes", node_object("a2", labels={LABEL: "a"}), at=0)
        told.pod("gone", pool="a", node="a2", priority=20, at=0)
        told.pod("gone", pool="a", node="a2", priority=20, at=95, gone=True)
        told.see("pools", pool_object("a", labels={LABEL: "a"}), at=allowed_at)
        assert told.evict().faults("pods", 10.0) == wrong


def test_pod_that_is_bound_for_another_pool_than_the_existing_one_it_names_is_a_fault() -> None:
    for made_at, strangers in ((89, ["p names new and was bound for default"]), (91, [])):
        told = Told()
        told.see("pools", pool_object("new"), at=made_at)
        told.pod("p", pool="new", at=90)
        told.pod("p", pool="new", node="a1", home="default", at=91)
        assert Judge(told, "nothing", 0.0).strangers() == strangers


def test_pod_that_waits_while_its_pool_has_room_is_a_fault() -> None:
    told = Told()
    assert Judge(told, "nothing", 0.0).neglected() == []
    told.see("nodes", node_object("a2", labels={LABEL: "a"}), at=95)
    assert Judge(told, "nothing", 0.0).neglected() == ["high waits, a has room on ['a2']"]


def bound(told: Told, *, pool: str) -> list[str]:
    """Return the faults of a Binding of a pod of one CPU to a1 at second 100, after `low` has left a1."""
    told.pod("low", pool="a", node="a1", at=50, gone=True)
    told.pod("p", pool=pool, at=90, cpu="1")
    told.pod("p", pool=pool, node="a1", at=100, cpu="1")
    return list(Judge(told).wrong_bindings())


def test_binding_at_home_where_there_is_room_is_right() -> None:
    assert bound(Told(), pool="a") == []


def test_binding_to_a_full_node_is_wrong() -> None:
    told = Told()
    told.pod("other", pool="a", node="a1", at=80)
    assert bound(told, pool="a") == ["p on a1: the node has too little cpu"]


def test_change_of_a_node_that_the_record_got_after_the_binding_counts_where_its_version_is_older() -> None:
    for version, wrong in ((6, []), (8, ["guest on d1: the node does not take it"])):
        told = Told()
        cordoned, free = node_object("d1"), node_object("d1")
        cordoned["spec"]["unschedulable"], free["metadata"]["resourceVersion"] = True, str(version)
        told.see("nodes", cordoned, at=0)
        told.pod("guest", node="d1", at=50, version=7)
        told.see("nodes", free, at=50.001)
        assert list(Judge(told).wrong_bindings()) == wrong


def test_init_containers_and_overhead_count() -> None:
    for more in ({"initContainers": [{"resources": {"requests": {"cpu": "5"}}}]}, {"overhead": {"cpu": "4"}}):
        told = Told()
        told.more = more
        assert bound(told, pool="a") == ["p on a1: the node has too little cpu"]


def test_node_that_shrinks_after_the_binding_or_just_before_is_no_fault() -> None:
    for at, wrong in ((97, ["p on a1: the node has too little cpu"]), (99, []), (101, [])):
        told = Told()
        told.see("nodes", node_object("a1", labels={LABEL: "a"}, cpu="500m"), at=at)
        assert bound(told, pool="a") == wrong, at


def test_binding_to_a_node_that_was_just_deleted_is_no_fault() -> None:
    for at, wrong in ((97, ["p on a1: there is no such node"]), (99, [])):
        told = Told()
        told.see("nodes", node_object("a1", labels={LABEL: "a"}), at=at, gone=True)
        assert bound(told, pool="a") == wrong


@pytest.mark.parametrize(
    ("lender", "home", "wrong"),
    [
        ({}, {}, ""),
        ({"disableSharing": True}, {}, "a does not share"),
        ({}, {"disableBorrowing": True}, "b does not borrow"),
        ({}, {"borrowingPools": ["c"]}, "b does not borrow from a"),
        ({}, {"borrowingPools": ["a"]}, ""),
        ({"lendingLimit": {"cpu": "1"}}, {}, ""),
        ({"lendingLimit": {"cpu": "500m"}}, {}, "lendingLimit of cpu is {'cpu': 500}"),
        ({"lendingLimit": {"nvidia.com/gpu": "0"}}, {}, ""),
        ({}, {"borrowingLimit": {"pods": "0"}}, "borrowingLimit of pods is {'pods': 0}"),
        ({}, {"allowedNamespaces": {"matchLabels": {"team": "speech"}}}, "b takes no pods of its namespace"),
    ],
    ids=str,
)
def test_loan_is_right_within_the_rules_of_both_pools(lender: Json, home: Json, wrong: str) -> None:
    told = Told(**lender)
    told.see("pools", pool_object("b", labels={LABEL: "b"}, **home), at=0)
    found = bound(told, pool="b")
    assert found == [] if not wrong else found[0].startswith(f"p on a1: {wrong}")


def test_eviction_that_makes_too_little_room_is_wrong() -> None:
    told = Told()
    told.pod("stays", pool="a", node="a1", at=0)
    why = "a1 has too little cpu for the beneficiary without all leaving pods"
    assert told.evict().faults() == [f"low on a1 for high: {why}"]
