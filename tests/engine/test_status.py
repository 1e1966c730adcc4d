"""What pools are told of themselves: what is in force, and what of their spec does nothing."""

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.status import LENDERS_MAX
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, conditions, reports

A = {"pool": "a"}
IN_FORCE = "The spec is in force"
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


def test_pod_of_a_refused_pool_is_told_that_its_pool_is_refused() -> None:
    session = Session(a_pool("bad", labels=A, invalid="spec.placement: 'x' is not one of Spread"))
    session.see(a_node("n", labels=A), a_pod("p", pool="bad"))
    assert reports(session.decide())["p"].endswith("borrowing: its pool is refused: see its condition Accepted.")


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (a_pool("a", labels=A, borrowing_pools=("b", "default")), f"{IN_FORCE}."),
        (
            a_pool("a", labels=A, borrowing_pools=("research", "b", "defualt")),
            f"{IN_FORCE}; spec.borrowingPools names what is no Pool: research, defualt (did you mean default?).",
        ),
        (
            a_pool("a", borrowing_pools=NOPES),
            f"{IN_FORCE}; spec.borrowingPools names what is no Pool: {', '.join(NOPES[:LENDERS_MAX])} and 2 more.",
        ),
        (
            a_pool("default", labels=A),
            f"{IN_FORCE}; spec.nodeSelector is ignored: the pool default has the nodes that belong nowhere else.",
        ),
        (a_pool("default"), f"{IN_FORCE}."),
    ],
)
def test_accepted_names_what_is_allowed_and_does_nothing(pool: Pool, message: str) -> None:
    session = Session(pool, a_pool("b", labels={"pool": "b"}))
    session.decide()
    assert conditions(session.said, pool.name)["Accepted"] == (True, message)


def test_unknown_lender_is_named_no_more_once_there_is_one() -> None:
    session = Session(a_pool("a", labels=A, borrowing_pools=("later",)))
    session.decide()
    assert "later" in conditions(session.said, "a")["Accepted"][1]
    session.see(a_pool("later", labels={"pool": "later"}))
    session.decide(5)
    assert conditions(session.said, "a")["Accepted"] == (True, f"{IN_FORCE}.")
