"""Of several gangs, inference takes no more than it needs: what a gang loses whole spares the others."""

import pytest

from aischeduler.model.gang import GangSource
from tests.engine.session import Session, evictions
from tests.engine.test_tide import a_session, on, service, training
from tests.gangs import a_gang, member
from tests.tenants import a_card_node


def with_gang(session: Session, name: str, starts: tuple[int, ...], priority: int = 0) -> None:
    """Let a gang of one-card pods run on the node, whose pods started at these times."""
    gang = a_gang(name, len(starts), GangSource.LABELS)
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
