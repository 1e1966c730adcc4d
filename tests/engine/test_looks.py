"""A look leaves nothing behind: what a proposal, a check or an explanation tries does not count after it."""

from aischeduler.analysis.what_if import question_of
from aischeduler.engine.propose import propose
from aischeduler.model.events import PodGone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.proposal import Wait
from aischeduler.state.counted_pods import selected_by
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions
from tests.gangs import a_gang, member

HOST = "kubernetes.io/hostname"
APART = term(HOST, "app=x")


def on_host(name: str, *, pool: str = "a") -> dict[str, str]:
    return {HOST: name, "pool": pool}


def nominated_gang() -> Session:
    """Return a pool whose three nodes are claimed by a gang that keeps apart by host; its victims are still there."""
    gang = a_gang("g", 3, GangSource.LABELS)
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b"))
    for name in ("n1", "n2", "n3"):
        session.see(a_node(name, cpu="2", labels=on_host(name)), a_pod(f"old-{name}", cpu="2", node=name, pool="a"))
    apart = pod_affinity(anti_required=(APART,))
    for turn in range(3):
        pod = a_pod(f"g-{turn}", cpu="2", pool="a", priority=5, labels={"app": "x"}, pod_affinity=apart)
        session.see(member(pod, gang))
    assert len(evictions(session.decide())) == 3
    return session


def claimed(session: Session) -> dict[str, int]:
    """Return the claims that count for the anti-affinity of the gang, by node."""
    nodes = session.scheduler._cluster.nodes
    count = nodes.pod_counts.of(selected_by(APART, unseen=True))
    return {nodes.names[row]: number for row, number in count.claimed.items()}


def test_look_for_a_lender_takes_no_claim_out_of_the_counts() -> None:
    session = nominated_gang()
    session.see(a_node("n4", cpu="2", labels=on_host("n4")), a_pod("guest", cpu="1", pool="b"))
    cluster = session.scheduler._cluster
    every = claimed(session)
    assert every == {"n1": 1, "n2": 1, "n3": 1}
    propose(cluster, cluster.records["uid-guest"], "b", session.now)
    assert claimed(session) == every


def test_explanation_of_a_nominated_gang_takes_no_claim_out_of_the_counts() -> None:
    session = nominated_gang()
    session.see(a_node("n4", cpu="2", labels=on_host("n4")))
    cluster = session.scheduler._cluster
    question_of(cluster, cluster.records["uid-g-0"], session.now)
    assert claimed(session) == {"n1": 1, "n2": 1, "n3": 1}


def test_room_that_a_nominated_gang_can_use_beside_its_claim_is_not_lent() -> None:
    session = nominated_gang()
    session.tell(PodGone("uid-old-n1"), PodGone("uid-old-n2"))
    session.see(a_node("n4", cpu="2", labels=on_host("n4")), a_pod("guest", cpu="1", pool="b"))
    cluster = session.scheduler._cluster
    found = propose(cluster, cluster.records["uid-guest"], "b", session.now)
    assert isinstance(found, Wait)
    assert found.search.blocked == ("a",)
    assert set(binds(session.decide()).values()) == {"n1", "n2", "n4"}
