"""The deferred work of an edit of a Pool is done in parts and in order."""

from aischeduler.engine.agenda import CHECKS_MAX
from aischeduler.engine.queueing_hints import FEW_ROWS
from aischeduler.model.actions import Bind
from aischeduler.model.events import gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds

WOKEN_AT_ONCE = CHECKS_MAX
WAITING = 2 * WOKEN_AT_ONCE + 10


def nodes(count: int, *, cpu: str, team: str) -> list[Node]:
    return [
        a_node(f"{team}-{number:02d}", cpu=cpu, memory="1Ti", pods=1000, labels={"team": team})
        for number in range(count)
    ]


def in_turns(*, count: int) -> list[Pod]:
    """Return pods of two classes in turn."""
    return [a_pod(f"p{n:03d}", cpu="1", memory=f"{1 + n % 2}Gi", pool="b", created=n) for n in range(count)]


def test_an_edit_tries_no_pod_itself_and_each_decision_a_few() -> None:
    session = Session(a_pool("a", labels={"team": "a"}), a_pool("b"), *nodes(1, cpu="500", team="a"))
    session.see(a_pool("a", labels={"team": "a"}, disable_sharing=True), *in_turns(count=WAITING))
    session.decide()
    session.see(a_pool("a", labels={"team": "b"}, generation=2))
    session.see(a_pool("b", labels={"team": "a"}, generation=2))
    assert session.scheduler.waiting()["b"] == {"parked": WAITING}
    session.scheduler.decide("b", session.now, 1)
    waiting = session.scheduler.waiting()["b"]
    assert waiting["active"] == WOKEN_AT_ONCE - 1
    assert waiting["backoff"] == 1, "the placed pod has woken the next pod of its class"
    assert waiting["parked"] == WAITING - WOKEN_AT_ONCE - 1


def test_pods_keep_their_order_where_their_pool_gets_its_first_nodes() -> None:
    session = Session(a_pool("b"), *in_turns(count=WAITING))
    session.decide()
    session.see(*nodes(1, cpu="500", team="b"))
    session.see(a_pool("b", labels={"team": "b"}, generation=2))
    placed = [action.pod.name for action in session.decide() if isinstance(action, Bind)]
    names = [f"p{n:03d}" for n in range(WAITING)]
    assert placed[:WOKEN_AT_ONCE] == names[:WOKEN_AT_ONCE]
    assert sorted(placed) == names


def test_a_pool_that_gains_many_nodes_tries_only_pods_that_may_fit() -> None:
    session = Session(
        a_pool("default", disable_sharing=True),
        a_pool("b", labels={"team": "b", "rack": "1"}),
        a_node("first", cpu="2", labels={"team": "b", "rack": "1"}),
        *nodes(FEW_ROWS + 1, cpu="4", team="b"),
        a_pod("fits", cpu="3", pool="b"),
        a_pod("too-large", cpu="5", pool="b"),
    )
    session.decide()
    tried = session.scheduler.counters.attempts.total()
    session.see(a_pool("b", labels={"team": "b"}, generation=2))
    assert binds(session.decide()) == {"fits": "b-00"}
    assert session.scheduler.counters.attempts.total() - tried == 1


def test_pods_that_are_to_be_tried_are_tried_after_their_pool_is_deleted() -> None:
    session = Session(a_pool("b"), *in_turns(count=WAITING))
    session.decide()
    session.see(*nodes(1, cpu="500", team="b"))
    session.see(a_pool("b", labels={"team": "b"}, generation=2))
    session.tell(gone(Pool, "b"))
    assert len(binds(session.decide())) == WAITING
    assert session.scheduler.waiting() == {"default": {}}


def test_a_changed_switch_has_waiting_pods_tried_by_the_next_decisions() -> None:
    session = Session(
        a_pool("b", labels={"team": "b"}, disable_preemption=True),
        *nodes(1, cpu="1", team="b"),
        a_pod("running", cpu="1", pool="b", node="b-00"),
        a_pod("important", cpu="1", pool="b", priority=9),
    )
    session.decide()
    session.see(a_pool("b", labels={"team": "b"}, generation=2))
    assert session.scheduler.waiting()["b"] == {"parked": 1}
    session.decide()
    assert session.scheduler.waiting()["b"] == {"nominated": 1}
