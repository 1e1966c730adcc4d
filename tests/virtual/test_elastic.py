"""Elastic Jobs in the virtual cluster: their objects, the Job controller and the requests of the scheduler together."""

import pytest

from aischeduler.model.actions import Evict, Resize
from aischeduler.model.elastic import (
    COMPLETIONS_KEY,
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    RESIZED_AT_KEY,
    SIZE_KEY,
)
from aischeduler.model.names import POOL_KEY
from tests.gang_objects import indexed_job_object
from tests.harness import Harness
from tests.objects import Json, node_object, pod_object, pool_object
from tests.virtual.virtual_daemon import Network

LABELS = {"pool": "pool"}
WINDOW_SECONDS = 30.0
SETTLED_SECONDS = 12.0
"""Two passes, and the start of the pods."""


def an_elastic_job(name: str, *, pods: int, least: int = 2, most: int = 60) -> Json:
    """Return an Indexed Job that begins with so many pods of one core."""
    annotations = {
        MIN_INSTANCES_KEY: str(least),
        MAX_INSTANCES_KEY: str(most),
        FREEZING_WINDOW_KEY: f"{WINDOW_SECONDS:.0f}s",
    }
    return indexed_job_object(
        name, pods=pods, gang="", annotations=annotations, template_annotations={POOL_KEY: "pool"}
    )


def a_harness(*documents: Json, nodes: int = 2, network: Network | None = None) -> Harness:
    """Return a cluster of nodes of four cores, with a pool of all."""
    names = [f"n{number}" for number in range(nodes)]
    objects = (node_object(name, cpu="4", labels=LABELS) for name in names)
    return Harness(pool_object(labels=LABELS), *objects, *documents, network=network)


def size(harness: Harness, job: str) -> tuple[int, int]:
    """Return parallelism and completions of a Job."""
    spec = harness.get("Job", job)["spec"]
    return spec["parallelism"], spec["completions"]


def running(harness: Harness, job: str) -> list[int]:
    """Return the indexes of a Job whose pods run."""
    pods = [pod for pod in harness.all("Pod") if pod["metadata"].get("labels", {}).get("job-name") == job]
    there = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
    return sorted(int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]) for pod in there)


def test_annotated_indexed_job_grows_to_what_fits() -> None:
    harness = a_harness(an_elastic_job("a", pods=2))
    harness.run(SETTLED_SECONDS)
    assert (size(harness, "a"), running(harness, "a")) == ((8, 8), [*range(8)])
    notes = harness.get("Job", "a")["metadata"]["annotations"]
    assert (notes[SIZE_KEY], notes[COMPLETIONS_KEY]) == ("8", "follow")
    assert RESIZED_AT_KEY in notes
    assert harness.events_about("a", "Resized") == [
        "Resized from 2 to 8 instances: There is room for 6 more instance(s)"
    ]


def test_job_that_asks_for_more_than_fits_is_adopted_at_its_minimum() -> None:
    harness = a_harness(an_elastic_job("a", pods=20))
    harness.run(1.5)
    assert size(harness, "a") == (2, 2)
    assert RESIZED_AT_KEY not in harness.get("Job", "a")["metadata"]["annotations"]
    harness.run(SETTLED_SECONDS)
    assert running(harness, "a") == [*range(8)]


def test_job_shrinks_for_a_second_one_and_loses_its_highest_indexes() -> None:
    harness = a_harness(an_elastic_job("a", pods=2))
    harness.run(WINDOW_SECONDS + SETTLED_SECONDS)
    harness.add(an_elastic_job("b", pods=2))
    harness.run(SETTLED_SECONDS)
    left = len(running(harness, "a"))
    assert running(harness, "a") == [*range(left)]
    assert 2 <= left <= 6
    assert len(running(harness, "b")) >= 2
    assert not [action for action in harness.actions if isinstance(action, Evict)]
    assert harness.get("Job", "a")["status"].get("failed", 0) == 0


@pytest.mark.parametrize("lost_share", [0.0, 0.3], ids=["answered", "lost"])
def test_surplus_goes_for_a_plain_pod_by_a_smaller_size_and_has_not_failed(lost_share: float) -> None:
    harness = a_harness(an_elastic_job("a", pods=2), network=Network(lost_share=lost_share))
    harness.run(4 * SETTLED_SECONDS)
    harness.add(*(pod_object(f"home-{number}", cpu="2", pool="pool") for number in range(2)))
    harness.run(4 * SETTLED_SECONDS)
    assert all(harness.nodes_of_pods()[f"home-{number}"] for number in range(2))
    assert len(running(harness, "a")) == size(harness, "a")[0] == 4
    assert harness.get("Job", "a")["status"].get("failed", 0) == 0
    resized = [action for action in harness.actions if isinstance(action, Evict | Resize)]
    assert all(action.resizes is not None for action in resized if isinstance(action, Evict))


def test_size_that_was_decided_on_an_older_object_is_decided_again() -> None:
    harness = a_harness(an_elastic_job("a", pods=2), nodes=1, network=Network(bind_seconds=2.0))
    harness.run(1.0)
    harness.patch("Job", "a", {"metadata": {"labels": {"edited": "yes"}}})
    harness.run(4 * SETTLED_SECONDS)
    assert size(harness, "a") == (4, 4)
    assert harness.get("Job", "a")["metadata"]["annotations"][SIZE_KEY] == "4"


def test_scheduler_that_starts_anew_keeps_sizes_and_windows() -> None:
    harness = a_harness(an_elastic_job("a", pods=2), nodes=1)
    harness.run(SETTLED_SECONDS)
    before = harness.get("Job", "a")["metadata"]["annotations"]
    harness.restart_scheduler()
    harness.add(node_object("more", cpu="4", labels=LABELS))
    harness.run(SETTLED_SECONDS)
    after = harness.get("Job", "a")["metadata"]["annotations"]
    assert (size(harness, "a"), after[RESIZED_AT_KEY]) == ((4, 4), before[RESIZED_AT_KEY])
    harness.run(WINDOW_SECONDS + SETTLED_SECONDS)
    assert size(harness, "a") == (8, 8)
