"""The status of Pools: the switches in force, and the conditions."""

import pytest

from aischeduler.engine.pool_status import LENDERS_MAX, NODES_MISSING, SPEC_REFUSED
from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.events import Seen, gone
from aischeduler.model.names import CLUSTER
from aischeduler.model.node import Node
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, conditions, reports

A = {"pool": "a"}
IN_FORCE = "The spec is in force"
UNKNOWN = f"{IN_FORCE}; spec.borrowingPools names Pools that do not exist"
NOPES = tuple(f"nope-{number:02}" for number in range(LENDERS_MAX + 2))


def switches(session: Session, name: str) -> tuple[bool, bool, bool]:
    (pool,) = (pool for pool in session.scheduler.summary() if pool.name == name)
    return pool.preemption, pool.borrowing, pool.sharing


def test_no_switch_is_on_in_a_pool_whose_spec_is_refused() -> None:
    session = Session(a_pool("bad", labels=A, invalid="spec.placement: 'x' is not one of Spread"), a_pool("good"))
    assert switches(session, "bad") == (False, False, False)
    assert switches(session, "good") == (True, True, True)


def test_preemption_is_off_in_every_pool_while_it_is_off_for_the_whole_scheduler() -> None:
    session = Session(a_pool("a", labels=A), profile=default_profile(preemption=False))
    assert switches(session, "a") == switches(session, "default") == (False, True, True)


def test_reason_of_a_pod_of_a_refused_pool_names_the_refusal() -> None:
    session = Session(a_pool("bad", labels=A, invalid="spec.placement: 'x' is not one of Spread"))
    session.see(a_node("n", labels=A), a_pod("p", pool="bad"))
    assert reports(session.decide())["p"].endswith(
        "borrowing: the spec of its pool is refused; see the condition Accepted."
    )


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (a_pool("a", labels=A, borrowing_pools=("b", "default")), f"{IN_FORCE}."),
        (
            a_pool("a", labels=A, borrowing_pools=("research", "b", "defualt")),
            f"{UNKNOWN}: research, defualt (did you mean default?).",
        ),
        (
            a_pool("a", borrowing_pools=NOPES),
            f"{UNKNOWN}: {', '.join(NOPES[:LENDERS_MAX])} and 2 more.",
        ),
        (
            a_pool("default", labels=A),
            f"{IN_FORCE}; spec.nodeSelector is ignored: the pool default has the nodes that no other Pool selects.",
        ),
        (a_pool("default"), f"{IN_FORCE}."),
    ],
)
def test_accepted_names_valid_fields_without_an_effect(pool: Pool, message: str) -> None:
    session = Session(pool, a_pool("b", labels={"pool": "b"}))
    session.decide()
    assert conditions(session.said, pool.name)["Accepted"] == (True, message)


def test_pool_whose_selector_matches_no_node_has_a_condition_until_one_matches() -> None:
    session = Session(a_pool("a", labels={"pool": "a", "zone": "b"}), a_pool("b", labels={"pool": "b"}))
    session.decide()
    missing = (True, "No node matches spec.nodeSelector: pool=a,zone=b")
    assert conditions(session.said, "a")[NODES_MISSING] == missing
    session.see(a_node("n", labels=A))
    session.decide(5)
    assert conditions(session.said, "a")[NODES_MISSING] == missing
    session.see(a_node("n", labels={"pool": "a", "zone": "b"}))
    session.decide(5)
    assert conditions(session.said, "a")[NODES_MISSING] == (False, "Nodes match spec.nodeSelector.")
    session.tell(gone(Node, "n"))
    session.decide(5)
    assert conditions(session.said, "a")[NODES_MISSING] == missing


def test_pool_whose_nodes_another_pool_selects_too_misses_no_nodes() -> None:
    session = Session(a_pool("a", labels=A), a_pool("also-a", labels=A), a_node("n", labels=A))
    session.decide()
    assert conditions(session.said, "a")[NODES_MISSING] == (False, "Nodes match spec.nodeSelector.")


def test_pool_that_selects_a_node_that_is_kept_back_misses_no_nodes() -> None:
    scheduler = Scheduler(default_profile(), "run")
    scheduler.decide(CLUSTER, 0.0, 1)
    scheduler.observe(Seen(a_node("n", labels=A)), 1.0)
    scheduler.observe(Seen(a_pool("a", labels=A)), 1.0)
    assert not scheduler.has_node("n")
    scheduler.decide(CLUSTER, 2.0, 1)
    told = conditions(scheduler.decide("a", 2.0, 1), "a")
    assert told[NODES_MISSING] == (False, "Nodes match spec.nodeSelector.")


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (a_pool("a"), "The Pool has no spec.nodeSelector; its pods only borrow."),
        (a_pool("a", labels=A, invalid="spec.placement: 'x' is not one of Spread"), SPEC_REFUSED),
        (a_pool("default", labels=A), "The Pool has the nodes that no other Pool selects."),
    ],
)
def test_pool_that_selects_no_nodes_misses_no_nodes(pool: Pool, message: str) -> None:
    session = Session(pool)
    session.decide()
    assert conditions(session.said, pool.name)[NODES_MISSING] == (False, message)


def test_unknown_lender_is_no_longer_named_once_it_exists() -> None:
    session = Session(a_pool("a", labels=A, borrowing_pools=("later",)))
    session.decide()
    assert "later" in conditions(session.said, "a")["Accepted"][1]
    session.see(a_pool("later", labels={"pool": "later"}))
    session.decide(5)
    assert conditions(session.said, "a")["Accepted"] == (True, f"{IN_FORCE}.")
