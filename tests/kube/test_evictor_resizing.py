"""Surplus of an elastic job goes by a smaller size of that: one request for all of it, or nothing goes."""

import asyncio

import pytest

from aischeduler.kube.write.eviction_writes import Evicted
from aischeduler.kube.write.job_writes import JobWrite
from aischeduler.model.actions import Resize, ResizeReason
from aischeduler.model.elastic import SIZE_KEY
from aischeduler.model.events import EvictRefusal, EvictRefused
from tests.build import replace
from tests.kube.scripted_server import Answer, reply, status
from tests.kube.test_evictor import World, evict
from tests.kube.test_evictor_suspending import MARKS, PATHS, VICTIMS, lets_pods_go, requests

SMALLER = Resize(
    "Job",
    "default",
    "train",
    "uid-job",
    "7",
    8,
    5,
    ResizeReason.RECLAIMED,
    "room",
    "d-1",
    0,
    0.0,
    completions_follow=True,
)


async def surplus_evicted(world: World) -> list[JobWrite]:
    """Evict surplus pods of a job; return the writes to it that were told."""
    told: list[JobWrite] = []
    async with world.running(on_job_write=lambda _, write: told.append(write)) as evictor:
        for name in VICTIMS:
            assert evictor.submit(replace(evict(name), resizes=SMALLER))
        async with asyncio.timeout(120):
            await evictor.work_queue.wait_finished()
    return told


@pytest.mark.parametrize("honour_budgets", [False, True])
async def test_size_is_written_once_and_no_pod_is_deleted(honour_budgets: bool) -> None:
    world = lets_pods_go(World(honour_budgets=honour_budgets))
    world.script.on("patch", PATHS["Job"], reply(200))
    (told,) = await surplus_evicted(world)
    assert told.accepted
    sent = [request for request in world.script.requests if "dryRun" not in request.query]
    assert sent[0].json["spec"] == {"parallelism": 5, "completions": 5}
    assert sent[0].json["metadata"]["resourceVersion"] == "7"
    assert sent[0].json["metadata"]["annotations"][SIZE_KEY] == "5"
    assert sorted(f"{request.method} {request.path}" for request in sent[1:]) == MARKS
    assert world.ends == [Evicted()] * 3


@pytest.mark.parametrize(
    ("answer", "refusal", "changed"),
    [
        (status(409, "Conflict", "the object has been modified"), EvictRefusal.CALLED_OFF, True),
        (status(404, "NotFound", 'jobs.batch "train" not found'), EvictRefusal.CALLED_OFF, True),
        (status(403, "Forbidden", "no right"), EvictRefusal.UNAVAILABLE, False),
    ],
    ids=["changed", "gone", "no right"],
)
async def test_nothing_goes_where_the_size_is_not_written(answer: Answer, refusal: EvictRefusal, changed: bool) -> None:
    world = lets_pods_go(World())
    world.script.on("patch", PATHS["Job"], answer)
    (told,) = await surplus_evicted(world)
    assert (told.accepted, told.changed) == (False, changed)
    assert requests(world) == [f"PATCH {PATHS['Job']}"]
    assert [end.why for end in world.ends if isinstance(end, EvictRefused)] == [refusal] * 3


async def test_of_several_sizes_from_one_version_the_smallest_is_sent() -> None:
    world = lets_pods_go(World())
    world.script.on("patch", PATHS["Job"], reply(200))
    async with world.running() as evictor:
        for number, name in enumerate(VICTIMS):
            smaller = replace(SMALLER, instances=7 - number, decision=f"d-{number}")
            assert evictor.submit(replace(evict(name), decision=f"d-{number}", resizes=smaller))
        async with asyncio.timeout(120):
            await evictor.work_queue.wait_finished()
    (sent,) = [request for request in world.script.requests if request.path == PATHS["Job"]]
    assert sent.json["spec"] == {"parallelism": 5, "completions": 5}
    assert world.ends == [Evicted()] * 3
