"""Pods of a Job or a JobSet of which none stays go by its suspension; without it, as any other pods."""

import asyncio

import pytest

from aischeduler.kube.write.eviction_writes import EVICT_TRIES_MAX, Evicted, Eviction, EvictionAnswer, NotNeeded
from aischeduler.kube.write.evictor import Evictor
from aischeduler.kube.write.job_writes import JobWrite
from aischeduler.model.events import EvictRefusal, EvictRefused
from aischeduler.model.workload import SUSPENDED_KEY, JobRef
from tests.build import replace
from tests.kube.scripted_server import Answer, hang, reply, slam, status, until
from tests.kube.test_evictor import World, evict

JOB = JobRef("Job", "default", "train", "uid-job")
PATHS = {
    "Job": "/apis/batch/v1/namespaces/default/jobs/train",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/train",
}
VICTIMS = ("v", "w", "x")
NO_RIGHT = 'jobs.batch "train" is forbidden: User "s" cannot patch resource "jobs"'


def pod(name: str) -> str:
    return f"/api/v1/namespaces/default/pods/{name}"


def lets_pods_go(world: World) -> World:
    for name in VICTIMS:
        world.script.always["patch", f"{pod(name)}/status"] = lambda _: reply(200)
        world.script.always["delete", pod(name)] = lambda _: reply(200)
        world.script.always["post", f"{pod(name)}/eviction"] = lambda _: reply(201)
    return world


async def gang_evicted(world: World, job: JobRef = JOB, together: int = 1) -> list[JobWrite]:
    """Evict the pods of a Job; return the suspensions that were told."""
    told: list[JobWrite] = []
    async with world.running(on_job_write=lambda _, suspension: told.append(suspension)) as evictor:
        for name in VICTIMS:
            assert evictor.submit(replace(evict(name, together=together), suspends=job))
        async with asyncio.timeout(120):
            await evictor.work_queue.wait_finished()
    return told


def requests(world: World) -> list[str]:
    return [f"{request.method} {request.path}" for request in world.script.requests]


MARKS = [f"PATCH {pod(name)}/status" for name in VICTIMS]
DELETES = [f"DELETE {pod(name)}" for name in VICTIMS]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
@pytest.mark.parametrize(("aborts", "mark"), [(False, "restart"), (True, "abort")])
@pytest.mark.parametrize("honour_budgets", [False, True])
async def test_job_is_suspended_once_before_its_pods_get_their_conditions_and_none_is_deleted(
    kind: str, aborts: bool, mark: str, honour_budgets: bool
) -> None:
    world = lets_pods_go(World(honour_budgets=honour_budgets))
    world.script.on("patch", PATHS[kind], reply(200))
    (told,) = await gang_evicted(world, replace(JOB, kind=kind, aborts=aborts))
    assert told.accepted
    sent = [request for request in world.script.requests if "dryRun" not in request.query]
    assert f"{sent[0].method} {sent[0].path}" == f"PATCH {PATHS[kind]}"
    assert sent[0].headers["content-type"] == "application/merge-patch+json"
    assert sent[0].json == {
        "metadata": {"uid": "uid-job", "annotations": {SUSPENDED_KEY: mark}},
        "spec": {"suspend": True},
    }
    assert sorted(f"{request.method} {request.path}" for request in sent[1:]) == MARKS
    assert world.ends == [Evicted()] * 3


@pytest.mark.parametrize(
    "refusal",
    [
        status(403, "Forbidden", NO_RIGHT),
        status(404, "NotFound", 'jobs.batch "train" not found'),
        status(409, "Conflict", "Precondition failed: UID in precondition: uid-job, UID in object meta: other"),
        status(422, "Invalid", "spec.suspend: Forbidden"),
    ],
    ids=["right", "gone", "uid", "invalid"],
)
async def test_pods_of_a_job_that_cannot_be_suspended_are_evicted_each(refusal: Answer) -> None:
    world = lets_pods_go(World())
    world.script.on("patch", PATHS["Job"], refusal)
    (told,) = await gang_evicted(world)
    assert told.refused
    assert requests(world)[0] == f"PATCH {PATHS['Job']}"
    assert sorted(requests(world)[1:]) == sorted(MARKS + DELETES)
    assert world.ends == [Evicted()] * 3


async def test_pods_of_a_job_that_was_to_abort_say_why_it_was_not_suspended() -> None:
    world = lets_pods_go(World())
    world.script.on("patch", PATHS["Job"], status(403, "Forbidden", NO_RIGHT))
    await gang_evicted(world, replace(JOB, aborts=True))
    assert world.ends == [Evicted(NO_RIGHT)] * 3


@pytest.mark.parametrize(
    "late",
    [
        reply(429, b"Too many requests.", {"Retry-After": "2"}),
        status(429, "TooManyRequests", "slow down", {"Retry-After": "1"}),
        status(503, "ServiceUnavailable", "not yet"),
        status(401, "Unauthorized"),
        status(409, "Conflict", "the object has been modified"),
        slam,
        hang,
    ],
    ids=["overload", "429", "503", "401", "conflict", "cut", "timeout"],
)
async def test_suspension_without_a_definite_answer_is_sent_again_while_all_its_pods_wait(late: Answer) -> None:
    world = lets_pods_go(World())
    world.script.on("patch", PATHS["Job"], late, reply(200))
    (told,) = await gang_evicted(world)
    assert told.accepted
    assert requests(world)[:2] == [f"PATCH {PATHS['Job']}"] * 2
    assert sorted(requests(world)[2:]) == MARKS
    assert world.ends == [Evicted()] * 3


async def test_suspension_that_never_gets_an_answer_costs_no_pod_its_life() -> None:
    world = lets_pods_go(World())
    world.script.always["patch", PATHS["Job"]] = lambda _: status(500, "InternalError", "etcd is slow")
    (told,) = await gang_evicted(world)
    assert told.failed == "etcd is slow"
    assert requests(world) == [f"PATCH {PATHS['Job']}"] * EVICT_TRIES_MAX
    assert sorted(world.ends, key=str) == [
        EvictRefused(f"u-{name}", EvictRefusal.UNAVAILABLE, "etcd is slow") for name in VICTIMS
    ]


async def test_pods_that_leave_by_the_suspension_count_as_evicted_however_their_conditions_fare() -> None:
    world = World()
    world.script.on("patch", PATHS["Job"], reply(200))
    world.script.on("patch", f"{pod('v')}/status", status(404, "NotFound", 'pods "v" not found'))
    going = {"metadata": {"uid": "u-w", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "status": {}}
    world.script.on("patch", f"{pod('w')}/status", reply(200, going))
    world.script.on("patch", f"{pod('x')}/status", *[status(503)] * EVICT_TRIES_MAX)
    await gang_evicted(world)
    assert world.ends == [Evicted()] * 3
    assert not world.script.asked("delete")


async def test_pods_that_the_watch_shows_leaving_before_the_answer_arrives_still_count_as_evicted() -> None:
    world = lets_pods_go(World())

    async def shown(writer: asyncio.StreamWriter) -> None:
        world.engine.spared.update(f"u-{name}" for name in VICTIMS)
        await slam(writer)

    world.script.on("patch", PATHS["Job"], shown, reply(200))
    await gang_evicted(world)
    assert world.ends == [Evicted()] * 3


async def test_nothing_is_suspended_for_evictions_that_the_scheduler_no_longer_asks_for() -> None:
    world = lets_pods_go(World())
    world.engine.spared.update(f"u-{name}" for name in VICTIMS)
    assert await gang_evicted(world) == []
    assert requests(world) == []
    assert {type(end) for end in world.ends} == {NotNeeded}


async def test_eviction_that_is_still_asked_for_suspends_the_job_in_place_of_one_that_is_not() -> None:
    world = lets_pods_go(World())
    world.engine.spared.add("u-v")
    world.script.on("patch", PATHS["Job"], reply(200))
    await gang_evicted(world)
    assert sorted(requests(world)[1:]) == MARKS[1:]
    assert sorted(map(str, world.ends)) == sorted(
        map(str, [NotNeeded("the scheduler no longer asks for it"), Evicted(), Evicted()])
    )


@pytest.mark.parametrize("honour_budgets", [False, True])
async def test_job_whose_pods_go_together_is_suspended_after_the_dry_runs_of_all(honour_budgets: bool) -> None:
    world = lets_pods_go(World(honour_budgets=honour_budgets))
    world.script.on("patch", PATHS["Job"], reply(200))
    await gang_evicted(world, together=3)
    first = next(at for at, request in enumerate(world.script.requests) if "dryRun" not in request.query)
    assert world.script.requests[first].path == PATHS["Job"]
    assert sorted(requests(world)[first + 1 :]) == MARKS
    assert first == (3 if honour_budgets else 6)


async def test_budget_that_forbids_to_evict_one_of_the_pods_keeps_the_job_running() -> None:
    world = lets_pods_go(World(honour_budgets=True))
    budget = {
        "details": {"causes": [{"reason": "DisruptionBudget"}]},
        "kind": "Status",
        "message": "budget",
        "code": 429,
    }
    world.script.on("post", f"{pod('w')}/eviction", reply(429, budget))
    assert await gang_evicted(world, together=3) == []
    assert world.script.asked("patch") == []
    assert all(isinstance(end, EvictRefused) for end in world.ends)


async def test_other_decision_about_the_job_suspends_it_again() -> None:
    world = lets_pods_go(World())
    world.script.always["patch", PATHS["Job"]] = lambda _: reply(200)
    async with world.running() as evictor:
        for decision in ("d1", "d2"):
            evictor.submit(replace(evict(), suspends=JOB, decision=decision))
            await evictor.work_queue.wait_finished()
    assert requests(world) == [f"PATCH {PATHS['Job']}", MARKS[0]] * 2


async def test_error_in_the_eviction_that_suspends_leaves_the_others_not_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bugs: list[str] = []
    world = lets_pods_go(World(failed=lambda job, _: bugs.append(job)))
    world.script.on("patch", PATHS["Job"], reply(200))
    original, failed = Evictor._send, list[Eviction]()

    async def send(self: Evictor, eviction: Eviction) -> EvictionAnswer:
        if not failed:
            eviction.request("now")
            failed.append(eviction)
            await until(lambda: len(world.waits.seconds) > 2)
            raise TypeError("a bug")
        return await original(self, eviction)

    monkeypatch.setattr(Evictor, "_send", send)
    await gang_evicted(world)
    assert bugs == ["evictor"]
    assert requests(world)[0] == f"PATCH {PATHS['Job']}"
    assert sorted(type(end).__name__ for end in world.ends) == ["EvictRefused", "Evicted", "Evicted"]
