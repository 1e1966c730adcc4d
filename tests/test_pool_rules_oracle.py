"""The oracle detects every broken pool rule, and every pod that waits without a reason."""

from typing import Any

import pytest

from aischeduler.model.actions import Bind, Evict, EvictionCause, Nominate
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.pool import ReclaimPolicy
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_pool, replace
from tests.pool_rules_oracle import Oracle
from tests.tenant_oracle import GPU, PRODUCT
from tests.tenants import a_queue, in_queue


def game(*pods: Pod, a: dict[str, Any] | None = None, b: dict[str, Any] | None = None) -> Oracle:
    """Return an oracle with two pools of one node of four CPUs each, and these pods."""
    oracle = Oracle("ai-scheduler", preemption=True)
    oracle.observe(Seen(a_pool("default")))
    for name, spec in (("a", a or {}), ("b", b or {})):
        oracle.observe(Seen(a_pool(name, labels={"pool": name}, **spec)))
        oracle.observe(Seen(a_node(f"{name}1", cpu="4", labels={"pool": name})))
    for pod in pods:
        oracle.observe(Seen(pod))
    return oracle


def bind(pod: Pod, node: str) -> Bind:
    return Bind(pod, node, node[0], pod.pool, "d1", 1)


def evict(victim: Pod, beneficiary: Pod | None) -> Evict:
    pool = victim.node_name[0]
    return Evict(victim, victim.node_name, pool, victim.pool, EvictionCause.PREEMPTED, beneficiary, "d1")


WAITS = a_pod("waits", pool="a", cpu="2")
LOAN = a_pod("loan", pool="a", cpu="2", node="b1")


def test_bind_within_the_rules_is_right() -> None:
    assert game(WAITS).judge([bind(WAITS, "a1")]) == []
    assert game(WAITS, LOAN).judge([bind(WAITS, "b1")]) == []


def test_node_that_is_full_takes_no_pod() -> None:
    full = a_pod("full", pool="a", cpu="3", node="a1")
    assert game(WAITS, full).judge([bind(WAITS, "a1")]) == ["waits is bound to a1: the node has too little cpu"]
    both = [WAITS, a_pod("more", pool="a", cpu="3")]
    assert game(*both).judge([bind(pod, "a1") for pod in both]) == ["more is bound to a1: the node has too little cpu"]


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ({"disable_borrowing": True}, {}, "a does not borrow"),
        ({"borrowing_pools": ("default",)}, {}, "a does not borrow from b"),
        ({"borrowing_limit": {"cpu": 3999}}, {}, "beyond the borrowingLimit of ['cpu']"),
        ({}, {"lending_limit": {"cpu": 3999}}, "beyond the lendingLimit of ['cpu']"),
        ({}, {"lending_limit": {"pods": 1}}, "beyond the lendingLimit of ['pods']"),
        ({}, {"disable_sharing": True}, "b does not share"),
    ],
)
def test_loan_that_a_pool_does_not_allow_is_wrong(a: dict[str, Any], b: dict[str, Any], why: str) -> None:
    assert game(WAITS, LOAN, a=a, b=b).judge([bind(WAITS, "b1")]) == [f"waits is bound to b1: {why}"]


def test_loan_up_to_the_limit_is_right() -> None:
    oracle = game(WAITS, LOAN, a={"borrowing_limit": {"cpu": 4000}}, b={"lending_limit": {"cpu": 4000, "pods": 2}})
    assert oracle.judge([bind(WAITS, "b1")]) == []


def test_pod_of_lower_priority_is_not_bound_first() -> None:
    high = a_pod("high", pool="a", cpu="2", priority=10)
    assert game(WAITS, high).judge([bind(WAITS, "a1")]) == ["waits is bound to a1: ['high'] are like it and come first"]
    assert game(WAITS, high).judge([bind(high, "a1"), bind(WAITS, "a1")]) == []


def test_pod_with_other_labels_may_be_overtaken() -> None:
    high = a_pod("high", pool="a", cpu="2", priority=10, labels={"app": "x"})
    assert game(WAITS, high).judge([bind(WAITS, "a1")]) == []


def test_pod_that_is_not_in_line_may_be_overtaken() -> None:
    high = a_pod("high", pool="a", cpu="2", priority=10)
    assert game(WAITS, high).judge([bind(WAITS, "a1")], {high.uid}) == []


def test_pod_may_take_the_room_that_was_made_for_it_and_no_other() -> None:
    high = a_pod("high", pool="a", cpu="2", priority=10)
    oracle = game(WAITS, high)
    oracle.observe(Seen(a_node("a2", cpu="4", labels={"pool": "a"})))
    assert oracle.judge([Nominate(WAITS, "a1", "a", "d1")]) == []
    assert oracle.judge([bind(WAITS, "a2")]) == ["waits is bound to a2: ['high'] are like it and come first"]
    assert oracle.judge([Nominate(WAITS, "", "a", "d1"), bind(WAITS, "a1")]) != []
    oracle = game(WAITS, high)
    assert oracle.judge([Nominate(WAITS, "a1", "a", "d1"), bind(WAITS, "a1")]) == []


HIGH = a_pod("high", pool="a", cpu="4", priority=10)
OWNER = a_pod("owner", pool="b", cpu="4")
LOW = a_pod("low", pool="a", cpu="2", node="a1")


def test_eviction_within_the_rules_is_right() -> None:
    assert game(HIGH, LOW).judge([evict(LOW, HIGH)]) == []
    assert game(OWNER, LOAN).judge([evict(LOAN, OWNER)]) == []


@pytest.mark.parametrize(
    ("asker", "victim", "a"),
    [
        (a_pod("equal", pool="a", cpu="4"), LOW, {}),
        (a_pod("never", pool="a", cpu="4", priority=10, preempts=False), LOW, {}),
        (HIGH, LOW, {"disable_preemption": True}),
        (a_pod("borrower", pool="b", cpu="4", priority=10), LOW, {}),
    ],
    ids=["equal priority", "Never", "switched off", "a borrower"],
)
def test_pod_that_may_not_preempt_evicts_no_pod(asker: Pod, victim: Pod, a: dict[str, Any]) -> None:
    found = game(asker, victim, a=a).judge([evict(victim, asker)])
    assert found == [f"low is evicted: {asker.name} has no right to its room"]


@pytest.mark.parametrize("more", [{"guarded": True}, {"priority": 2_000_000_000}, {"scheduler_name": "other"}], ids=str)
def test_some_pods_must_never_be_evicted(more: dict[str, Any]) -> None:
    victim = a_pod("low", pool="b", cpu="2", node="a1", **more)
    assert "low is evicted: it is never to be evicted" in game(HIGH, victim).judge([evict(victim, HIGH)])


def test_loan_ends_only_where_the_lender_reclaims_it() -> None:
    assert game(LOAN).judge([evict(LOAN, None)]) == ["loan is evicted: b still lends this room"]
    takes_back = {"reclaim_policy": ReclaimPolicy.EVICT, "disable_sharing": True}
    assert game(LOAN, b=takes_back).judge([evict(LOAN, None)]) == []


@pytest.mark.parametrize(
    ("others", "a", "way"),
    [
        ((), {}, "could have room on a1"),
        ((a_pod("full", pool="a", cpu="4", priority=-1, node="a1"),), {}, "could have others evicted on a1"),
        ((a_pod("full", pool="a", cpu="4", node="a1"),), {}, "could borrow b1 from b"),
        (
            (a_pod("full", pool="a", cpu="4", priority=-1, node="a1"),),
            {"disable_preemption": True},
            "could borrow b1 from b",
        ),
    ],
    ids=["room", "eviction", "loan", "loan without eviction"],
)
def test_pod_that_waits_without_a_reason_is_found(others: tuple[Pod, ...], a: dict[str, Any], way: str) -> None:
    assert f"waits waits and {way}" in game(WAITS, *others, a=a).in_vain()


def test_pod_that_fits_nowhere_waits_with_a_reason() -> None:
    full = a_pod("full", pool="a", cpu="4", node="a1")
    assert game(WAITS, full, b={"disable_sharing": True}).in_vain() == []
    assert game(WAITS, full, b={"lending_limit": {"cpu": 1999}}).in_vain() == []


DB = a_pod("db", pool="a", node="a1", labels={"app": "db"})
NEAR = a_pod("near", pool="a", pod_affinity=pod_affinity(required=(term("pool", "app=db"),)))
APART = a_pod("apart", pool="a", priority=1, pod_affinity=pod_affinity(anti_required=(term("pool", "app=db"),)))
GUARD = a_pod("guard", pool="a", node="a1", pod_affinity=pod_affinity(anti_required=(term("pool", "app=web"),)))
WEB = a_pod("web", pool="a", labels={"app": "web"})


@pytest.mark.parametrize(
    ("there", "pod", "why"),
    [
        (LOAN, NEAR, "node(s) didn't match pod affinity rules"),
        (DB, APART, "node(s) didn't match pod anti-affinity rules"),
        (GUARD, WEB, "node(s) didn't satisfy existing pods anti-affinity rules"),
    ],
    ids=["affinity", "anti-affinity", "of a pod there"],
)
def test_pod_is_not_bound_against_the_affinity_of_pods(there: Pod, pod: Pod, why: str) -> None:
    assert game(there, pod).judge([bind(pod, "a1")]) == [f"{pod.name} is bound to a1: {why}"]
    assert game(DB, NEAR, WEB).judge([bind(NEAR, "a1"), bind(WEB, "a1")]) == []


def test_pod_whose_affinity_is_met_waits_in_vain() -> None:
    alone = {"disable_borrowing": True}
    assert game(NEAR, a=alone).in_vain() == []
    assert game(DB, NEAR, a=alone).in_vain() == ["near waits and could have room on a1"]
    assert game(DB, APART, a=alone).in_vain() == ["apart waits and could have others evicted on a1"]
    assert game(GUARD, WEB, a=alone).in_vain() == []
    assert game(GUARD, WEB).in_vain() == ["web waits and could borrow b1 from b"]


def test_pod_whose_node_is_gone_may_count_for_its_cards_still() -> None:
    ask, runs = (in_queue(a_pod(name, pool="a", extended={GPU: "1"}), "q") for name in ("waits", "runs"))
    oracle = game(ask, replace(runs, node_name="a2"))
    for name in ("a1", "a2"):
        oracle.observe(Seen(a_node(name, cpu="4", gpu=1, labels={"pool": "a", PRODUCT: "NVIDIA-H200"})))
    for cards, ways in ((2, ["waits waits and could have room on a1"]), (1, [])):
        oracle.observe(Seen(a_queue("q", cards={"H200": cards})))
        assert oracle.in_vain() == ways
    oracle.observe(gone(Node, "a2"))
    assert oracle.in_vain() == []
