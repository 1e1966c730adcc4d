"""Elastic jobs: one patch writes the size and what is noted of it, unless the object has changed."""

from typing import Any

import pytest

from aischeduler.kube.write.elastic_writes import Resized, content_type, read_answer, resize_patch, resize_path
from aischeduler.model.actions import Resize
from aischeduler.model.elastic import COMPLETIONS_KEY, RESIZED_AT_KEY, SERVICE_KEY, SIZE_KEY
from aischeduler.model.events import ResizeRefused
from tests.api_contract.world import Call, Json, World, condition, encode
from tests.gang_objects import indexed_job_object, job_set_crd, job_set_object
from tests.kube.resizes import AT, a_resize

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKERS = {"part": "workers", "part_index": 1}


def a_job(world: World, name: str = "j", **fields: Any) -> Json:
    """Create a suspended Indexed Job of four, with these fields in its spec and no annotations."""
    document = indexed_job_object(name, namespace=world.namespace, pods=4, gang="")
    document["spec"] |= {"suspend": True, **fields}
    world.create(document)
    world.until(lambda: condition(world.get("Job", name), "Suspended").get("status") == "True")
    return world.get("Job", name)


def a_job_set(world: World) -> Json:
    """Create a JobSet of a driver and four workers; the definition stays for the other scenarios."""
    assert world.post(DEFINITIONS, job_set_crd()).status in (201, 409)
    document = job_set_object(namespace=world.namespace, jobs={"driver": (1, 1), "workers": (1, 4)})
    url = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{world.namespace}/jobsets"
    return world.until(lambda: answer.body if (answer := world.post(url, document)).status == 201 else None)


def resize(world: World, document: Json, size: int, **parts: Any) -> Resize:
    """Return the resize of an object as it is in this document."""
    metadata = document["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"], "version": metadata["resourceVersion"]}
    return a_resize(document["kind"], **{"namespace": world.namespace, "instances": size, **named, **parts})


def sent(world: World, action: Resize) -> tuple[Resized | ResizeRefused, Json]:
    """Send a resize, and return its meaning and what the server answered."""
    answer = world.send(Call("PATCH", resize_path(action), resize_patch(action), content_type(action)))
    outcome = read_answer(action, answer.status, None, encode(answer.body))
    assert isinstance(outcome, Resized | ResizeRefused)
    return outcome, answer.body


def written(world: World, action: Resize) -> Json:
    outcome, body = sent(world, action)
    assert outcome == Resized(), body
    return body


def refusal(world: World, action: Resize) -> ResizeRefused:
    outcome, _ = sent(world, action)
    assert isinstance(outcome, ResizeRefused)
    assert outcome.message
    return outcome


def test_indexed_job_shrinks_and_grows_with_its_completions(world: World) -> None:
    found = a_job(world)
    assert "annotations" not in found["metadata"]
    for size in (2, 6):
        found = written(world, resize(world, found, size, completions_follow=True))
        assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (size, size)
        assert found["metadata"]["annotations"].items() >= {
            (SIZE_KEY, str(size)),
            (RESIZED_AT_KEY, AT),
            (SERVICE_KEY, f"1200 {AT}"),
            (COMPLETIONS_KEY, "follow"),
        }


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_parallelism_alone_is_resized_where_completions_are_work(world: World, mode: str) -> None:
    found = a_job(world, completions=10, completionMode=mode)
    found = written(world, resize(world, found, 2, completions_follow=False))
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (2, 10)
    assert found["metadata"]["annotations"][COMPLETIONS_KEY] == "fixed"


def test_completions_that_the_api_keeps_are_a_refusal(world: World) -> None:
    found = a_job(world, completionMode="NonIndexed")
    outcome = refusal(world, resize(world, found, 2, completions_follow=True))
    assert (outcome.changed, outcome.retry_after_seconds) == (False, 300.0)
    assert world.get("Job", "j")["spec"]["parallelism"] == 4


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_size_of_an_object_that_has_changed_is_not_written(world: World, kind: str) -> None:
    found = a_job(world) if kind == "Job" else a_job_set(world)
    part = WORKERS if kind == "JobSet" else {}
    action = resize(world, found, 6, completions_follow=True, **part)
    edited = world.patch(resize_path(action), {"metadata": {"labels": {"edited": "yes"}}})
    assert refusal(world, action).changed
    written(world, resize(world, edited, 2, completions_follow=True, **part))
    assert refusal(world, action).changed, "sent again it finds what was written"


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_size_of_another_object_of_the_name_is_not_written(world: World, kind: str) -> None:
    found = a_job(world) if kind == "Job" else a_job_set(world)
    part = WORKERS if kind == "JobSet" else {}
    other = resize(world, found, 6, uid="00000000-0000-0000-0000-000000000000", **part)
    assert refusal(world, other).changed
    assert refusal(world, resize(world, found, 6, name="gone", **part)).changed


def test_part_of_a_job_set_shrinks_and_grows_and_the_others_stay(world: World) -> None:
    found = a_job_set(world)
    driver = found["spec"]["replicatedJobs"][0]
    for size in (2, 6):
        found = written(world, resize(world, found, size, completions_follow=True, **WORKERS))
        first, workers = found["spec"]["replicatedJobs"]
        assert first == driver
        spec = workers["template"]["spec"]
        assert (spec["parallelism"], spec["completions"]) == (size, size)
        assert found["metadata"]["annotations"][SIZE_KEY] == str(size)


@pytest.mark.parametrize("index", [0, 7])
def test_part_of_a_job_set_in_another_place_is_not_written(world: World, index: int) -> None:
    found = a_job_set(world)
    assert refusal(world, resize(world, found, 6, part="workers", part_index=index)).changed
