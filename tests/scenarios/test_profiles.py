"""Profiles: several scheduler names in one daemon, and the profile that a Pool names."""

from tests.scenarios.stage import CLOSED, Stage

BLIND = {
    "schedulerName": "blind",
    "plugins": {"filter": {"disabled": [{"name": "TaintToleration"}]}},
    "percentageOfNodesToScore": 30,
}
CALM = {"schedulerName": "calm", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}


def test_pods_of_several_scheduler_names_are_placed_by_their_profiles(stage: Stage) -> None:
    stage.restart_scheduler(profiles=[BLIND])
    stage.node("n", taints=[CLOSED])
    stage.pod("own")
    stage.pod("blind", scheduler_name="blind")
    stage.goes(blind="n")
    stage.waits("own", "1 node(s) had untolerated taint(s)")


def test_profile_that_a_pool_names_judges_its_pods_from_then_on(stage: Stage) -> None:
    stage.restart_scheduler(profiles=[BLIND])
    stage.node("a1", pool="a", taints=[CLOSED])
    stage.pools("a")
    stage.pod("p", pool="a")
    stage.waits("p", "1 node(s) had untolerated taint(s)")
    stage.set_pool("a", profile="blind")
    stage.goes(p="a1")


def test_unknown_profile_is_reported_and_the_pool_goes_on(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", profile="blnd")
    stage.pod("p", pool="a")
    stage.goes(p="a1")
    stage.until(lambda: "the scheduler has no profile blnd" in stage.condition("a", "Accepted").get("message", ""))


def test_pod_of_a_profile_without_preemption_evicts_no_borrower(stage: Stage) -> None:
    stage.restart_scheduler(profiles=[CALM])
    stage.node("a1", pool="a", cpu="1")
    stage.pools("a", "b")
    stage.pod("borrower", pool="b")
    stage.goes(borrower="a1")
    stage.pod("calm", pool="a", scheduler_name="calm", priority=100)
    stage.waits("calm", "switched off in the profile calm")
    stage.pod("owner", pool="a")
    stage.evicts("borrower")
