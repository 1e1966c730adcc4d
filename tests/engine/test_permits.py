"""Rules that reserve for a placed pod, and rules that delay or veto its Binding."""

import pytest
from msgspec.structs import replace as with_fields

from aischeduler.engine.profile import default_profile
from aischeduler.framework.plugin import Delayed, Vetoed
from aischeduler.model.actions import Bind, Evict, ReportWaiting
from aischeduler.model.events import BindRefusal, BindRefused, gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import ReclaimPolicy
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session

Answer = Delayed | Vetoed | None


class Keeper:
    """A rule that notes what it keeps."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def reserve(self, pod: Pod, node: str) -> None:
        self.log.append(f"{self.name} reserves {node} for {pod.name}")

    def release(self, pod: Pod, node: str) -> None:
        self.log.append(f"{self.name} releases {node} for {pod.name}")


class Doorman:
    """A rule that answers as it is told."""

    name = "Doorman"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.waited: list[float] = []

    def permit(self, pod: Pod, node: str, waited_seconds: float) -> Answer:
        self.waited.append(waited_seconds)
        return self.answer if pod.name == "p" else None


def a_session(log: list[str], door: Doorman) -> Session:
    profile = default_profile()
    keepers = (Keeper("first", log), Keeper("second", log))
    plugins = with_fields(profile.plugins, reserves=keepers, permits=(door,))
    session = Session(profile=with_fields(profile, plugins=plugins))
    session.see(a_pool("a", labels={"pool": "a"}), a_node("n", cpu="2", labels={"pool": "a"}), a_pod("p", pool="a"))
    return session


def binds(session: Session, seconds: float = 0.0) -> list[str]:
    return [one.pod.name for one in session.decide(seconds) if isinstance(one, Bind)]


def test_rules_reserve_in_order_and_release_in_the_opposite_order_when_the_pod_is_gone() -> None:
    log: list[str] = []
    session = a_session(log, Doorman(None))
    assert binds(session) == ["p"]
    session.tell(gone(Pod, "uid-p"))
    assert log == [
        "first reserves n for p",
        "second reserves n for p",
        "second releases n for p",
        "first releases n for p",
    ]


def test_refused_binding_releases_once() -> None:
    log: list[str] = []
    session = a_session(log, Doorman(None))
    binds(session)
    session.tell(BindRefused("uid-p", "n", BindRefusal.TAKEN, "taken"))
    session.tell(gone(Pod, "uid-p"))
    assert log[2:] == ["second releases n for p", "first releases n for p"]


def test_delayed_binding_keeps_the_room_and_is_sent_once_it_is_permitted() -> None:
    door = Doorman(Delayed(5.0))
    session = a_session([], door)
    session.see(a_pod("large", pool="a", cpu="2"))
    assert binds(session) == []
    assert "Insufficient cpu" in session.scheduler.why("uid-large")
    assert binds(session, seconds=5.0) == []
    door.answer = None
    assert binds(session, seconds=4.0) == [], "a rule is not asked before its time"
    assert binds(session, seconds=1.0) == ["p"]
    assert door.waited == [0.0, 5.0, 10.0]
    (bind,) = [one for one in session.said if isinstance(one, Bind)]
    assert bind.waited_seconds == 10.0


def test_veto_at_the_attempt_places_nothing_and_says_which_rule_it_was() -> None:
    log: list[str] = []
    door = Doorman(Vetoed("closed"))
    session = a_session(log, door)
    assert binds(session) == []
    assert session.scheduler.why("uid-p") == "Doorman does not permit the node n: closed"
    assert log[2:] == ["second releases n for p", "first releases n for p"]
    door.answer = None
    assert binds(session, seconds=1.0) == ["p"], "the pod is tried again after its backoff"


def test_veto_after_a_delay_frees_the_room_for_others() -> None:
    log: list[str] = []
    door = Doorman(Delayed(1.0))
    session = a_session(log, door)
    session.see(a_pod("large", pool="a", cpu="2"))
    binds(session)
    door.answer = Vetoed("closed")
    actions = session.decide(1.0)
    assert [one.pod.name for one in actions if isinstance(one, Bind)] == ["large"]
    assert [one.message for one in actions if isinstance(one, ReportWaiting) and one.pod.name == "p"] == [
        "Doorman does not permit the node n: closed"
    ]
    assert log[2:4] == ["second releases n for p", "first releases n for p"]


def test_preempted_pod_whose_binding_is_delayed_waits_again_and_is_not_evicted() -> None:
    log: list[str] = []
    session = a_session(log, Doorman(Delayed(5.0)))
    session.decide()
    session.see(a_pod("high", pool="a", cpu="2", priority=5))
    actions = session.decide(1.0)
    assert not [one for one in actions if isinstance(one, Evict)]
    assert [one.pod.name for one in (*actions, *session.decide()) if isinstance(one, Bind)] == ["high"]
    assert "preempted by default/high before its Binding" in [
        one.message for one in actions if isinstance(one, ReportWaiting) and one.pod.name == "p"
    ]
    assert log[2:4] == ["second releases n for p", "first releases n for p"]


def test_borrower_whose_binding_is_delayed_is_taken_back_once_its_lender_stops_sharing() -> None:
    door = Doorman(Delayed(1.0))
    session = a_session([], door)
    session.see(a_pool("b"), a_pod("p", pool="b"))
    session.decide()
    session.see(a_pool("a", labels={"pool": "a"}, disable_sharing=True, reclaim_policy=ReclaimPolicy.EVICT))
    door.answer = None
    actions = [*session.decide(), *session.decide(1.0)]
    assert not [one for one in actions if isinstance(one, Bind | Evict)]
    assert session.scheduler.why("uid-p") == "the pool a no longer lends to the pool b"


@pytest.mark.parametrize("how", ["gone", "finished", "bound by another"])
def test_pod_that_ends_or_is_bound_while_its_binding_is_delayed_is_never_bound(how: str) -> None:
    door = Doorman(Delayed(1.0))
    session = a_session([], door)
    binds(session)
    pod = a_pod("p", pool="a")
    if how == "gone":
        session.tell(gone(Pod, "uid-p"))
    else:
        session.see(replace(pod, phase="Failed") if how == "finished" else replace(pod, node_name="n"))
    door.answer = None
    assert binds(session, seconds=10.0) == []
    assert len(door.waited) == 1


def test_borrower_whose_binding_is_delayed_is_taken_back_once_its_node_is_of_a_rare_type() -> None:
    door = Doorman(Delayed(1.0))
    session = a_session([], door)
    session.see(
        a_node("n", cpu="2", labels={"pool": "a", "nvidia.com/gpu.product": "NVIDIA-H200"}),
        a_pool("b"),
        a_pod("p", pool="b", gpu_types=("H200",)),
    )
    session.decide()
    session.see(a_pool("a", labels={"pool": "a"}, rare_types=("H200",)))
    door.answer = None
    actions = [*session.decide(), *session.decide(1.0)]
    assert not [one for one in actions if isinstance(one, Bind | Evict)]
    assert session.scheduler.why("uid-p") == "the pool a no longer lends nodes of this rare GPU type"
