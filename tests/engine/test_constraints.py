"""Pods with unsupported hard constraints wait with a message and block no other pod."""

import pytest

from aischeduler.engine.holds import FIELDS_MAX
from aischeduler.engine.profile import default_profile
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, reports, warnings

DEVICE = Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims")
IGNORE = replace(default_profile(), hold_unsupported=False)


@pytest.mark.parametrize("constraint", [DEVICE])
def test_pod_with_a_constraint_that_is_not_supported_waits_and_names_the_field(constraint: Constraint) -> None:
    session = Session(a_node("n"), a_pod("p", unsupported_constraints=(constraint,)))
    said = session.decide()
    assert (binds(said), warnings(said)) == ({}, [])
    assert reports(said) == {"p": f"{constraint.field} is not supported by ai-scheduler; the pod is held."}
    assert session.scheduler.held() == {("default", constraint.kind): 1}
    assert session.scheduler.waiting() == {"default": {"held": 1}}


def test_reason_names_the_first_fields_and_counts_the_others() -> None:
    many = tuple(Constraint(DEVICE.kind, f"spec.resourceClaims[{index}]") for index in range(100))
    (reason,) = reports(Session(a_pod("p", unsupported_constraints=(*many,))).decide()).values()
    assert f"{many[FIELDS_MAX - 1].field}, {100 - FIELDS_MAX} more fields are not supported" in reason


def test_held_pod_gets_one_report_and_blocks_no_other_pod() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("held", unsupported_constraints=(DEVICE,)), a_pod("free"))
    said = session.decide()
    assert (binds(said), list(reports(said))) == ({"free": "n"}, ["held"])
    assert reports(session.decide(3600)) == {}


def test_pod_whose_constraint_is_gone_is_placed() -> None:
    session = Session(a_node("n"), a_pod("p", unsupported_constraints=(DEVICE,)))
    session.decide()
    session.see(a_pod("p"))
    assert binds(session.decide(60)) == {"p": "n"}
    assert session.scheduler.held() == {}


def test_held_pod_evicts_no_pod_and_borrows_nothing() -> None:
    a, b = a_pool("a", labels={"team": "a"}), a_pool("b", labels={"team": "b"})
    session = Session(a, b, a_node("a1", cpu="1", labels={"team": "a"}), a_node("b1", cpu="1", labels={"team": "b"}))
    session.see(a_pod("low", pool="a", node="a1"))
    session.see(a_pod("held", pool="a", priority=10, unsupported_constraints=(DEVICE,)))
    said = session.decide(60)
    assert (binds(said), evictions(said), list(reports(said))) == ({}, {}, ["held"])
    assert (session.scheduler.loans(), session.scheduler.waiting()["a"]) == ({}, {"held": 1})


@pytest.mark.parametrize("may_evict", [True, False])
def test_held_home_pod_blocks_no_loan(may_evict: bool) -> None:
    lender = a_pool("lender", labels={"team": "lender"}, disable_preemption=not may_evict)
    session = Session(lender, a_pool("home"), a_node("n", cpu="1", labels={"team": "lender"}))
    session.see(a_pod("held", pool="lender", unsupported_constraints=(DEVICE,)))
    session.decide()
    session.see(a_pod("guest", pool="home"))
    assert binds(session.decide()) == {"guest": "n"}


def test_borrower_gets_the_room_once_the_home_pod_is_held() -> None:
    lender = a_pool("lender", labels={"team": "lender"})
    session = Session(lender, a_pool("home"), a_node("n", cpu="1", labels={"team": "lender"}))
    session.see(a_pod("guest", pool="home"), a_pod("held", pool="lender", unsupported_constraints=(DEVICE,)))
    assert binds(session.decide()) == {"guest": "n"}


def test_ignored_constraint_places_the_pod_and_holds_nothing() -> None:
    session = Session(a_node("n"), a_pod("p", unsupported_constraints=(DEVICE, DEVICE)), profile=IGNORE)
    said = session.decide()
    assert (binds(said), warnings(said)) == ({"p": "n"}, [("p", "UnsupportedConstraint")])
    assert session.scheduler.held() == {}
