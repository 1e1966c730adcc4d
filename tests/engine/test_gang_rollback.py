"""Gangs whose Bindings are refused again and again: what was bound is rolled back each time, and no pod twice."""

import pytest

from aischeduler.engine.freshness import FRESH_SECONDS
from aischeduler.engine.gang_lifecycle import WARNED_AT_MOST
from aischeduler.engine.internal_errors import INTERNAL_ERROR
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Bind, Evict, Refresh, Warn
from aischeduler.model.events import BindRefusal, BindRefused, Refreshed, Seen, gone
from aischeduler.model.gang import GangPhase
from aischeduler.model.pod import CRITICAL_PRIORITY, Pod
from aischeduler.plugins.gangs import Gangs
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, errors, evictions, fail_once, reports, warnings
from tests.engine.test_gangs import nodes, shown
from tests.gangs import a_gang, a_key, gang_statuses, member, members

RETRIED_SECONDS = 300
"""How long the answer to a rejected Binding asks to wait."""


def refuse(session: Session, *names: str) -> None:
    """Have the last Bindings of these pods rejected, and not tried again for a while."""
    on = {action.pod.name: action.node for action in session.said if isinstance(action, Bind)}
    no = BindRefusal.INVALID, "no", RETRIED_SECONDS
    session.tell(*(BindRefused(f"uid-{name}", on[name], *no) for name in names))


def half_at_the_second_try() -> Session:
    """Return a session in which both Bindings of a gang were rejected; five minutes later one of them succeeded."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    refuse(session, "g-0", "g-1")
    session.decide()
    assert binds(session.decide(seconds=RETRIED_SECONDS - 1)) == {}
    assert sorted(binds(session.decide(seconds=1))) == ["g-0", "g-1"]
    refuse(session, "g-1")
    shown(session, pods[0])
    session.decide()
    return session


def started() -> Session:
    """Return a session in which the watch shows both pods of a gang on their nodes, and nothing was decided since."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    return session


def test_gang_that_is_half_after_its_second_try_has_a_minute_again_and_is_given_up_then() -> None:
    session = half_at_the_second_try()
    assert evictions(session.decide(seconds=59)) == {}
    assert evictions(session.decide(seconds=2)) == {"g-0": "GangNotWhole"}


def test_half_gang_is_given_up_in_time_although_the_state_was_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    session = half_at_the_second_try()
    fail_once(monkeypatch, "scheduler", "look_again")
    said = session.decide(seconds=30)
    assert (len(errors(said)), evictions(said)) == (1, {})
    assert evictions(session.decide(seconds=29)) == {}
    assert evictions(session.decide(seconds=2)) == {"g-0": "GangNotWhole"}


def test_started_gang_that_lost_a_pod_is_not_given_up_when_the_state_is_built_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = started()
    session.decide()
    session.tell(gone(Pod, "uid-g-1"))
    session.decide()
    fail_once(monkeypatch, "scheduler", "look_again")
    assert len(errors(session.decide(seconds=1))) == 1
    assert evictions(session.decide(seconds=300)) == {}


def test_gang_that_was_given_up_waits_whole_until_its_pod_comes_again() -> None:
    session = half_at_the_second_try()
    session.decide(seconds=61)
    session.tell(gone(Pod, "uid-g-0"))
    assert binds(session.decide(seconds=2 * RETRIED_SECONDS)) == {}
    status = gang_statuses(session.said)["g"]
    assert (status.phase, status.reason, status.placed) == (GangPhase.PENDING, "NotEnoughPods", 0)
    session.see(member(a_pod("again", cpu="2", created=1), "g"))
    assert sorted(binds(session.decide())) == ["again", "g-1"]


def test_each_pod_of_a_gang_that_is_given_up_twice_is_evicted_once() -> None:
    session = half_at_the_second_try()
    session.decide(seconds=61)
    session.tell(gone(Pod, "uid-g-0"))
    again = member(a_pod("again", cpu="2", created=1), "g")
    session.see(again)
    session.decide(seconds=RETRIED_SECONDS)
    refuse(session, "g-1")
    shown(session, again)
    session.decide()
    session.decide(seconds=59)
    session.decide(seconds=2)
    session.decide(seconds=61)  # nothing is heard of the second eviction
    victims = [(action.victim.name, str(action.cause)) for action in session.said if isinstance(action, Evict)]
    assert victims == [("g-0", "GangNotWhole"), ("again", "GangNotWhole")]


def test_started_gang_is_kept_although_the_event_of_a_pod_that_ends_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()
    fail_once(monkeypatch, "scheduler", "object_changed")
    with pytest.raises(ValueError, match="a bug in a step"):
        session.tell(gone(Pod, "uid-g-0"))
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}


def test_pod_of_a_gang_is_gone_although_the_policy_of_gangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()
    session.see(replace(members("g", 2)[0], node_name=binds(session.said)["g-0"], terminating=True))

    def failing(*_: object) -> None:
        raise ValueError("a bug in a policy")

    monkeypatch.setattr(Gangs, "gang_of", failing)
    with pytest.raises(ValueError, match="a bug in a policy"):
        session.tell(gone(Pod, "uid-g-0"))
    assert "uid-g-0" not in session.scheduler.cluster.records


def test_no_pod_of_a_gang_starts_alone_while_its_forming_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    session = started()
    session.see(member(a_pod("late", cpu="2", created=1), "g"))
    assert binds(session.decide()) == {}
    fail_once(monkeypatch, "units", "note_start")
    session.tell(gone(Pod, "uid-g-0"), gone(Pod, "uid-g-1"))
    said = session.decide()
    assert (binds(said), reports(said)) == ({}, {"late": INTERNAL_ERROR})
    assert binds(session.decide(seconds=5)) == {}
    session.see(member(a_pod("again", cpu="2", created=1), "g"))
    assert sorted(binds(session.decide(seconds=10))) == ["again", "late"]


def test_started_gang_is_kept_whose_new_pod_the_api_server_rejects() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    session.decide()
    shown(session, *pods)
    session.decide()
    session.tell(gone(Pod, "uid-g-1"))
    session.see(member(a_pod("again", cpu="2", created=50), "g"))
    assert list(binds(session.decide())) == ["again"]
    refuse(session, "again")
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}
    assert list(binds(session.decide(seconds=RETRIED_SECONDS))) == ["again"]
    refuse(session, "again")
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}


def rolled_back_while_refreshes_take(seconds: dict[str, float]) -> dict[str, float]:
    """Return when each pod of a half gang in the pools `a` and `b` is evicted, where their refreshes take so long.

    A tenth of a second is a step. The refreshes of a pool whose pod is evicted came at most a second before.
    """
    session = Session(*(a_pool(pool, labels={"pool": pool}) for pool in seconds))
    session.see(*(a_node(f"n-{pool}", cpu="2", labels={"pool": pool}) for pool in seconds))
    session.tell(Seen(a_gang("g", 3, span=True)))
    pods = {pool: member(a_pod(f"g-{pool}", cpu="2", pool="a"), "g") for pool in seconds}
    session.see(*pods.values(), member(a_pod("g-2", cpu="64", pool="a"), "g"))
    session.decide()
    session.see(*(replace(pod, node_name=f"n-{pool}") for pool, pod in pods.items()))
    coming: dict[str, float] = {}
    came: dict[str, float] = {}
    evicted: dict[str, float] = {}
    for step in range(1000):
        session.now = now = step / 10
        for pool in [pool for pool, at in coming.items() if at <= now]:
            came[pool] = coming.pop(pool)
            session.tell(Refreshed(pool))
        while pools := session.scheduler.ready(now):
            for action in [one for pool in pools for one in session.scheduler.decide(pool, now, 1)]:
                if isinstance(action, Refresh):
                    coming[action.pool] = now + seconds[action.pool]
                elif isinstance(action, Evict):
                    assert now - came[action.pool] <= FRESH_SECONDS
                    evicted[action.victim.name] = now
    return evicted


def test_half_gang_in_two_pools_is_given_up_at_once_where_their_refreshes_are_quick() -> None:
    assert rolled_back_while_refreshes_take({"a": 0.2, "b": 0.4}) == {"g-a": 60.4, "g-b": 60.4}


def test_half_gang_in_two_pools_is_given_up_although_one_view_is_stale_when_the_other_comes() -> None:
    evicted = rolled_back_while_refreshes_take({"a": 1.5, "b": 3.0})
    assert evicted.keys() == {"g-a", "g-b"}
    assert max(evicted.values()) < 60 + 3.0 + 1.5 + 0.3


def half_of_a_gang(profile: Profile, *, priority: int = 0) -> Session:
    """Return a session in which one pod of two is on a node, and the Binding of the other was rejected for good."""
    pods = members("g", 2, priority=priority)
    session = Session(*nodes(2), *pods, profile=profile)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    refuse(session, "g-1")
    shown(session, pods[0])
    session.decide()
    return session


HALF = f"1 of the 2 pods that start together of the gang {a_key('g')} are on nodes, and the others did not start."


@pytest.mark.parametrize(
    ("preemption", "priority", "why"),
    [
        (False, 0, "Preemption is switched off"),
        (True, CRITICAL_PRIORITY, "None of them may be evicted"),
    ],
)
def test_half_gang_that_may_not_be_given_up_keeps_its_room_with_a_warning_said_once(
    *, preemption: bool, priority: int, why: str
) -> None:
    session = half_of_a_gang(default_profile(preemption=preemption), priority=priority)
    warned = [one for one in session.decide(seconds=61) if isinstance(one, Warn)]
    assert [(one.about.name, one.reason) for one in warned] == [("g-0", "GangNotWhole")]
    assert warned[0].message == f"{HALF} {why}: they stay and keep their room."
    assert warnings(session.decide(seconds=200)) == []
    assert evictions(session.said) == {}


def test_warning_about_a_large_half_gang_is_said_at_a_few_of_its_pods() -> None:
    pods = members("g", 40)
    session = Session(a_node("n", cpu="80", memory="640Gi"), *pods, profile=default_profile(preemption=False))
    session.tell(Seen(a_gang("g", 40)))
    session.decide()
    refuse(session, "g-1")
    shown(session, pods[0], *pods[2:])
    session.decide(seconds=1)
    assert 1 <= len(warnings(session.decide(seconds=61))) <= WARNED_AT_MOST
