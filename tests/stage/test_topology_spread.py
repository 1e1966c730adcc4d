"""Pods with hard topology spread constraints."""

from tests.stage.stage import Stage

WEB = {"app": "web"}


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


def test_zones_of_another_pool_do_not_count(stage: Stage) -> None:
    stage.pools("a", "b", disableBorrowing=True)
    stage.node("east", pool="a", labels={"zone": "east"})
    stage.node("north", pool="b", labels={"zone": "north"})
    for name in ("first", "second", "third"):
        stage.pod(name, pool="a", labels=WEB, spread=OVER_ZONES)
    stage.goes(first="east", second="east", third="east")
