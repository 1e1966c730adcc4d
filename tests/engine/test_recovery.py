"""An exception of the scheduler costs one attempt of one pod, or one step, and nothing else."""

from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.counters import Result
from aischeduler.engine.internal_errors import PLUGIN_ERROR
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Plugins
from aischeduler.model.actions import Bind, ReportInternalError, Step
from aischeduler.model.events import Gone, Refreshed, Seen, gone
from aischeduler.model.names import CLUSTER
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.pool import Namespace
from aischeduler.state.claims import Claim, Claims
from aischeduler.state.label_index import Mask
from aischeduler.state.ledger import Ledger
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import PoolQueue
from aischeduler.state.transitions import TRANSITIONS, Transition
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, errors, evictions, fail_once, nominations, reports

A, B = {"pool": "a"}, {"pool": "b"}


class Poison:
    """A filter and a gate that raise for certain pods and pass everything else."""

    name = "Poison"
    static = False

    def __init__(self, *, holds: bool = False) -> None:
        self.broken = True
        self.by_gate = holds

    def _ask(self, poisoned: bool) -> None:
        if self.broken and poisoned:
            raise ZeroDivisionError("a bug in a plugin")

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        self._ask(not self.by_gate and ("poison", "yes") in spec.node_selector)
        return None

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        return Counter()

    def helps(self, spec: PodSpec, node: Node) -> bool:
        self._ask(not self.by_gate and ("poison", "yes") in spec.node_selector)
        return True

    def holds(self, pod: Pod) -> str:
        self._ask(self.by_gate and pod.labels.get("poison") == "yes")
        return ""


def profile(poison: Poison) -> Profile:
    """Return the default profile with this plugin; no other plugin reads the node selector."""
    found = default_profile()
    plugins = found.plugins
    filters = tuple(rule for rule in plugins.filters if rule.name != "NodeAffinity")
    return replace(
        found, plugins=Plugins((*plugins.gates, poison), (*filters[:-1], poison, filters[-1]), plugins.scores)
    )


def poisoned(name: str, **fields: Any) -> Pod:
    """Return a pod for which the plugin raises."""
    return a_pod(name, node_selector={"poison": "yes"}, labels={"poison": "yes"}, **fields)


def test_exception_in_one_attempt_costs_no_other_pod_of_the_slice() -> None:
    poison = Poison()
    session = Session(a_node("n", cpu="9"), profile=profile(poison))
    session.see(a_pod("first", created=1), poisoned("bad", created=2), a_pod("last", created=3))
    said = session.scheduler.decide("default", 0.0, 512)
    assert binds(said) == {"first": "n", "last": "n"}
    assert reports(said) == {"bad": PLUGIN_ERROR.format("Poison")}


class Unread(dict[str, PodRecord]):
    """The records of all pods, which nobody may read one after the other."""

    def values(self) -> Any:
        raise AssertionError("the records of all pods are read")


def test_attempts_and_events_that_raise_read_no_other_pods() -> None:
    poison = Poison()
    scheduler = Scheduler(profile(poison), "run")
    away = pod_affinity(anti_required=(term("zone", "app=x"),))
    for number in range(9):
        on = a_pod(f"on-{number}", node="n", labels={"app": "x"}, pod_affinity=away)
        scheduler.observe(Seen(on), 0.0)
    scheduler.observe(Seen(a_node("n", cpu="9", labels={"zone": "a"})), 0.0)
    scheduler.observe(Seen(poisoned("bad")), 0.0)
    cluster, read = scheduler.cluster, list[str]()
    begun = cluster.nodes.pod_counts.begun
    cluster.records = Unread(cluster.records)

    def pods_on_rows() -> tuple[()]:
        read.append("pods")
        return ()

    cluster.nodes.pod_counts.pods_on_rows = pods_on_rows
    for second in (0.0, 1.0, 3.0):
        assert [
            action.step for action in scheduler.decide("default", second, 8) if isinstance(action, ReportInternalError)
        ] == [Step.ATTEMPT]
    poison.by_gate = True
    scheduler.observe(Seen(poisoned("worse")), 4.0)
    assert read == []
    assert cluster.nodes.pod_counts.begun == begun
    assert [cluster.records[uid].queue for uid in ("uid-bad", "uid-worse")] == ["default", "default"]


def test_exception_is_reported_with_pod_decision_and_traceback() -> None:
    session = Session(a_node("n"), poisoned("bad"), profile=profile(Poison()))
    (error,) = errors(session.decide())
    assert error.pod is not None
    assert (error.step, error.pool, error.pod.name) == (Step.ATTEMPT, "default", "bad")
    assert error.decision == session.scheduler.cluster.records["uid-bad"].decision
    assert error.error == "ZeroDivisionError: a bug in a plugin"
    assert "in filter" in error.traceback
    assert (error.plugin, session.scheduler.counters.plugin_errors) == ("Poison", {"Poison": 1})
    counters = session.scheduler.counters
    assert counters.internal_errors == {Step.ATTEMPT: 1}
    assert counters.attempts == {("default", Result.ERROR): 1}


def test_pod_is_tried_again_with_a_growing_backoff_and_reported_once() -> None:
    session = Session(a_node("n"), poisoned("bad"), profile=profile(Poison()))
    record = session.scheduler.cluster.records["uid-bad"]
    waits: list[float] = []
    told: list[str] = []
    for _ in range(6):
        told += reports(session.decide())
        assert (record.state, record.queue) == (PodState.BACKOFF, "default")
        waits.append(record.backoff_until - session.now)
        session.now = record.backoff_until
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert told == ["bad"]


def test_pod_is_placed_once_the_exceptions_stop() -> None:
    poison = Poison()
    session = Session(a_node("n"), poisoned("bad"), profile=profile(poison))
    session.decide()
    poison.broken = False
    assert binds(session.decide(1.0)) == {"bad": "n"}


@pytest.mark.parametrize("end", [gone(Pod, "uid-bad"), Seen(a_pod("bad", phase="Succeeded"))])
def test_pod_whose_attempt_failed_can_be_deleted(end: Gone | Seen) -> None:
    session = Session(a_node("n"), poisoned("bad"), profile=profile(Poison()))
    session.decide()
    session.tell(end)
    assert session.scheduler.cluster.records == {}
    assert session.decide(60.0) == []


def test_pod_whose_attempt_failed_can_change() -> None:
    session = Session(a_node("n"), poisoned("bad"), profile=profile(Poison()))
    session.decide()
    session.see(a_pod("bad"))
    assert binds(session.decide(60.0)) == {"bad": "n"}


def test_pod_that_cannot_be_tried_keeps_no_room_from_borrowers() -> None:
    poison = Poison()
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), profile=profile(poison))
    session.see(a_node("na", cpu="1", labels=A), a_node("nb", cpu="1", labels=B))
    session.see(poisoned("bad", pool="b"))
    session.decide()
    session.see(a_pod("own", pool="a"), a_pod("borrower", pool="a"))
    assert binds(session.decide()) == {"own": "na", "borrower": "nb"}


def test_pod_whose_check_for_new_room_raises_blocks_no_other_pod() -> None:
    poison = Poison()
    session = Session(profile=profile(poison))
    poison.broken = False
    session.see(poisoned("bad", priority=9), a_pod("good"))
    session.decide()
    poison.broken = True
    session.see(a_node("n"))
    said = session.decide()
    assert {error.step for error in errors(said)} >= {Step.ATTEMPT}
    assert binds([*said, *session.decide(1.0)]) == {"good": "n"}


def test_gate_that_raises_loses_no_pod_and_passes_none() -> None:
    poison = Poison(holds=True)
    session = Session(a_node("n"), profile=profile(poison))
    session.scheduler.often = False  # the checks call the gate too
    session.see(poisoned("bad"))
    assert session.scheduler.counters.internal_errors == {Step.EVENT: 1}
    record = session.scheduler.cluster.records["uid-bad"]
    assert (record.state, record.queue) == (PodState.BACKOFF, "default")
    assert binds(session.decide(1.0)) == {}
    poison.broken, session.scheduler.often = False, True
    assert binds(session.decide(60.0)) == {"bad": "n"}


def two_pools() -> Session:
    """Return pool a, whose node is lent to `guest` of b, and a waiting pod `owner` of a."""
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n", cpu="4", labels=A))
    session.see(a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    return session


@pytest.mark.parametrize("step", ["renominate", "evict", "count_saved"])
def test_victims_of_an_attempt_that_failed_do_not_count_as_leaving(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_pools()
    session.tell(Refreshed("a"))
    fail_once(monkeypatch, "apply", step)
    said = session.scheduler.decide("a", 0.0, 512)
    assert evictions(said) == {}
    assert len(errors(said)) == 1
    cluster = session.scheduler.cluster
    assert (dict(cluster.leaving_pods.asked), len(cluster.claims)) == ({}, 0)
    assert session.scheduler.counters.evictions.total() == 0
    assert evictions(session.decide(1.0)) == {"guest": "Reclaimed"}
    assert session.scheduler.counters.evictions.total() == 1


def test_impossible_change_of_a_state_costs_only_that_pod_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TRANSITIONS, (PodState.ACTIVE, Transition.NO_ROOM))
    session = Session(a_node("n", cpu="2"), a_pod("large", cpu="4"), a_pod("p", cpu="1", created=5))
    said = session.scheduler.decide("default", 0.0, 512)
    (error,) = errors(said)
    assert "ImpossibleChangeError: the pod uid-large is ACTIVE, and an attempt found no node" in error.error
    assert binds(said) == {"p": "n"}
    assert session.scheduler.cluster.records["uid-large"].state is PodState.BACKOFF


def test_pod_with_a_claim_keeps_it_when_its_attempt_fails() -> None:
    poison = Poison()
    poison.broken = False
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), profile=profile(poison))
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1, grace=30))
    session.see(poisoned("owner", cpu="4", pool="a"))
    assert nominations(session.decide()) == {"owner": "n"}
    cluster = session.scheduler.cluster
    claim = cluster.claims.of("uid-owner")
    poison.broken = True
    cluster.queues["a"].wake_at_once(cluster.records["uid-owner"], 0.0)
    assert nominations(session.decide()) == {}
    assert cluster.claims.of("uid-owner") is claim
    poison.broken = False
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide(60.0)) == {"owner": "n"}


def test_attempt_that_failed_as_it_began_leaves_no_offer_to_a_pod_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("running", cpu="1", node="n", phase="Running"), a_pod("p", cpu="1"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-running"))
    fail_once(monkeypatch, "scheduler", "attempt")
    assert len(errors(session.scheduler.decide("default", session.now, 512))) == 1
    session.tell(gone(Pod, "uid-p"))
    assert session.scheduler.cluster.deferred.offers == {}


def test_attempt_that_failed_after_its_bind_is_undone_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    session, wake_alike, calls = Session(a_node("n", cpu="1"), a_pod("p")), Cluster.wake_alike, count()

    def failing(cluster: Cluster, record: PodRecord, now: float) -> None:
        if next(calls) == 0:
            raise ValueError("a bug in a step")
        wake_alike(cluster, record, now)

    monkeypatch.setattr(Cluster, "wake_alike", failing)
    said = session.decide()
    assert binds(said) == {}
    assert session.scheduler.counters.attempts == {("default", Result.ERROR): 1}
    assert binds(session.decide(1.0)) == {"p": "n"}


STEPS = [
    ("scheduler", "flush_queue", Step.QUEUE),
    ("tasks", "leave_to_others", Step.LENDING),
    ("scheduler", "lend", Step.LENDING),
    ("scheduler", "look_again", Step.TIME),
    ("scheduler", "flush", Step.TIME),
    ("scheduler", "read_unheard", Step.SETTLE),
    ("scheduler", "read_assumed", Step.SETTLE),
    ("tasks", "work_on_rows", Step.WAKING),
]


@pytest.mark.parametrize(("module", "name", "step"), STEPS)
def test_actions_of_the_other_steps_are_returned_when_one_step_fails(
    module: str, name: str, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(a_node("n"), a_pod("p"))
    agenda = session.scheduler.cluster.deferred.agenda("default")
    agenda.lending, agenda.sought = (False, 0, 0, 0, ""), True
    session.scheduler.cluster.row_changed(0)
    fail_once(monkeypatch, module, name)
    said = [action for pool in (CLUSTER, "default") for action in session.scheduler.decide(pool, 0.0, 512)]
    assert [error.step for error in errors(said)] == [step]
    later = session.decide(1.0)
    assert binds([*said, *later]) == {"p": "n"}


def test_queue_that_cannot_be_read_is_reported_by_the_decision_of_its_pool_and_not_by_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_node("n"), a_pod("p"))
    original = PoolQueue.next_wakeup

    def failing(queue: PoolQueue) -> float | None:
        monkeypatch.setattr(PoolQueue, "next_wakeup", original)
        raise ValueError("a bug in a step")

    monkeypatch.setattr(PoolQueue, "next_wakeup", failing)
    assert "default" in session.scheduler.ready(0.0)
    assert not session.scheduler.cluster.said.outbox
    assert session.scheduler.counters.internal_errors.total() == 0
    said = session.decide()
    assert [error.step for error in errors(said)] == [Step.QUEUE]
    assert binds(said) == {"p": "n"}


def test_status_that_failed_is_reported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A))
    fail_once(monkeypatch, "pool_status", "summarize")
    assert [error.step for error in errors(session.decide())] == [Step.STATUS]
    session.decide(1.0)
    assert "a" in session.scheduler.cluster.said.reported


def test_standby_reports_its_exceptions_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_node("n"), a_pod("p"))
    fail_once(monkeypatch, "scheduler", "look_again")
    assert [error.step for error in session.scheduler.stand_by(0.0)] == [Step.TIME]
    assert session.scheduler.stand_by(1.0) == []
    assert binds(session.decide(2.0)) == {"p": "n"}


def test_exception_of_an_event_is_raised_and_its_object_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_node("n", cpu="4"), a_pod("p", cpu="4"))
    fail_once(monkeypatch, "units", "offer_ends")
    with pytest.raises(ValueError, match="a bug in a step"):
        session.see(a_pod("p", cpu="4", node="n", started=1))
    session.scheduler.look()
    record = session.scheduler.cluster.records["uid-p"]
    assert (record.state, record.queue) == (PodState.BOUND, "")
    session.tell(gone(Pod, "uid-p"))
    assert session.scheduler.cluster.records == {}


def test_claim_ends_at_the_next_decision_after_a_failed_event_took_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = two_pools()
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    stranger = a_pod("stranger", cpu="4", node="n", started=1, scheduler_name="default-scheduler")

    def failing(*args: Any, **kwargs: Any) -> None:
        monkeypatch.undo()
        raise ValueError("a bug in a step")

    monkeypatch.setattr(Cluster, "row_changed", failing)
    with pytest.raises(ValueError, match="a bug in a step"):
        session.see(stranger)
    session.scheduler.look()
    assert nominations(session.decide(1.0)) == {"owner": ""}
    assert session.scheduler.cluster.claims.of("uid-owner") is None


@pytest.mark.parametrize("booking", [1, -1])
def test_exception_of_the_ledger_leaves_a_claim_whole_or_none(booking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    session, book, claims = two_pools(), Ledger.book, Claims._book

    def failing(_: Claims, claim: Claim, sign: int) -> None:
        if sign == booking:
            monkeypatch.setattr(Claims, "_book", claims)
            monkeypatch.setattr(Ledger, "book", raising)
        claims(session.scheduler.cluster.claims, claim, sign)

    def raising(*_: Any) -> None:
        monkeypatch.setattr(Ledger, "book", book)
        raise ValueError("a bug in a step")

    monkeypatch.setattr(Claims, "_book", failing)
    session.decide()
    with suppress(ValueError):
        session.tell(gone(Pod, "uid-guest"))
    for second in range(1, 60):
        session.decide(float(second))
        session.scheduler.look()
    assert session.scheduler.cluster.records["uid-owner"].state is PodState.ASSUMED
    assert sum(session.scheduler.counters.internal_errors.values()) == 1


def test_long_traceback_is_cut_and_ends_with_the_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*args: Any) -> Any:
        return endless(*args)

    session = Session(a_node("n"), a_pod("p"))
    monkeypatch.setattr("aischeduler.engine.cycle.propose", endless)
    (error,) = errors(session.decide())
    assert len(error.traceback) <= 8000
    assert error.traceback.rstrip().splitlines()[-1].startswith("RecursionError")
    assert not any(isinstance(action, Bind) for action in session.said)


def test_held_pod_that_a_failed_step_did_not_wake_is_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("a", labels=A, allowed_namespaces={"team": "x"}), a_node("n", labels=A))
    session.tell(Seen(Namespace("default", {})))
    session.see(a_pod("p", pool="a"))
    assert binds(session.decide()) == {}
    original = PoolQueue.wake_at_once

    def failing(queue: PoolQueue, record: PodRecord, now: float) -> None:
        monkeypatch.setattr(PoolQueue, "wake_at_once", original)
        raise ValueError("a bug in a step")

    monkeypatch.setattr(PoolQueue, "wake_at_once", failing)
    session.tell(Seen(Namespace("default", {"team": "x"})))
    said = session.decide()
    assert len(errors(said)) == 1
    assert binds([*said, *session.decide(10.0)]) == {"p": "n"}


def test_state_that_is_built_anew_keeps_bindings_evictions_and_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    session = two_pools()
    session.see(a_node("m", cpu="2", labels=A), a_pod("small", cpu="2", pool="a"))
    said = session.decide()
    assert (binds(said), evictions(said)) == ({"small": "m"}, {"guest": "Reclaimed"})
    scheduler, cluster = session.scheduler, session.scheduler.cluster
    bound, asked = cluster.records["uid-small"], dict(cluster.leaving_pods.asked)
    nodes, since = cluster.nodes, cluster.records["uid-owner"].since
    fail_once(monkeypatch, "scheduler", "look_again")
    again = session.decide(1.0)
    scheduler.look()
    assert cluster.nodes is not nodes
    assert (binds(again), evictions(again), len(errors(again))) == ({}, {}, 1)
    assert scheduler.still_assumed("uid-small", bound.decision)
    assert (cluster.records["uid-small"], dict(cluster.leaving_pods.asked)) == (bound, asked)
    claim = cluster.claims.of("uid-owner")
    assert claim is not None
    assert [cluster.nodes.names[row] for row in claim.rows] == ["n"]
    assert cluster.records["uid-owner"].since == since
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide(2.0)) == {"owner": "n"}


def test_event_whose_handling_always_raises_counts_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_node("n", cpu="4"), a_pod("other", cpu="4"))

    def failing(*_: Any) -> None:
        raise ValueError("a bug in a step")

    monkeypatch.setattr("aischeduler.engine.pod_events._bound", failing)
    with pytest.raises(ValueError, match="a bug in a step"):
        session.see(a_pod("p", cpu="4", node="n", started=1))
    session.scheduler.look()
    assert session.scheduler.cluster.records["uid-p"].state is PodState.BOUND
    assert binds(session.decide()) == {}
    assert session.scheduler.counters.internal_errors == {Step.EVENT: 2}
