"""The life of a gang: it starts whole, is late, is finished or given up, and shows its status."""

from collections import Counter

from msgspec.structs import astuple

from aischeduler.model.actions import Bind, Evict, Warn
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    EvictRefusal,
    EvictRefused,
    Seen,
    gone,
)
from aischeduler.model.gang import Gang, GangPhase, GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import RUNNING, Pod
from tests.bench.arena import pool_name
from tests.bench.core import decide_all, see, world
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, reports
from tests.gangs import a_gang, a_key, gang_statuses, member, members


def nodes(count: int, *, cpu: str = "2") -> list[Node]:
    return [a_node(f"n{number}", cpu=cpu) for number in range(count)]


def shown(session: Session, *pods: Pod, started: int = 0) -> None:
    """Let the watch show assumed pods on their nodes, as running."""
    on = {action.pod.uid: action.node for action in session.said if isinstance(action, Bind)}
    session.see(*(replace(pod, node_name=on[pod.uid], phase=RUNNING, started_seconds=started) for pod in pods))


def test_gang_of_a_pod_group_starts_whole_in_one_decision() -> None:
    session = Session(*nodes(3), *members("g", 3))
    session.tell(Seen(a_gang("g", 3)))
    assert sorted(binds(session.decide())) == ["g-0", "g-1", "g-2"]


def test_pods_wait_for_a_pod_group_that_does_not_exist() -> None:
    session = Session(*nodes(1), *members("g", 1))
    text = "The PodGroup of scheduling.x-k8s.io default/g, which the pod names, does not exist."
    assert reports(session.decide()) == {"g-0": text}
    session.tell(Seen(a_gang("g", 1)))
    assert binds(session.decide()) == {"g-0": "n0"}


def test_pods_wait_until_the_minimum_exists() -> None:
    session = Session(*nodes(3), *members("g", 2))
    session.tell(Seen(a_gang("g", 3)))
    text = f"The gang {a_key('g')} waits for more pods: 2 of at least 3 exist."
    assert reports(session.decide()) == {"g-0": text, "g-1": text}
    session.see(*members("g", 3)[2:])
    assert len(binds(session.decide())) == 3


def test_two_labels_make_a_gang_without_an_object() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    session = Session(*nodes(1), *members(gang, 2))
    assert binds(session.decide()) == {}
    session.see(a_node("more", cpu="2"))
    assert len(binds(session.decide())) == 2


def test_pods_that_say_different_minima_count_with_the_largest_and_a_warning() -> None:
    small, large = a_gang("g", 2, GangSource.LABELS), a_gang("g", 3, GangSource.LABELS)
    session = Session(*nodes(3), member(a_pod("a"), small), member(a_pod("b"), large))
    said = session.decide()
    assert binds(said) == {}
    assert [(one.about.name, one.reason) for one in said if isinstance(one, Warn)] == [("a", "GangPodsDiffer")]
    session.see(member(a_pod("c"), large))
    assert len(binds(session.decide())) == 3


def test_every_role_reaches_its_minimum_before_the_gang_starts() -> None:
    gang = a_gang("g", 3, GangSource.LABELS, roles=(("actor", 1), ("learner", 2)))
    actors = [member(a_pod(f"actor-{turn}"), gang, role="actor") for turn in range(3)]
    session = Session(*nodes(5), *actors, member(a_pod("learner-0"), gang, role="learner"))
    assert reports(session.decide())["actor-0"].endswith("the role learner has 1 of at least 2.")
    session.see(member(a_pod("learner-1"), gang, role="learner"))
    assert len(binds(session.decide())) == 5


def test_pods_of_a_short_role_are_placed_before_more_pods_of_another() -> None:
    gang = a_gang("g", 3, GangSource.LABELS, roles=(("actor", 1), ("learner", 2)))
    actors = [member(a_pod(f"actor-{turn}", cpu="2"), gang, role="actor") for turn in range(3)]
    learners = [member(a_pod(f"learner-{turn}", cpu="2"), gang, role="learner") for turn in range(2)]
    session = Session(*nodes(3), *actors, *learners)
    assert sorted(binds(session.decide())) == ["actor-0", "learner-0", "learner-1"]


def test_surplus_pod_of_a_role_goes_alone_and_one_at_the_minimum_takes_the_gang_with_it() -> None:
    gang = a_gang("g", 2, GangSource.LABELS, roles=(("actor", 1), ("learner", 1)))
    pods = [
        member(a_pod("actor-0", cpu="2", node="n0"), gang, role="actor"),
        member(a_pod("actor-1", cpu="2", node="n1"), gang, role="actor"),
        member(a_pod("learner-0", cpu="2", node="n2"), gang, role="learner"),
    ]
    session = Session(*nodes(3), *pods, a_pod("home", cpu="2", priority=9))
    assert len(evictions(session.decide())) == 1
    assert "learner-0" not in evictions(session.said)


def test_gang_of_the_higher_priority_then_of_the_older_group_comes_first() -> None:
    session = Session(*members("late", 2), *members("early", 2), *members("high", 2, priority=5))
    session.tell(*(Seen(a_gang(name, 2, created=at)) for name, at in (("late", 30), ("early", 10), ("high", 90))))
    session.decide()
    session.see(*nodes(2))
    assert sorted(binds(session.decide())) == ["high-0", "high-1"]
    session.tell(gone(Pod, "uid-high-0"), gone(Pod, "uid-high-1"))
    assert sorted(binds(session.decide(seconds=60))) == ["early-0", "early-1"]


def test_one_pod_of_high_priority_lifts_its_gang_with_a_warning_for_the_others() -> None:
    low, high = a_pod("g-0", cpu="2"), a_pod("g-1", cpu="2", priority=9)
    session = Session(*members("other", 2, priority=5), member(low, "g"), member(high, "g"))
    session.tell(Seen(a_gang("g", 2)), Seen(a_gang("other", 2)))
    said = session.decide()
    assert [one.about.name for one in said if isinstance(one, Warn)] == ["g-0"]
    session.see(*nodes(2))
    assert sorted(binds(session.decide())) == ["g-0", "g-1"]


def test_pod_that_names_two_gangs_gets_a_warning_that_says_which_counts() -> None:
    other = a_key("v", source=GangSource.VOLCANO)
    pod = member(a_pod("p"), "g", others=(other,))
    session = Session(*nodes(1), pod)
    session.tell(Seen(a_gang("g", 1)))
    warned = [action for action in session.decide() if isinstance(action, Warn)]
    assert [one.reason for one in warned] == ["SeveralGangs"]
    assert warned[0].message == f"The pod names several gangs. {a_key('g')} counts, not {other}."


def test_gang_that_is_not_valid_waits_with_the_reason_and_starts_once_it_is_mended() -> None:
    session = Session(*nodes(2), *members("g", 2))
    session.tell(Seen(a_gang("g", 0, invalid="spec.minMember: must be at least 1, not 0")))
    said = session.decide()
    assert reports(said)["g-0"] == f"The gang {a_key('g')} is not valid: spec.minMember: must be at least 1, not 0"
    assert gang_statuses(said)["g"].reason == "Invalid"
    session.tell(Seen(a_gang("g", 2)))
    assert len(binds(session.decide())) == 2


def test_minimum_that_is_raised_after_the_start_evicts_nothing() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.decide()
    session.tell(Seen(a_gang("g", 5)))
    assert evictions(session.decide(seconds=600)) == {}


def test_minimum_that_is_raised_before_the_bindings_are_shown_evicts_nothing() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    session.tell(Seen(a_gang("g", 5)))
    session.decide()
    shown(session, pods[0])
    session.decide(seconds=2)
    shown(session, pods[1])
    assert evictions(session.decide(seconds=600)) == {}


def test_object_that_is_deleted_after_the_start_evicts_nothing() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.tell(gone(Gang, *astuple(a_key("g"))))
    assert evictions(session.decide(seconds=600)) == {}


def test_lost_pod_of_a_started_gang_comes_back_alone() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    session.decide()
    shown(session, *pods, started=5)
    session.decide()
    session.tell(gone(Pod, "uid-g-1"))
    session.decide()
    session.see(member(a_pod("again", cpu="2", created=50), "g"))
    assert list(binds(session.decide(seconds=1))) == ["again"]


def test_pod_of_a_started_gang_waits_for_no_successor_of_a_finished_one() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    session.decide()
    shown(session, *pods, started=5)
    session.decide()
    session.tell(gone(Pod, "uid-g-1"), gone(Pod, "uid-g-2"))
    session.decide()
    session.see(member(a_pod("again", cpu="2", created=50), "g"))
    assert list(binds(session.decide(seconds=1))) == ["again"]


def test_pod_that_is_sent_to_a_node_before_the_others_of_its_gang_finish_stays_there() -> None:
    pods, more = members("g", 2), member(a_pod("more", cpu="2"), "g")
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.see(more)
    assert list(binds(session.decide())) == ["more"]
    session.tell(gone(Pod, "uid-g-0"), gone(Pod, "uid-g-1"))
    session.decide()
    shown(session, more)
    assert evictions(session.decide(seconds=61)) == {}


def test_gang_whose_binding_is_refused_is_finished_when_room_comes() -> None:
    session = Session(*nodes(2), *members("g", 2))
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.UNAVAILABLE, "503"))
    assert list(binds(session.decide(seconds=2))) == ["g-1"]
    assert evictions(session.decide(seconds=600)) == {}


def half_of_a_gang() -> Session:
    """Return a session in which one pod of two is on a node, and the other was rejected for five minutes."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.INVALID, "no", 300.0))
    shown(session, pods[0])
    session.decide()
    return session


def test_half_gang_is_given_up_after_a_minute_and_its_pods_on_nodes_are_evicted_once() -> None:
    session = half_of_a_gang()
    assert evictions(session.decide(seconds=59)) == {}
    said = session.decide(seconds=2)
    assert evictions(said) == {"g-0": "GangNotWhole"}
    evicted = next(action for action in said if isinstance(action, Evict))
    text = "too few pods of its gang are on nodes, and the others did not start"
    assert evicted.message == f"Evicted from node {evicted.node}: {text}"
    assert evictions(session.decide(seconds=30)) == {}


def test_half_gang_whose_other_pod_is_rejected_at_each_try_is_given_up_after_a_minute() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    shown(session, pods[0])
    given_up = 0.0
    for second in range(75):
        if "g-1" in bound:
            session.tell(BindRefused("uid-g-1", bound["g-1"], BindRefusal.INVALID, "no"))
        said = session.decide(seconds=1)
        bound = binds(said)
        given_up = given_up or second * bool(evictions(said))
    assert 58 <= given_up <= 70


def half_of_a_gang_given_up() -> Session:
    """Return a session in which one pod of two leaves its node, for want of a node for the other; now there is one."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    bound = binds(session.decide())
    session.tell(gone(Node, bound["g-1"]), BindRefused("uid-g-1", bound["g-1"], BindRefusal.UNAVAILABLE, "503"))
    shown(session, pods[0])
    session.decide()
    assert evictions(session.decide(seconds=61)) == {"g-0": "GangNotWhole"}
    session.see(*nodes(2))
    return session


def test_pod_of_a_half_gang_is_not_bound_beside_one_that_is_given_up() -> None:
    session = half_of_a_gang_given_up()
    assert binds(session.decide(seconds=2)) == {}
    session.tell(gone(Pod, "uid-g-0"))
    assert binds(session.decide(seconds=2)) == {}
    session.see(member(a_pod("again", cpu="2"), "g"))
    assert sorted(binds(session.decide())) == ["again", "g-1"]


def test_half_gang_whose_eviction_is_refused_is_finished() -> None:
    session = half_of_a_gang_given_up()
    session.decide()
    session.tell(EvictRefused("uid-g-0", EvictRefusal.UNAVAILABLE, "503"))
    assert list(binds(session.decide(seconds=2))) == ["g-1"]


def test_pod_that_is_deleted_before_its_gang_has_started_does_not_count_for_the_start() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(Seen(a_gang("g", 3)))
    bound = binds(session.decide())
    session.tell(BindRefused("uid-g-2", bound["g-2"], BindRefusal.UNAVAILABLE, "503"))
    session.see(*(replace(pod, node_name=bound[pod.name], terminating=pod.name == "g-1") for pod in pods[:2]))
    assert binds(session.decide(seconds=2)) == {}
    session.see(member(a_pod("again", cpu="2"), "g"), a_node("more", cpu="2"))
    assert sorted(binds(session.decide())) == ["again", "g-2"]


def test_half_gang_is_given_up_only_after_a_fresh_view() -> None:
    session = half_of_a_gang()
    session.decide(seconds=61)
    kinds = [type(action).__name__ for action in session.said]
    assert kinds.index("Refresh") < kinds.index("Evict")


def test_status_follows_the_gang_from_pending_to_running() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), pods[0])
    session.tell(Seen(a_gang("g", 2)))
    phases = [gang_statuses(session.decide() and session.said)["g"].phase]
    session.see(pods[1])
    session.decide()
    phases.append(gang_statuses(session.said)["g"].phase)
    shown(session, *pods)
    session.decide()
    status = gang_statuses(session.said)["g"]
    assert [*phases, status.phase] == [GangPhase.PENDING, GangPhase.SCHEDULING, GangPhase.RUNNING]
    assert (status.min_member, status.members, status.placed, status.running) == (2, 2, 2, 2)


def test_pods_of_a_gang_in_two_pools_wait_and_say_so() -> None:
    session = Session(a_pool("p", labels={"pool": "p"}), *nodes(2), *members("g", 1, pool="p"))
    session.see(member(a_pod("g-1", cpu="2"), "g"))
    session.tell(Seen(a_gang("g", 2)))
    assert "have different home pools: default, p." in reports(session.decide())["g-1"]


def test_pods_on_nodes_that_name_no_gang_any_more_go_one_by_one() -> None:
    session = Session(*nodes(2), *members("g", 2))
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *members("g", 2))
    session.decide()
    shown(session, *(replace(pod, gang=None) for pod in members("g", 2)))
    session.see(a_pod("high", cpu="2", priority=9))
    assert len(evictions(session.decide())) == 1


def test_gang_that_loses_a_pod_before_it_was_formed_again_has_started() -> None:
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    shown(session, *pods)
    session.tell(gone(Pod, "uid-g-1"))
    assert evictions(session.decide(seconds=61)) == {}


def test_pods_of_another_scheduler_do_not_count_and_the_reason_names_it() -> None:
    theirs = replace(member(a_pod("theirs"), "g"), scheduler_name="volcano")
    session = Session(*nodes(3), theirs, *members("g", 2))
    session.tell(Seen(a_gang("g", 3)))
    short = f"The gang {a_key('g')} waits for more pods: 2 of at least 3 exist."
    note = "1 pod(s) of another scheduler do not count: volcano."
    assert reports(session.decide())["g-0"] == f"{short} {note}"
    session.tell(gone(Pod, theirs.uid))
    assert reports(session.decide())["g-0"] == short


def test_gang_of_five_thousand_starts_whole_and_blocks_no_other_pool() -> None:
    there = world(1002, pools=2, cpu="20")
    pods = [a_pod(f"g-{turn}", cpu="2", pool=pool_name(0)) for turn in range(5000)]
    other = a_pod("other", cpu="2", pool=pool_name(1))
    see(there.scheduler, [other, *(member(pod, a_gang("g", 5000, GangSource.LABELS)) for pod in pods)])
    found = binds(decide_all(there.scheduler))
    assert found.keys() == {pod.name for pod in (other, *pods)}
    assert max(Counter(found.values()).values()) <= 10
