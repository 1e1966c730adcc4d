"""Bindings that are not sent, are in doubt, or hit an internal error: none blocks a task, and each is settled."""

import asyncio

import pytest

from aischeduler.kube.http import connection_pool
from aischeduler.kube.http.errors import RefusedError, UnreachableError
from aischeduler.kube.write import binder as binder_module
from aischeduler.kube.write.binder import READ_TRIES_MAX, Binder
from aischeduler.kube.write.pod_writes import BindAccepted
from aischeduler.model.actions import ReadPod
from aischeduler.model.events import BindRefusal, BindRefused
from tests.build import a_pod, replace
from tests.kube.binder_world import BIND, BOUND, FREE, PATH, World, late_server, refusal
from tests.kube.scripted_server import Counted, reply, slam, status, until


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SWEEP_SECONDS", 0.01)


async def test_binding_whose_pod_is_gone_before_its_turn_is_not_sent() -> None:
    world = World(engine=Counted(settled={"u1"}))
    outcome = await world.bind()
    assert (refusal(outcome), world.posts, world.asked) == (BindRefusal.STALE, 0, 0)


async def test_binding_whose_node_is_gone_before_its_turn_is_not_sent() -> None:
    world = World(engine=Counted(gone={"n1"}))
    outcome = await world.bind()
    assert outcome == BindRefused("u1", "n1", BindRefusal.STALE, "not sent: the node is gone")
    assert world.posts == 0


async def test_bindings_that_are_too_old_after_an_outage_are_not_sent() -> None:
    world = World(reads=[UnreachableError("down")] * 10 + [FREE, FREE])
    world.script.on("post", PATH, slam)
    world.script.always["post", PATH] = lambda _: reply(201)
    queued = replace(BIND, pod=a_pod("q", uid="u2"))
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(queued)
        await binder.work_queue.wait_finished()
    assert [refusal(outcome) for outcome in world.outcomes] == [BindRefusal.UNAVAILABLE, BindRefusal.STALE]
    assert world.posts == 1


async def test_binding_of_a_decision_within_the_limit_is_sent_again_after_an_outage() -> None:
    world = World(reads=[UnreachableError("down"), FREE])
    assert await world.bind(slam, reply(201)) == BindAccepted("u1", "n1")


FORBIDDEN = RefusedError(403, "Forbidden", 'cannot get resource "pods"')
SETTLE = ReadPod(BIND.pod, "n1", "d1")


async def in_doubt(binder: Binder) -> None:
    """Bring a Binding into doubt: its pod may not be read."""
    binder.submit(BIND)
    await until(lambda: binder.in_doubt)


async def test_pods_that_may_not_be_read_block_no_task() -> None:
    world = World(reads=[FORBIDDEN] * READ_TRIES_MAX)
    world.script.on("post", PATH, slam, reply(201))
    world.waits.hold()
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(replace(BIND, pod=a_pod("p", uid="u2")))
        await until(lambda: world.waits.held)
        world.waits.release()
        await until(lambda: world.outcomes)
        assert (binder.in_doubt, binder.work_queue.in_progress, world.posts) == (1, 1, 2)
        assert not binder.is_in_progress("u1")
        assert binder.oldest_seconds() > 0


async def test_binding_in_doubt_gets_its_outcome_once_its_pod_is_read() -> None:
    for found, outcome in ((BOUND, BindAccepted("u1", "n1")), (FREE, None)):
        world = World(reads=[FORBIDDEN] * READ_TRIES_MAX)
        world.script.on("post", PATH, slam)
        async with world.running() as binder:
            await in_doubt(binder)
            binder.settle(replace(SETTLE, decision="another"), found, world.hear)
            assert world.outcomes == []
            binder.settle(SETTLE, found, world.hear)
            await binder.work_queue.wait_finished()
            assert binder.oldest_seconds() == 0.0
        (told,) = world.outcomes
        assert told == outcome or refusal(told) is BindRefusal.UNAVAILABLE


async def test_binding_in_doubt_is_removed_once_the_watch_shows_its_pod() -> None:
    world = World(reads=[FORBIDDEN] * READ_TRIES_MAX)
    world.script.on("post", PATH, slam)
    async with world.running() as binder:
        await in_doubt(binder)
        world.engine.settled.add("u1")
        await binder.work_queue.wait_finished()
        assert (binder.in_doubt, binder.oldest_seconds(), world.outcomes) == (0, 0.0, [])


async def test_unreachable_server_brings_no_binding_into_doubt() -> None:
    world = World(reads=[RefusedError(503, "x", "y")] * 3 * READ_TRIES_MAX + [BOUND])
    assert await world.bind(slam) == BindAccepted("u1", "n1")


async def test_outcome_whose_callback_fails_is_settled_by_the_next_read() -> None:
    bugs: list[str] = []
    world = World(failed=lambda job, error: bugs.append(f"{job}: {error}"))
    world.bugs.append(RuntimeError("a bug"))
    world.script.on("post", PATH, status(422, "Invalid", "no"), reply(201))
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(replace(BIND, pod=a_pod("p", uid="u2")))
        await binder.work_queue.wait_finished()
        assert bugs == ["outcome of a Binding: a bug"]
        assert world.outcomes == [BindAccepted("u2", "n1")]
        binder.settle(SETTLE, FREE, world.hear)
        assert refusal(world.outcomes[1]) is BindRefusal.UNAVAILABLE
        assert (binder.work_queue.unfinished, binder.in_doubt, binder.oldest_seconds()) == (0, 0, 0.0)


async def test_exception_in_a_binding_costs_a_read_of_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise TypeError("a bug")

    bugs: list[str] = []
    world = World(failed=lambda job, error: bugs.append(f"{job}: {error}"))
    world.script.on("post", PATH, reply(201))
    monkeypatch.setattr(binder_module, "read_bind_answer", read)
    async with world.running() as binder:
        await in_doubt(binder)
        binder.settle(SETTLE, BOUND, world.hear)
        await binder.work_queue.wait_finished()
    assert (bugs, world.outcomes) == (["binder: a bug"], [BindAccepted("u1", "n1")])


async def test_binding_in_progress_when_a_run_ends_is_in_doubt_in_the_next() -> None:
    world, release = late_server()
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(replace(BIND, pod=a_pod("p", uid="u2")))
        await until(lambda: world.posts)
    assert (binder.work_queue.in_progress, binder.work_queue.waiting) == (1, 1)
    release.set()
    world.waits.hold()
    again = asyncio.create_task(binder.run(world.hear))
    await until(lambda: binder.in_doubt)
    assert not binder.is_in_progress("u1")
    assert binder.is_in_progress("u2")
    again.cancel()
    await asyncio.wait([again])
    assert again.cancelled()


async def test_answers_are_signalled_while_more_bindings_wait() -> None:
    world, release = late_server()
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        await until(lambda: binder.unanswered == 1)
        assert not binder.answered.is_set()
        binder.submit(replace(BIND, pod=a_pod("p", uid="u2")))
        release.set()
        await binder.answered.wait()
        await binder.work_queue.wait_finished()
        assert binder.unanswered == 0
