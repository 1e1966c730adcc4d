"""The log of edits of Pools and of the pods whose loan they change."""

from aischeduler.engine.pool_status import NAMED_MAX
from aischeduler.model.actions import Action, LogLoanChange, LogPoolEdit
from aischeduler.model.pool import MakeRoomOrder
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session

SECOND = 1.0


def of_a() -> Session:
    """Return pools `a` and `b`, and node `n` of `a` with a running pod of `a`."""
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", cpu="32", labels={"pool": "a"}), a_pod("p", cpu="1", pool="a", node="n"))
    session.decide()
    return session


def told(actions: list[Action]) -> list[LogLoanChange | LogPoolEdit]:
    return [action for action in actions if isinstance(action, LogLoanChange | LogPoolEdit)]


def turned(actions: list[Action]) -> list[tuple[str, str, list[str], int]]:
    found = [action for action in actions if isinstance(action, LogLoanChange)]
    return [(one.pool, one.home_pool, [pod.name for pod in one.pods], one.count) for one in found]


def test_running_pod_whose_loan_an_edit_starts_or_ends_is_logged() -> None:
    session = of_a()
    session.see(a_node("n", cpu="32", labels={"pool": "b"}))
    assert turned(session.decide(SECOND)) == [("b", "a", ["p"], 1)]
    session.see(a_node("n", cpu="32", labels={"pool": "a"}))
    assert turned(session.decide(SECOND)) == [("a", "a", ["p"], 1)]


def test_pod_whose_annotation_is_edited_is_logged() -> None:
    session = of_a()
    session.see(a_pod("p", cpu="1", pool="b", node="n"))
    assert turned(session.decide(SECOND)) == [("a", "b", ["p"], 1)]


def test_state_at_the_start_and_reverted_edits_are_not_logged() -> None:
    session = of_a()
    loan = Session(a_node("n", labels={"pool": "b"}), a_pod("p", cpu="1", pool="a", node="n"))
    loan.see(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    assert told(loan.decide()) == []
    for label in ("b", "a"):
        session.see(a_node("n", cpu="32", labels={"pool": label}))
    assert turned(session.decide(SECOND)) == []


def test_many_loans_of_one_edit_are_logged_in_one_line() -> None:
    session = of_a()
    for number in range(NAMED_MAX):
        session.see(a_pod(f"p{number}", cpu="1", pool="a", node="n"))
    session.decide(SECOND)
    session.see(a_node("n", cpu="32", labels={"pool": "b"}))
    assert turned(session.decide(SECOND)) == [("b", "a", [], NAMED_MAX + 1)]


def test_edits_of_a_pool_are_logged_once_a_second_with_the_changed_fields() -> None:
    session = of_a()
    for number in range(3):
        session.see(a_pool("b", labels={"pool": "b"}, disable_sharing=number % 2 == 0, generation=number))
    session.see(a_pool("a", labels={"pool": "x"}, make_room=MakeRoomOrder.BORROW_THEN_PREEMPT))
    edited = [one for one in told(session.decide(SECOND)) if isinstance(one, LogPoolEdit)]
    assert edited == [
        LogPoolEdit("a", ("nodeSelector changed", "makeRoom: unset -> BorrowThenPreempt")),
        LogPoolEdit("b", ("disableSharing: false -> true",)),
    ]
    session.see(a_pool("b", labels={"pool": "b"}, disable_sharing=True, generation=9))
    assert told(session.decide(SECOND)) == []
