"""An exception of the scheduler leaves no claim that is wrong."""

from collections.abc import Sequence

import pytest

from aischeduler.engine.nominator import without
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.selectors import label_selector
from aischeduler.state.claims import Claim, Claims
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod, PodState
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, errors, evictions, fail_once, nominations

A, B = {"pool": "a"}, {"pool": "b"}


def test_claim_that_an_attempt_failed_to_renew_is_for_the_spec_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n", cpu="4", labels=A))
    session.see(a_pod("guest", cpu="4", pool="b", node="n", started=1, grace=30))
    session.see(a_pod("owner", cpu="4", pool="a", labels={"app": "x"}))
    assert nominations(session.decide()) == {"owner": "n"}
    term = PodAffinityTerm("zone", label_selector("x", {"app": "y"}, ()), ("default",))
    session.see(a_pod("other", pool="b", gates=("wait",), pod_affinity=pod_affinity(anti_required=(term,))))
    cluster = session.scheduler.cluster

    def failing(claims: Claims, claim: Claim) -> None:
        monkeypatch.undo()
        raise ValueError("a bug in a step")

    monkeypatch.setattr(Claims, "forget", failing)
    cluster.queues["a"].wake_at_once(cluster.records["uid-owner"], 0.0)
    assert len(errors(session.decide())) == 1
    session.scheduler.look()
    claim = cluster.claims.of("uid-owner")
    assert claim is not None
    assert not claim.outdated
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide(60.0)) == {"owner": "n"}


def test_check_of_a_claim_that_fails_in_an_attempt_does_not_queue_the_pod_of_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n", cpu="4", labels=A))
    session.see(a_pod("guest", cpu="3", pool="b", node="n", started=1), a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    fail_once(monkeypatch, "nominator", "all_fit_after_departures")
    session.see(a_pod("first", cpu="1", pool="a", priority=9))
    assert binds(session.decide()) == {"first": "n"}
    session.scheduler.look()
    assert session.scheduler.cluster.records["uid-owner"].state is PodState.BACKOFF


def test_exception_at_the_begin_of_a_look_without_claims_leaves_a_torn_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_node("n", cpu="4"), a_pod("old", cpu="4", node="n"), a_pod("owner", cpu="4", priority=5))
    session.decide()
    cluster, count = session.scheduler.cluster, NodeTable.count_tentatively
    claim, used = cluster.claims.all()[0], cluster.nodes.used.copy()

    def failing(nodes: NodeTable, pods: Sequence[AssignedPod], sign: int) -> None:
        count(nodes, pods, sign)
        monkeypatch.undo()
        raise ValueError("a bug in a step")

    look = without(cluster, (claim,))
    assert (cluster.nodes.used == used).all(), "the look has not begun"
    monkeypatch.setattr(NodeTable, "count_tentatively", failing)
    with pytest.raises(ValueError, match="a bug"), look:
        pass
    assert cluster.nodes.torn
