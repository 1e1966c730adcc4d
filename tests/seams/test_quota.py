"""A quota is a plugin that names accounts and limits: no line of the engine knows of it."""

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.events import gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.unsupported_constraints import ConstraintKind
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, nominations, reports
from tests.gangs import a_gang, member
from tests.seams.two_levels import TEAM, TwoLevels

COMPANY = {"red": "acme", "blue": "acme", "green": "zeta"}
OVER = "would hold more cpu than its quota"


def profile(**cpu_milli: int) -> Profile:
    found = default_profile()
    quota = TwoLevels(COMPANY, {name: {"cpu": milli} for name, milli in cpu_milli.items()})
    return replace(found, plugins=replace(found.plugins, quotas=(quota,)))


def pod(name: str, cpu: str = "1", team: str = "red", **fields: object) -> Pod:
    return replace(a_pod(name, cpu=cpu, labels={TEAM: team}), **fields)


def test_pod_beyond_the_quota_of_its_team_is_held_and_takes_no_room() -> None:
    session = Session(a_node("n", cpu="4"), pod("p"), pod("q"), pod("other", "3", "green"), profile=profile(red=1000))
    said = session.decide()
    assert binds(said) == {"p": "n", "other": "n"}
    assert reports(said) == {"q": f"red {OVER}"}
    assert session.scheduler.held() == {("default", ConstraintKind.QUOTA): 1}


def test_what_one_team_holds_counts_for_its_company() -> None:
    session = Session(a_node("n", cpu="4"), pod("p", "2"), profile=profile(acme=2000))
    session.decide()
    session.see(pod("q", team="blue"), pod("r", team="green"))
    said = session.decide()
    assert (binds(said), reports(said)) == ({"r": "n"}, {"q": f"acme {OVER}"})


def test_held_pods_are_tried_in_their_order_as_the_account_shrinks_and_no_more_than_fit() -> None:
    session = Session(a_node("n", cpu="8"), pod("p", "2"), profile=profile(red=2000))
    session.decide()
    session.see(*(pod(f"q{number}", priority=number) for number in range(4)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide()) == {"q3": "n", "q2": "n"}
    session.tell(gone(Pod, "uid-q3"))
    assert binds(session.decide()) == {"q1": "n"}


def test_gang_counts_as_a_whole() -> None:
    gang = a_gang("g", 3, GangSource.LABELS)
    session = Session(a_node("n", cpu="8"), profile=profile(red=2000))
    session.see(*(member(pod(f"g-{number}"), gang) for number in range(3)))
    assert binds(session.decide()) == {}
    session.see(pod("p", "2"))
    assert binds(session.decide()) == {"p": "n"}


def test_claim_counts_for_the_account_of_its_owner_until_it_ends() -> None:
    session = Session(a_node("n", cpu="2"), a_node("m", cpu="1"), profile=profile(red=2000))
    session.see(pod("low", "2", "green", node_name="n", phase="Running"))
    session.see(pod("p", "2", priority=5))
    said = session.decide()
    assert (evictions(said), nominations(said)) == ({"low": "Preempted"}, {"p": "n"})
    session.see(pod("q"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-low"))
    assert binds(session.decide()) == {"p": "n"}
    session.tell(gone(Pod, "uid-p"))
    assert set(binds(session.decide())) == {"q"}


def test_pod_that_changes_its_team_changes_its_accounts() -> None:
    session = Session(a_node("n", cpu="4"), pod("p"), profile=profile(red=1000))
    session.decide()
    session.see(pod("q"))
    assert binds(session.decide()) == {}
    session.see(replace(pod("p", team="green"), node_name="n", phase="Running"))
    assert binds(session.decide()) == {"q": "n"}


def test_a_held_pod_stops_no_loan() -> None:
    lender = a_pool("lender", labels={"pool": "lender"})
    session = Session(lender, a_node("n", cpu="1", labels={"pool": "lender"}), profile=profile(red=0))
    session.see(pod("held", pool="lender"))
    session.decide()
    session.see(pod("guest", team="green"))
    assert binds(session.decide()) == {"guest": "n"}
