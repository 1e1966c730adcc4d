"""Gangs that do not start in time: their status and reason say so, they go on waiting, and a change gives them time."""

from aischeduler.model.events import Seen
from aischeduler.model.gang import GangPhase
from aischeduler.model.node import Node
from tests.build import a_node
from tests.engine.session import Session, binds, reports
from tests.gangs import a_gang, a_key, gang_statuses, members


def nodes(count: int) -> list[Node]:
    return [a_node(f"n{number}", cpu="2") for number in range(count)]


def test_late_gang_is_reported_as_failed_once_and_still_starts_when_room_comes() -> None:
    session = Session(*nodes(1), *members("g", 2))
    session.tell(Seen(a_gang("g", 2, timeout=60)))
    session.decide()
    said = session.decide(seconds=61)
    late = f"The gang {a_key('g')} did not start within 60 s. 1 of the 2 pods that start together fit."
    assert reports(said)["g-0"].startswith(late)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED
    session.see(a_node("more", cpu="2"))
    assert len(binds(session.decide())) == 2


def test_gang_whose_object_does_not_exist_is_late_after_ten_minutes_and_starts_once_it_does() -> None:
    session = Session(*nodes(2), *members("g", 2))
    unknown = "The PodGroup of scheduling.x-k8s.io default/g, which the pod names, does not exist."
    assert reports(session.decide())["g-0"] == unknown
    assert reports(session.decide(seconds=599)) == {}
    late = f"The gang {a_key('g')} did not start within 600 s."
    assert reports(session.decide(seconds=2))["g-0"] == f"{late} {unknown}"
    session.tell(Seen(a_gang("g", 2)))
    assert len(binds(session.decide())) == 2


def test_changed_gang_gets_its_time_again() -> None:
    session = Session(*nodes(1), *members("g", 2))
    session.tell(Seen(a_gang("g", 2, timeout=60)))
    session.decide()
    session.decide(seconds=61)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED
    session.tell(Seen(a_gang("g", 2, timeout=90)))
    session.decide(seconds=1)
    assert gang_statuses(session.said)["g"].phase is GangPhase.SCHEDULING
    session.decide(seconds=91)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED


def test_new_pod_gives_a_late_gang_its_time_again() -> None:
    session = Session(*nodes(1), *members("g", 2))
    session.tell(Seen(a_gang("g", 2, timeout=60)))
    session.decide()
    session.decide(seconds=61)
    session.see(*members("g", 3)[2:])
    session.decide()
    assert gang_statuses(session.said)["g"].phase is GangPhase.SCHEDULING
    session.decide(seconds=61)
    assert gang_statuses(session.said)["g"].phase is GangPhase.FAILED
