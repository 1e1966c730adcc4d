"""The agenda of a pool: one budget for all tasks of a slice, a part of each task in any case, and nothing is lost."""

from collections.abc import Iterable

import pytest

from aischeduler.engine.agenda import CHECKS_MAX, Agenda, Checks, LenderSearch, Rewording
from aischeduler.engine.pod_classes import CHANGED_PER_CHECK, take_classes
from aischeduler.engine.tasks import TASKS
from aischeduler.model.events import gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.state.pod_records import PodRecord, PodState
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds
from tests.gangs import a_gang, member

A = {"pool": "a"}
PARKED = 3 * CHECKS_MAX


def a_session(*pods: Pod) -> Session:
    """Return a session in which pods of many classes wait for a full node of the pool `a`."""
    old = a_pod("old", cpu="1", pool="a", node="n", priority=9)
    session = Session(a_pool("a", labels=A), a_node("n", cpu="1", labels=A), old)
    session.scheduler.often = session.scheduler.closely = False
    session.see(*(a_pod(f"p{n:03d}", cpu=f"{n + 1}m", pool="a", created=n) for n in range(PARKED)), *pods)
    session.decide()
    assert session.scheduler.waiting()["a"] == {"parked": PARKED + len(pods)}
    return session


def the_agenda(session: Session) -> Agenda:
    return session.scheduler.cluster.deferred.agenda("a")


def parked(session: Session) -> list[PodRecord]:
    return sorted(session.scheduler.cluster.queues["a"].in_state(PodState.PARKED), key=lambda one: one.pod.name)


def by_uid(records: Iterable[PodRecord]) -> dict[str, PodRecord]:
    return {one.pod.uid: one for one in records}


def test_tasks_of_a_slice_have_one_budget_and_a_part_of_each_is_done() -> None:
    session = a_session()
    agenda, pods = the_agenda(session), parked(session)
    agenda.rechecking.update(by_uid(pods[:100]))
    agenda.waking.update(by_uid(pods[100:]))
    session.scheduler.decide("a", session.now, 1)
    assert (len(agenda.rechecking), len(agenda.waking)) == (100 - CHECKS_MAX, PARKED - 100 - 1)


def test_what_a_slice_leaves_is_done_by_the_next_without_an_event() -> None:
    session = a_session()
    agenda, attempts = the_agenda(session), session.scheduler.counters.attempts.total()
    agenda.rechecking.update(by_uid(parked(session)))
    session.decide()
    assert session.scheduler.counters.attempts.total() - attempts == PARKED
    assert not the_agenda(session).is_due()


def test_attempts_of_a_slice_count_what_its_tasks_have_spent() -> None:
    session = a_session()
    the_agenda(session).rechecking.update(by_uid(parked(session)[:10]))
    attempts = session.scheduler.counters.attempts.total()
    session.scheduler.decide("a", session.now, 15)
    assert session.scheduler.counters.attempts.total() - attempts == 5


def test_room_that_became_free_is_offered_before_pods_are_woken_for_another_reason() -> None:
    session = a_session(a_pod("urgent", cpu="1", pool="a", priority=5))
    late = by_uid(one for one in parked(session) if one.pod.name != "urgent")
    session.tell(gone(Pod, "uid-old"))
    the_agenda(session).waking.update(late)
    assert next(iter(binds(session.decide()))) == "urgent"


def test_agenda_of_a_pool_that_is_gone_is_dropped() -> None:
    session = a_session()
    the_agenda(session).rechecking.update(by_uid(parked(session)))
    session.tell(gone(Pool, "a"))
    assert "a" not in session.scheduler.cluster.deferred.agendas
    session.scheduler.look(closely=True)


def test_gang_that_changes_its_class_costs_as_much_as_its_pods_do_alone() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", cpu="1", labels=A))
    gang = a_gang("g", 40, GangSource.LABELS)
    session.see(*(member(a_pod(f"g{n}", cpu="1", pool="a"), gang) for n in range(40)))
    session.decide()
    agenda, checks = the_agenda(session), Checks()
    agenda.dividing.update(by_uid(parked(session)))
    take_classes(session.scheduler.cluster, "a", checks)
    assert (len(agenda.dividing), checks.spent) == (0, 40 // CHANGED_PER_CHECK)


ONE_TASK: list[tuple[str, object]] = [
    ("review", True),
    ("seeking", LenderSearch()),
    ("rewording", Rewording(1, counts=False)),
    ("lending", (False, 0, 0, 0, "")),
    *((kind, {"x": None}) for kind in ("rows", "affected", "dividing", "rechecking", "waking", "counted")),
]


@pytest.mark.parametrize(("kind", "task"), ONE_TASK)
def test_each_kind_of_task_makes_its_pool_ready(kind: str, task: object) -> None:
    agenda = Agenda()
    setattr(agenda, kind, task)
    assert agenda.is_due()
    assert not agenda.is_empty()


def test_what_waits_for_something_else_makes_no_pool_ready_and_is_kept() -> None:
    for kind, noted in (("sought", True), ("relook", -1), ("regrouped", True), ("held_up", 1)):
        agenda = Agenda()
        setattr(agenda, kind, noted)
        assert (agenda.is_due(), agenda.is_empty()) == (False, False)
    assert Agenda().is_empty()


def test_each_task_but_lending_is_done_by_the_table_in_the_order_of_the_fields() -> None:
    fields = [name for name in Agenda.__struct_fields__ if name not in ("lending", "relook", "held_up", "regrouped")]
    found = []
    for task in TASKS:
        waits = [name for name in fields if task.waits(_with(name))]
        assert len(waits) == 1
        found += waits
    assert found == fields


def _with(name: str) -> Agenda:
    agenda = Agenda()
    setattr(agenda, name, {"x": None})
    return agenda


def test_pieces_of_work_cost_a_check_together() -> None:
    checks = Checks(10)
    for _ in range(7):
        checks.spend_part(4)
    assert (checks.left, checks.spent) == (9, 1)
    checks.spend_part(4)
    assert (checks.left, checks.spent) == (8, 2)
    checks.spend_part(4, times=5)
    assert (checks.left, checks.spent) == (7, 3)
    checks = Checks(8, spent=2)
    checks.spend(3, unit=True)
    assert (checks.left, checks.spent, checks.of_units) == (5, 5, 3)
    checks.spend(7)
    checks.allow_one()
    assert (checks.left, checks.spent) == (1, 12)
