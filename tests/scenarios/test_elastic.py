"""Elastic jobs: they grow while there is room, and give it back before anybody is evicted."""

from tests.gang_objects import indexed_job_object
from tests.scenarios.gangs import job
from tests.scenarios.stage import Stage

PREFIX = "resource.aibee.cn/"


def elastic_job(stage: Stage, name: str, *, least: int, most: int, pool: str, window: str = "0s") -> None:
    """Create an Indexed Job of one CPU an instance, with its minimum of instances."""
    annotations = {"min-instances": str(least), "max-instances": str(most), "freezing-window": window}
    said = {PREFIX + key: value for key, value in annotations.items()}
    pods = {PREFIX + "pool": stage.own(pool)}
    job(
        stage,
        indexed_job_object(
            name,
            namespace=stage.own("ns"),
            pods=least,
            cpu="1",
            gang="",
            annotations=said,
            template_annotations=pods,
        ),
    )


def size(stage: Stage, name: str) -> tuple[int, int]:
    spec = stage.get("Job", name)["spec"]
    return spec["parallelism"], spec["completions"]


def test_job_grows_to_what_fits_and_a_home_pod_takes_surplus_by_a_smaller_size(stage: Stage) -> None:
    stage.pools("a")
    for node in ("first", "second"):
        stage.node(node, pool="a", cpu="3")
    elastic_job(stage, "j", least=2, most=40, pool="a", window="10m")
    stage.until(lambda: stage.bound("j") == 6)
    assert size(stage, "j") == (6, 6)
    stage.pod("home", pool="a", cpu="2")
    stage.until(lambda: stage.node_of("home") != "")
    left, completions = size(stage, "j")
    assert left == completions
    assert 2 <= left <= 4
    stage.until(lambda: stage.bound("j") == left)
    assert stage.get("Job", "j")["status"].get("failed", 0) == 0


def test_minimum_of_a_second_job_starts_beside_a_job_that_had_everything(stage: Stage) -> None:
    stage.pools("a")
    stage.node("n", pool="a", cpu="6")
    elastic_job(stage, "first", least=2, most=40, pool="a")
    stage.until(lambda: stage.bound("first") == 6)
    elastic_job(stage, "second", least=2, most=40, pool="a")
    stage.until(lambda: stage.bound("second") >= 2)
    assert stage.bound("first") >= 2
    for name in ("first", "second"):
        assert stage.get("Job", name)["status"].get("failed", 0) == 0


def test_growth_borrows_and_the_owner_gets_its_node_back(stage: Stage) -> None:
    stage.pools("a", "b")
    stage.node("mine", pool="a", cpu="2")
    stage.node("theirs", pool="b", cpu="2")
    elastic_job(stage, "j", least=2, most=40, pool="a", window="10m")
    stage.until(lambda: stage.bound("j") == 4)
    stage.pod("owner", pool="b", cpu="2")
    stage.goes(owner="theirs")
    assert size(stage, "j") == (2, 2)
    assert stage.get("Job", "j")["status"].get("failed", 0) == 0
