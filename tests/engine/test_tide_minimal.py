"""Of several gangs, inference takes no more than it needs: what a gang loses whole spares the others."""

import pytest

from aischeduler.model.gang import GangSource
from tests.build import a_node, a_pod
from tests.engine.session import Session, evictions
from tests.engine.test_tide import a_session, on, service, training
from tests.gangs import a_gang, member
from tests.tenants import a_card_node


def with_gang(session: Session, name: str, starts: tuple[int, ...], priority: int = 0, minimum: int = 0) -> None:
    """Let a gang of one-card pods run on the node, whose pods started at these times; all are needed, or a minimum."""
    gang = a_gang(name, minimum or len(starts), GangSource.LABELS)
    pods = (on(training(f"{name}-{turn}", priority=priority), "n", started) for turn, started in enumerate(starts))
    session.see(*(member(pod, gang) for pod in pods))


@pytest.mark.parametrize("starts", [(1, 1), (2, 3), (1, 4)], ids=["of one age", "younger", "of mixed ages"])
def test_one_of_two_gangs_of_equal_priority_goes_where_its_cards_do(starts: tuple[int, int]) -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-GeForce-RTX-4090", 4))
    with_gang(session, "eval", (1, 2) if starts == (1, 4) else (1, 1))
    with_gang(session, "sweep", starts)
    session.see(service("next", 2))
    assert len(evictions(session.decide())) == 2


def test_a_less_important_pod_stays_where_a_gang_goes_whole_whose_cards_do() -> None:
    """Without the gang's other pod two cards are not enough, and with it the pod of the lowest priority may stay."""
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-GeForce-RTX-4090", 5))
    session.see(on(training("first", 2, priority=3), "n"), on(training("last", 1, priority=1), "n"))
    with_gang(session, "gang", (1, 1), priority=2)
    session.see(service("next", 2))
    assert set(evictions(session.decide())) == {"gang-0", "gang-1"}


@pytest.mark.parametrize("priority", [0, 5], ids=["of one priority", "more important"])
def test_surplus_of_a_gang_goes_before_other_training(priority: int) -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-GeForce-RTX-4090", 6))
    with_gang(session, "large", (1, 1, 1), priority=priority, minimum=2)
    with_gang(session, "whole", (2, 2))
    session.see(on(training("single", 1), "n", 3), service("next", 1))
    assert set(evictions(session.decide())) == {"large-2"}


def test_node_with_surplus_goes_before_one_with_less_important_training() -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-GeForce-RTX-4090", 3), a_card_node("other", "NVIDIA-GeForce-RTX-4090", 1))
    with_gang(session, "large", (1, 1, 1), priority=5, minimum=2)
    session.see(on(training("single", 1), "other"), service("next", 1))
    assert set(evictions(session.decide())) == {"large-2"}


def test_without_queues_the_less_important_pod_goes_before_surplus() -> None:
    session = Session()
    session.see(a_node("n", cpu="4"), on(a_pod("single"), "n"))
    gang = a_gang("large", 2, GangSource.LABELS)
    session.see(*(member(on(a_pod(f"large-{turn}", priority=5), "n"), gang) for turn in range(3)))
    session.see(a_pod("next", priority=9))
    assert set(evictions(session.decide())) == {"single"}
