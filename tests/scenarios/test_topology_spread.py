"""Pods with topology spread constraints."""

from aischeduler.model.gang import GANG_KEY
from tests.scenarios.gangs import labelled, places, start_together
from tests.scenarios.stage import Stage

WEB = {"app": "web"}
HOST = "kubernetes.io/hostname"

OVER_ZONES = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    }
]


def test_pod_waits_until_the_emptiest_zone_has_another_pod(stage: Stage) -> None:
    stage.pools("a")
    stage.node("east", pool="a", cpu="4", labels={"zone": "east"})
    stage.node("west", pool="a", cpu="1", labels={"zone": "west"})
    stage.pod("filler", pool="a", cpu="1", node="west")
    stage.pod("first", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(first="east")
    stage.pod("second", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.waits("second", "1 node(s) didn't match pod topology spread constraints", "1 Insufficient cpu")
    stage.delete("Pod", "filler", gracePeriodSeconds=0)
    stage.goes(second="west")


def test_pod_is_bound_once_a_pod_of_another_zone_gets_the_label_that_is_counted(stage: Stage) -> None:
    stage.pools("a")
    stage.node("east", pool="a", cpu="4", labels={"zone": "east"})
    stage.node("west", pool="a", cpu="1", labels={"zone": "west"})
    stage.pod("other", pool="a", cpu="1", labels={"app": "db"}, node="west")
    stage.pod("first", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(first="east")
    stage.pod("second", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.waits("second", "1 node(s) didn't match pod topology spread constraints")
    stage.patch("Pod", "other", {"metadata": {"labels": WEB}})
    stage.goes(second="east")


PREFERRED = [{**OVER_ZONES[0], "topologyKey": HOST, "whenUnsatisfiable": "ScheduleAnyway"}]


def test_pod_that_prefers_to_be_spread_goes_to_the_node_with_the_fewest_pods_of_its_kind(stage: Stage) -> None:
    stage.pools("a")
    for name in ("one", "two"):
        stage.node(name, pool="a", cpu="8", labels={HOST: name})
    stage.pod("web-0", pool="a", cpu="10m", labels=WEB, node="one")
    stage.pod("other", pool="a", cpu="1", node="two")
    stage.until(lambda: stage.node_of("web-0") == "one" and stage.node_of("other") == "two")
    stage.pod("plain", pool="a", cpu="10m", labels=WEB)
    stage.goes(plain="one")
    stage.pod("p", pool="a", cpu="10m", labels=WEB, spread=PREFERRED)
    stage.goes(p="two")


def test_pod_of_a_service_is_spread_by_default(stage: Stage) -> None:
    stage.pools("a")
    for name in ("one", "two"):
        stage.node(name, pool="a", cpu="8", labels={HOST: name})
    for number in range(3):
        stage.pod(f"web-{number}", pool="a", cpu="10m", labels=WEB, node="one")
    stage.pod("other", pool="a", cpu="1", node="two")
    stage.until(lambda: stage.node_of("web-2") == "one" and stage.node_of("other") == "two")
    stage.service("web", **WEB)
    stage.pod("of-none", pool="a", cpu="10m")
    stage.goes(**{"of-none": "one"})
    stage.pod("p", pool="a", cpu="10m", labels=WEB)
    stage.goes(p="two")


def test_preference_keeps_no_pod_waiting(stage: Stage) -> None:
    stage.pools("a")
    stage.node("east", pool="a", cpu="4", labels={HOST: "east"})
    for name in ("first", "second", "third"):
        stage.pod(name, pool="a", labels=WEB, spread=PREFERRED)
    stage.goes(first="east", second="east", third="east")


def test_pod_of_another_pool_counts_in_a_zone_of_both(stage: Stage) -> None:
    stage.pools("a", "b", disableBorrowing=True)
    stage.node("of-b", pool="b", labels={"zone": "east"})
    stage.pod("there", pool="b", labels=WEB, node="of-b")
    stage.until(lambda: stage.node_of("there") == "of-b")
    stage.node("east", pool="a", cpu="4", labels={"zone": "east"})
    stage.node("west", pool="a", cpu="1", labels={"zone": "west"})
    stage.pod("first", pool="a", cpu="1", labels=WEB, spread=OVER_ZONES)
    stage.goes(first="west")
    stage.pod("second", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(second="east")


def test_zones_of_another_pool_do_not_count(stage: Stage) -> None:
    stage.pools("a", "b", disableBorrowing=True)
    stage.node("east", pool="a", labels={"zone": "east"})
    stage.node("north", pool="b", labels={"zone": "north"})
    for name in ("first", "second", "third"):
        stage.pod(name, pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(first="east", second="east", third="east")


def test_gang_that_is_to_be_spread_starts_once_each_zone_has_room(stage: Stage) -> None:
    stage.node("east", cpu="4", labels={"zone": "east"})
    stage.node("west", cpu="1", labels={"zone": "west"})
    stage.pod("filler", cpu="1", node="west")
    stage.until(lambda: stage.node_of("filler") == "west")
    over_zones = [{**OVER_ZONES[0], "labelSelector": {"matchLabels": {GANG_KEY: "g"}}}]
    labelled(stage, "g", 2, spread=over_zones)
    stage.waits("g-0", "1 of the 2 pods that start together fit", "didn't match pod topology spread constraints")
    stage.delete("Pod", "filler", gracePeriodSeconds=0)
    start_together(stage, "g-0", "g-1")
    assert sorted(places(stage, "g-0", "g-1")) == ["east", "west"]


def test_borrowers_are_spread_over_the_zones_of_the_lender(stage: Stage) -> None:
    stage.pools("a")
    stage.node("east", pool="b", cpu="4", labels={"zone": "east"})
    stage.node("west", pool="b", cpu="1", labels={"zone": "west"})
    stage.pools("b")
    stage.pods("p", "q", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.runs("p", "q")
    assert {stage.node_of("p"), stage.node_of("q")} == {"east", "west"}
    stage.pod("r", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(r="east")
    stage.pod("s", pool="a", labels=WEB, spread=OVER_ZONES)
    stage.waits("s", "borrowing: no node fits: ")


def test_owner_takes_back_room_only_in_the_zone_that_its_spread_allows(stage: Stage) -> None:
    stage.pools("a")
    stage.node("east", pool="b", cpu="2", labels={"zone": "east"})
    stage.node("west", pool="b", cpu="1", labels={"zone": "west"})
    stage.pools("b")
    stage.pod("own", pool="b", labels=WEB, node="east")
    stage.pods("guest-east", pool="a", on="east")
    stage.pods("guest-west", pool="a", on="west")
    stage.runs("guest-east", "guest-west")
    stage.pod("next", pool="b", labels=WEB, spread=OVER_ZONES)
    stage.evicts("guest-west")
    stage.goes(next="west")
