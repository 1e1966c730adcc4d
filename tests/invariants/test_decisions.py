"""The actions of one call of `decide` are checked after the call, in which later decisions may have been made."""

from msgspec.structs import replace

from aischeduler.model.actions import Action, Evict
from aischeduler.model.gang import GangSource
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.state.claims import Claim
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions
from tests.gangs import a_gang, member
from tests.invariants.decisions import judge


def displaced() -> tuple[Session, list[Action], list[Action]]:
    """Return a session in which `low` made room and lost it to `high`, with the actions before and after that."""
    session = Session(a_pool("default"), a_node("n1", cpu="4"), a_node("n2", cpu="4"))
    session.see(*(a_pod(f"old-{i}", cpu="4", node=f"n{i}", priority=i, started=1) for i in (1, 2)))
    session.see(a_pod("low", cpu="4", priority=5))
    first = session.decide()
    session.see(a_pod("high", cpu="4", priority=9))
    return session, first, session.decide()


def test_pod_that_lost_its_claim_to_a_pod_ahead_and_was_tried_again_may_claim_another_row() -> None:
    session, first, second = displaced()
    assert evictions(first) == {"old-1": "Preempted"}
    assert evictions(second) == {"old-2": "Preempted"}
    assert judge(session.scheduler.cluster, first + second) == ()


def test_pod_that_evicts_on_one_row_and_claims_another_by_one_decision_is_a_fault() -> None:
    session, _, second = displaced()
    cluster = session.scheduler.cluster
    claim = cluster.claims.of("uid-low")
    assert claim is not None
    cluster.claims.end(claim)
    elsewhere = replace(claim.rooms[0], row=cluster.nodes.rows["n1"])
    cluster.claims.make(Claim(claim.owner, (elsewhere,), claim.pool, (), 0.0))
    evicts = [action for action in second if isinstance(action, Evict)]
    assert [(found.name, found.message.partition(":")[0]) for found in judge(cluster, evicts)] == [("I7", "uid-old-2")]


def test_pod_that_could_follow_a_borrower_once_it_is_there_is_no_reason_against_the_loan() -> None:
    near = pod_affinity(required=(term("zone", "app=db"),))
    session = Session(a_pool("lender", labels={"team": "a"}), a_pool("home"))
    session.see(a_node("n", cpu="4", labels={"team": "a", "zone": "z"}), a_pod("own", pool="lender", pod_affinity=near))
    assert binds(session.decide()) == {}
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(a_pod(f"db-{i}", pool="home", labels={"app": "db"}), gang) for i in range(2)))
    assert binds(session.decide()) == {"db-0": "n", "db-1": "n", "own": "n"}
