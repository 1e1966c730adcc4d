"""The pool `default`: it always exists, has flags like any other pool, and its selector is ignored."""

from tests.scenarios.stage import Stage


def test_default_pool_is_created_by_the_scheduler(stage: Stage) -> None:
    stage.until(lambda: stage.get("Pool", "default") != {})
    stage.until(lambda: stage.condition("default", "Accepted").get("status") == "True")


def test_deleted_default_pool_is_created_again_and_its_pods_are_scheduled(stage: Stage) -> None:
    stage.node("free")
    stage.until(lambda: stage.get("Pool", "default") != {})
    uid = stage.get("Pool", "default")["metadata"]["uid"]
    stage.pod("before")
    stage.goes(before="free")
    stage.delete("Pool", "default")
    stage.pod("after")
    stage.goes(after="free")
    stage.until(lambda: stage.get("Pool", "default").get("metadata", {}).get("uid", uid) != uid)


def test_flags_of_the_default_pool_take_effect(stage: Stage) -> None:
    stage.until(lambda: stage.get("Pool", "default") != {})
    stage.set_pool("default", disableBorrowing=True, disableSharing=True)
    stage.heeded("default")
    stage.node("free", cpu="2")
    stage.node("a1", pool="a", cpu="8")
    stage.pools("a")
    stage.pod("p", cpu="4")
    stage.waits("p", "Insufficient cpu")
    stage.pod("q", pool="a", cpu="8")
    stage.goes(q="a1")
    stage.pod("r", pool="a", cpu="1")
    stage.waits("r", "borrowing: not sharing: default.")


def test_selector_of_the_default_pool_is_ignored(stage: Stage) -> None:
    stage.until(lambda: stage.get("Pool", "default") != {})
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.settle()
    stage.set_pool("default", nodeSelector={})
    stage.pod("p", pool="a")
    stage.goes(p="a1")
    assert "borrowed" not in stage.marks("p")
    stage.until(lambda: stage.condition("a", "Conflict").get("status") == "False")
    stage.stays(lambda: stage.condition("a", "Conflict").get("status") == "False")
