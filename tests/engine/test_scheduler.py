import pytest

from aischeduler.engine.bindings import SETTLE_SECONDS
from aischeduler.model.actions import Bind, CreatePool, Evict, ReadPod
from aischeduler.model.events import BindRefusal, BindRefused, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.state.scheduling_queue import NET_SECONDS, PoolQueue
from tests.build import a_node, a_pod, a_pool, a_taint, replace
from tests.engine.session import Session, binds, conditions, reports, warnings


def on(pod: Pod, node: str) -> Pod:
    return replace(pod, node_name=node)


def test_a_bind_names_pools_decision_and_choice() -> None:
    session = Session(a_pool("cpu", labels={}), a_node("a", cpu="2"), a_node("b", cpu="2"), a_pod("p", pool="cpu"))
    bind = next(action for action in session.decide() if isinstance(action, Bind))
    assert (bind.pool, bind.home_pool, bind.decision, bind.feasible_nodes) == ("cpu", "cpu", "run-1", 2)


def test_a_placed_pod_counts_before_it_is_confirmed() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p1", cpu="1"), a_pod("p2", cpu="1"))
    assert binds(session.decide()) == {"p1": "n"}
    session.see(a_pod("p1", cpu="1"))
    assert binds(session.decide(60)) == {}


def test_a_freed_node_wakes_as_many_pods_as_can_use_it_and_one_more() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("big", cpu="4", node="n"))
    session.see(*(a_pod(f"p{i}", cpu="2", created=i) for i in range(10)))
    session.decide()
    session.now += 20
    session.tell(gone(Pod, "uid-big"))
    assert binds(session.decide()) == {"p0": "n", "p1": "n"}
    waiting = session.scheduler.waiting()["default"]
    assert waiting == {"parked": 8}
    assert session.scheduler.net_saves() == 0


def test_the_five_minute_flush_saves_no_pod_when_room_is_freed_in_any_order() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("x", cpu="3", node="n"), a_pod("y", cpu="1", node="n"))
    session.see(a_pod("large", cpu="4"), a_pod("small", cpu="1"))
    session.decide()
    session.tell(gone(Pod, "uid-y"))
    assert binds(session.decide(2)) == {"small": "n"}
    session.tell(gone(Pod, "uid-x"))
    assert binds(session.decide(2)) == {}
    session.tell(gone(Pod, "uid-small"))
    assert binds(session.decide(20)) == {"large": "n"}
    assert session.scheduler.net_saves() == 0


def test_a_pod_is_woken_by_the_end_of_its_second_refusal() -> None:
    """The new node is large enough but tainted: the end of the taint must wake the pod."""
    session = Session(a_node("small", cpu="1"), a_pod("p", cpu="4"))
    session.decide()
    session.see(a_node("large", cpu="8", taints=(a_taint(),)))
    assert binds(session.decide(20)) == {}
    session.see(a_node("large", cpu="8"))
    assert binds(session.decide(20)) == {"p": "large"}
    assert session.scheduler.net_saves() == 0


def test_a_woken_pod_that_is_deleted_wakes_the_next() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("r", cpu="1", node="n"), a_pod("a", created=1), a_pod("b", created=2))
    session.decide()
    session.tell(gone(Pod, "uid-r"), gone(Pod, "uid-a"))
    assert binds(session.decide(20)) == {"b": "n"}


def test_a_node_that_two_pools_select_is_in_the_default_pool_and_both_have_a_condition() -> None:
    session = Session(
        a_pool("a", labels={"a": "1"}), a_pool("b", labels={"b": "1"}), a_node("n", labels={"a": "1", "b": "1"})
    )
    session.see(a_pod("home", pool="a"), a_pod("free"))
    said = session.decide()
    assert binds(said)["free"] == "n"
    for pool, other in (("a", "b"), ("b", "a")):
        status, message = conditions(session.said, pool)["Conflict"]
        assert status
        assert message == f"Pool {other} also selects nodes, which belong to the pool default: n."
    assert [name for name, reason in warnings(session.said) if reason == "NodesClaimedTwice"] == ["a", "b"]
    session.tell(gone(Pool, "b"))
    session.decide(1)
    assert conditions(session.said, "a")["Conflict"][0] is False


def test_a_refused_pool_has_a_condition_and_the_others_are_scheduled() -> None:
    session = Session(
        a_pool("bad", labels={"a": "1"}, invalid="spec.nodeSelector.matchLabels: nonsense"),
        a_pool("good", labels={"a": "1"}),
        a_node("n", labels={"a": "1"}),
        a_pod("p", pool="good"),
    )
    said = session.decide()
    assert conditions(session.said, "bad")["Accepted"] == (False, "spec.nodeSelector.matchLabels: nonsense")
    assert conditions(session.said, "good")["Accepted"][0]
    assert warnings(session.said) == [("bad", "InvalidSpec")]
    assert binds(said) == {"p": "n"}


def test_a_pod_that_cannot_be_read_gets_a_reason_and_waits_for_its_change() -> None:
    bad = 'spec.containers[0].resources.requests.cpu: "1.5.3" is not a quantity'
    session = Session(a_node("n"), a_pod("bad", invalid=bad), a_pod("good"))
    said = session.decide()
    assert reports(said) == {"bad": bad}
    assert binds(said) == {"good": "n"}
    session.see(a_pod("bad", cpu="2"))
    assert binds(session.decide(20)) == {"bad": "n"}


def test_a_gated_pod_waits_only_for_its_gates() -> None:
    session = Session(a_node("n"), a_pod("p", gates=("quota",)))
    assert session.decide(NET_SECONDS * 2) == []
    assert session.scheduler.why("uid-p") == "waiting for scheduling gates: [quota]"
    session.see(a_pod("p"))
    assert binds(session.decide()) == {"p": "n"}


@pytest.mark.parametrize(
    ("refusal", "place"),
    [
        (BindRefusal.GONE, {}),
        (BindRefusal.TAKEN, {"held": 1}),
        (BindRefusal.HELD, {"held": 1}),
        (BindRefusal.INVALID, {"backoff": 1}),
        (BindRefusal.FORBIDDEN, {"backoff": 1}),
        (BindRefusal.UNAVAILABLE, {"backoff": 1}),
    ],
)
def test_a_refused_bind_frees_the_room_for_the_next(refusal: BindRefusal, place: dict[str, int]) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"), a_pod("next", cpu="1", created=5))
    session.decide()
    session.now += 20
    session.tell(BindRefused("uid-p", "n", refusal, "no"))
    assert session.scheduler.waiting()["default"] == {**place, "parked": 1}
    assert binds(session.decide()) == {"next": "n"}


@pytest.mark.parametrize("refusal", [BindRefusal.INVALID, BindRefusal.FORBIDDEN, BindRefusal.UNAVAILABLE])
def test_refused_binding_is_tried_again_with_growing_backoff_and_its_reason_is_told(refusal: BindRefusal) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"))
    session.decide()
    for seconds in (1, 2, 4, 8, 10, 10):
        session.tell(BindRefused("uid-p", "n", refusal, "the policy says no"))
        assert reports(session.decide(seconds - 0.1)) == {"p": "binding to node n failed: the policy says no"}
        assert binds(session.decide(0.2)) == {"p": "n"}


def test_same_refusal_for_another_node_is_no_other_reason() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"))
    session.decide()
    session.tell(BindRefused("uid-p", "n", BindRefusal.INVALID, "no"), gone(Node, "n"))
    first = reports(session.decide())
    session.see(a_node("m", cpu="1"))
    assert binds(session.decide(2)) == {"p": "m"}
    session.tell(BindRefused("uid-p", "m", BindRefusal.INVALID, "no"))
    assert reports(session.decide()) == first
    session.decide(2)
    session.tell(BindRefused("uid-p", "m", BindRefusal.INVALID, "never"))
    assert reports(session.decide()) == {"p": "binding to node m failed: never"}


def test_refused_pod_is_not_tried_before_the_time_that_the_answer_asks_for() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"))
    session.decide()
    session.tell(BindRefused("uid-p", "n", BindRefusal.UNAVAILABLE, "later", 20.0))
    assert binds(session.decide(19.9)) == {}
    assert binds(session.decide(0.2)) == {"p": "n"}


def test_room_of_a_pool_is_lent_while_a_home_pod_that_could_use_it_is_rejected() -> None:
    pools = a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"})
    session = Session(*pools, a_node("a1", cpu="1", labels={"pool": "a"}), a_pod("p", pool="a", cpu="1"))
    session.decide()
    session.see(a_pod("guest", pool="b", cpu="1"))
    session.tell(BindRefused("uid-p", "a1", BindRefusal.INVALID, "no"))
    assert binds(session.decide()) == {"guest": "a1"}


def test_pod_whose_stale_bind_was_not_sent_is_decided_again_at_once() -> None:
    session = Session(a_node("n", cpu="1"), a_node("m", cpu="1"), a_pod("p", cpu="1"))
    (node,) = binds(session.decide()).values()
    session.tell(gone(Node, node), BindRefused("uid-p", node, BindRefusal.STALE, "the node is gone"))
    again = session.decide()
    assert binds(again) == {"p": {"n": "m", "m": "n"}[node]}
    assert reports(again) == {}


def test_still_assumed_and_has_node_answer_for_the_binder() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"))
    (bind,) = [action for action in session.decide() if isinstance(action, Bind)]
    scheduler = session.scheduler
    assert scheduler.still_assumed("uid-p", bind.decision)
    assert not scheduler.still_assumed("uid-p", "another decision")
    assert (scheduler.assumed(), scheduler.has_node("n"), scheduler.has_node("m")) == (1, True, False)
    session.tell(gone(Node, "n"))
    assert (scheduler.still_assumed("uid-p", bind.decision), scheduler.has_node("n")) == (True, False)
    session.see(on(a_pod("p", cpu="1"), "n"))
    assert (scheduler.still_assumed("uid-p", bind.decision), scheduler.assumed()) == (False, 0)


def test_still_evicts_and_is_assumed_answer_for_the_evictor() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"))
    session.decide()
    session.see(a_pod("high", cpu="1", priority=1))
    (evict,) = [action for action in session.decide() if isinstance(action, Evict)]
    scheduler = session.scheduler
    assert (scheduler.still_evicts("uid-p", evict.decision), scheduler.is_assumed("uid-p")) == (True, True)
    assert not scheduler.still_evicts("uid-p", "another decision")
    session.tell(BindRefused("uid-p", "n", BindRefusal.FORBIDDEN, "no"))
    assert (scheduler.still_evicts("uid-p", evict.decision), scheduler.is_assumed("uid-p")) == (False, False)


def test_an_outcome_older_than_the_watch_changes_nothing() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"), a_pod("q", cpu="1"))
    session.decide()
    session.see(on(a_pod("p", cpu="1"), "n"))
    session.tell(BindRefused("uid-p", "n", BindRefusal.UNAVAILABLE, "timeout"))
    assert binds(session.decide(20)) == {}
    session.tell(gone(Pod, "uid-p"), BindRefused("uid-p", "n", BindRefusal.GONE, ""))
    assert binds(session.decide(20)) == {"q": "n"}


def test_a_pod_bound_by_another_client_leaves_the_queue_and_counts() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="2"))
    session.decide()
    session.see(on(a_pod("p", cpu="2"), "n"))
    assert session.scheduler.waiting()["default"] == {}
    session.see(a_pod("q", cpu="1"))
    assert binds(session.decide()) == {}


def test_an_assumed_pod_without_confirmation_is_read_and_never_expires() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="1"), a_pod("q", cpu="1"))
    session.decide()
    settles = [a for a in session.decide(SETTLE_SECONDS) if isinstance(a, ReadPod)]
    assert [(s.pod.name, s.node) for s in settles] == [("p", "n")]
    assert binds(session.decide(3600)) == {}


def test_a_node_deleted_while_its_pod_is_assumed_takes_no_other_pod() -> None:
    session = Session(a_node("n", cpu="2"), a_pod("p", cpu="1"))
    session.decide()
    session.tell(gone(Node, "n"))
    session.see(a_pod("q", cpu="1"))
    assert reports(session.decide()) == {"q": "no nodes available to schedule pods"}
    session.tell(BindRefused("uid-p", "n", BindRefusal.UNAVAILABLE, "x"))
    session.see(a_node("n", cpu="2"))
    assert binds(session.decide(20)) == {"p": "n", "q": "n"}


def test_pods_of_other_schedulers_count_but_are_never_tried() -> None:
    session = Session(
        a_node("n", cpu="1"), a_pod("foreign", scheduler_name="default-scheduler"), a_pod("mine", cpu="1")
    )
    session.see(a_pod("daemon", cpu="500m", node="n", scheduler_name="default-scheduler"))
    assert reports(session.decide()) == {
        "mine": "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    }


def test_a_waiting_pod_that_is_being_deleted_is_not_tried() -> None:
    session = Session(a_node("n"), a_pod("p", terminating=True))
    assert session.decide() == []
    assert session.scheduler.waiting()["default"] == {}


def test_the_same_reason_is_reported_once() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="4"))
    assert len(reports(session.decide())) == 1
    assert session.decide(NET_SECONDS) == []


def test_the_summary_has_the_amounts_of_every_pool() -> None:
    session = Session(
        a_pool("cpu", labels={"cpu": "true"}, disable_sharing=True),
        a_node("c1", cpu="4", memory="8Gi", labels={"cpu": "true"}),
        a_node("g1", cpu="4", memory="8Gi", gpu=2),
        a_pod("r", cpu="1", memory="1Gi", pool="cpu", node="c1"),
        a_pod("guest", cpu="1", memory="1Gi", pool="cpu", node="g1"),
        a_pod("system", cpu="1", memory="1Gi", node="c1", scheduler_name="other"),
        a_pod("waits", cpu="9", memory="1Gi", pool="cpu"),
        a_pod("gated", cpu="9", memory="1Gi", pool="cpu", gates=("x",)),
    )
    session.decide()
    cpu, default = session.scheduler.summary()
    assert (cpu.name, cpu.nodes, cpu.pods, cpu.pending_pods, cpu.sharing) == ("cpu", 1, 2, 1, False)
    assert (cpu.allocatable["cpu"], cpu.used["cpu"], cpu.shared.get("cpu", 0), cpu.pending["cpu"]) == (
        4000,
        2000,
        0,
        9000,
    )
    assert (default.name, default.allocatable["gpu"], default.shared["cpu"]) == ("default", 2, 1000)


def test_the_default_pool_is_created_while_it_has_no_object_and_at_once_when_it_is_deleted() -> None:
    session = Session(a_node("n"))

    def asked(seconds: float) -> int:
        before = len(session.said)
        session.decide(seconds)
        return sum(isinstance(action, CreatePool) for action in session.said[before:])

    assert [asked(seconds) for seconds in (0, 1, 29, 1)] == [1, 0, 1, 0]
    session.see(a_pool("default"))
    assert asked(100) == 0
    session.tell(gone(Pool, "default"))
    assert asked(0) == 1


def test_pod_created_in_the_future_comes_last_and_waits_by_the_engines_clock() -> None:
    """The API server's clock was five years ahead: that decides only the pod's position in the queue."""
    session = Session(a_node("n", cpu="1"))
    session.see(a_pod("ahead", cpu="1", created=2_000_000_000), a_pod("right", cpu="1", created=1_800_000_000))
    assert binds(session.decide()) == {"right": "n"}
    session.now += 20
    session.tell(gone(Pod, "uid-right"))
    bind = next(action for action in session.decide() if isinstance(action, Bind))
    assert (bind.pod.name, bind.waited_seconds) == ("ahead", 20.0)
    assert session.scheduler.net_saves() == 0


def test_queues_are_read_in_the_order_of_pool_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of a set differs between processes; exceptions must be reported in the same order."""
    looked_at: list[str] = []
    original = PoolQueue.next_wakeup

    def noting(queue: PoolQueue) -> float | None:
        looked_at.append(queue.pool)
        return original(queue)

    session = Session(*(a_pool(f"p{n:02d}", labels={"pool": f"p{n:02d}"}) for n in range(50)))
    session.see(*(a_pod(f"p{n:02d}", pool=f"p{n:02d}") for n in range(50)))
    monkeypatch.setattr(PoolQueue, "next_wakeup", noting)
    session.scheduler.ready(0.0)
    assert looked_at == [f"p{n:02d}" for n in range(50)]
