import asyncio

import pytest

from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.http import connection_pool
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import RefusedError, UnreachableError
from aischeduler.kube.write.binder import QUEUED_PER_IN_FLIGHT, Binder
from aischeduler.kube.write.pod_writes import BindAccepted
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.pod import Pod
from tests.build import a_pod, replace
from tests.kube.binder_world import BIND, BOUND, FREE, PATH, World, conflict, late_server, refusal
from tests.kube.scripted_server import Answer, hang, reply, serving, settled, slam, status, until


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SWEEP_SECONDS", 0.01)


async def test_created_is_accepted() -> None:
    world = World()
    assert await world.bind(reply(201)) == BindAccepted("u1", "n1")
    assert (world.posts, world.asked) == (1, 0)


async def test_already_assigned_to_the_same_node_is_accepted() -> None:
    world = World(reads=[BOUND])
    assert await world.bind(conflict('pod p is already assigned to node "n1"')) == BindAccepted("u1", "n1")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(403, "Forbidden", "no"), BindRefusal.FORBIDDEN),
        (status(400, "BadRequest", "no"), BindRefusal.INVALID),
        (status(422, "Invalid", "no"), BindRefusal.INVALID),
        (status(429, "TooManyRequests", "no"), BindRefusal.UNAVAILABLE),
    ],
)
async def test_rejected_binding_needs_no_read_of_the_pod(answer: Answer, expected: BindRefusal) -> None:
    world = World()
    assert refusal(await world.bind(answer)) is expected
    assert (world.posts, world.asked) == (1, 0)


UNCLEAR = (
    conflict('pod p is already assigned to node "n2"'),
    conflict("Precondition failed: UID in precondition: u1, UID in object meta: u9"),
    conflict("pod p is being deleted, cannot be assigned to a host"),
    conflict("pod p has non-empty .spec.schedulingGates"),
    status(404, "NotFound", 'pods "p" not found'),
    status(500, "InternalError", "failed calling webhook"),
    status(503, "ServiceUnavailable", "etcd is away"),
)
"""Answers of an API server, each of which a webhook can send too."""


@pytest.mark.parametrize("answer", UNCLEAR)
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, BindRefusal.GONE),
        (a_pod("p", uid="other"), BindRefusal.GONE),
        (a_pod("p", uid="u1", node="n2"), BindRefusal.TAKEN),
        (a_pod("p", uid="u1", terminating=True), BindRefusal.HELD),
        (FREE, BindRefusal.UNAVAILABLE),
    ],
)
async def test_only_a_read_ends_the_placing_of_a_pod(answer: Answer, found: Pod | None, expected: BindRefusal) -> None:
    world = World(reads=[found])
    assert refusal(await world.bind(answer)) is expected
    assert (world.posts, world.asked, world.waits.seconds) == (1, 1, [])


@pytest.mark.parametrize(("status_code", "told"), [(404, "no such tenant"), (409, "not now"), (500, "webhook is down")])
async def test_refusal_tells_what_the_server_answered(status_code: int, told: str) -> None:
    outcome = await World(reads=[FREE]).bind(status(status_code, "Reason", told))
    assert outcome == BindRefused("u1", "n1", BindRefusal.UNAVAILABLE, told)


async def test_refused_binding_of_a_pod_that_the_watch_shows_gone_needs_no_read() -> None:
    world = World()

    async def late(writer: asyncio.StreamWriter) -> None:
        world.engine.settled.add("u1")
        await status(404, "NotFound", 'pods "p" not found')(writer)

    assert refusal(await world.bind(late)) is BindRefusal.STALE
    assert world.asked == 0


async def test_binding_that_stays_without_an_answer_tells_so_when_it_is_too_old() -> None:
    world = World(reads=[UnreachableError("down")] * 5 + [FREE])
    outcome = await world.bind(hang)
    assert isinstance(outcome, BindRefused)
    assert (outcome.refusal, outcome.message) == (BindRefusal.UNAVAILABLE, "no answer within 0.25 s")


@pytest.mark.parametrize("lost", [hang, slam], ids=["timeout", "cut"])
async def test_lost_answer_of_a_bind_that_took_effect_is_accepted_after_reading(lost: Answer) -> None:
    world = World(reads=[BOUND])
    assert await world.bind(lost) == BindAccepted("u1", "n1")
    assert (world.posts, world.asked) == (1, 1)


async def test_lost_answer_of_a_bind_that_took_no_effect_is_sent_again() -> None:
    world = World(reads=[FREE])
    assert await world.bind(slam, reply(201)) == BindAccepted("u1", "n1")
    assert (world.posts, world.asked) == (2, 1)


async def test_pod_is_read_until_the_outcome_is_known() -> None:
    outage = UnreachableError("down")
    world = World(reads=[outage, RefusedError(503, "x", "y"), outage, BOUND])
    assert await world.bind(slam) == BindAccepted("u1", "n1")
    assert world.asked == 4


async def test_unknown_outcome_of_a_pod_that_is_gone_is_gone() -> None:
    assert refusal(await World(reads=[None]).bind(slam)) is BindRefusal.GONE
    assert refusal(await World(reads=[a_pod("p", uid="other", node="n1")]).bind(slam)) is BindRefusal.GONE


async def test_unknown_outcome_of_a_pod_on_another_node_is_taken() -> None:
    assert refusal(await World(reads=[a_pod("p", uid="u1", node="n2")]).bind(slam)) is BindRefusal.TAKEN


async def test_lost_answers_are_followed_by_growing_waits_and_refused_only_after_a_read() -> None:
    world = World(reads=[FREE] * 5)
    outcome = await world.bind(*[slam] * 5)
    assert refusal(outcome) is BindRefusal.UNAVAILABLE
    assert (world.posts, world.asked) == (5, 5)
    assert world.waits.seconds == [pytest.approx(s) for s in (1.2, 2.4, 4.8, 9.6, 19.2)]


async def test_error_of_the_server_may_hide_a_success() -> None:
    assert await World(reads=[BOUND]).bind(status(500)) == BindAccepted("u1", "n1")


async def test_overloaded_server_pauses_every_task() -> None:
    world = World()
    tired = reply(429, b"Too many requests, please try again later.", {"Retry-After": "7"})
    world.script.on("post", PATH, tired)
    world.script.always["post", PATH] = lambda _: reply(201)
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(BIND)
        await binder.work_queue.wait_finished()
    assert world.waits.seconds == [pytest.approx(8.0)]
    assert world.outcomes == [BindAccepted("u1", "n1")] * 2
    assert world.posts == 3


async def test_answer_that_asks_to_wait_with_one_binding_delays_no_other() -> None:
    world = World()
    later = status(429, "TooManyRequests", "not now", headers={"Retry-After": "20"})
    world.script.on("post", PATH, later)
    world.script.always["post", PATH] = lambda _: reply(201)
    async with world.running(in_flight=1) as binder:
        binder.submit(BIND)
        binder.submit(BIND)
        await binder.work_queue.wait_finished()
    assert world.waits.seconds == []
    assert world.outcomes == [
        BindRefused("u1", "n1", BindRefusal.UNAVAILABLE, "not now", 20.0),
        BindAccepted("u1", "n1"),
    ]


async def test_refused_credentials_are_read_again_and_the_binding_is_sent_again() -> None:
    world = World()
    world.script.on("post", PATH, status(401, "Unauthorized"), status(401, "Unauthorized"), reply(201))
    tokens = iter([b"Bearer old", b"Bearer new", b"Bearer new", b"Bearer newer"])

    class Source:
        async def read(self, *, refused: bool) -> Credential:
            return Credential(next(tokens))

    async with serving(world.script) as server:
        server.credential_source = Source()
        connections = ConnectionPool(server, 1)
        timing = world.waits.timing()
        binder = Binder(connections, world.read, timing, world.failed, in_flight=1, engine=world.engine)
        task = asyncio.create_task(binder.run(lambda _, outcome, __: world.outcomes.append(outcome)))
        binder.submit(BIND)
        await until(lambda: world.outcomes)
        task.cancel()
        await asyncio.wait([task])
        await connections.close()
    assert world.outcomes == [BindAccepted("u1", "n1")]
    assert [r.headers["authorization"] for r in world.script.requests] == ["Bearer old", "Bearer new", "Bearer new"]
    assert len(world.waits.seconds) == 1


async def test_lower_limit_of_bindings_in_flight_lets_fewer_wait() -> None:
    world, release = late_server()
    async with world.running(in_flight=2) as binder:
        for _ in range(2 + QUEUED_PER_IN_FLIGHT + 1):
            binder.submit(BIND)
        await until(lambda: binder.work_queue.waiting == QUEUED_PER_IN_FLIGHT + 1)
        await binder.work_queue.wait_for_room(BIND.pool)
        binder.set_in_flight_max(1)
        await finds_no_room(binder, release)


async def test_as_many_bindings_as_the_limit_are_in_flight_before_the_first_answer() -> None:
    world, _ = late_server()
    async with world.running(in_flight=32) as binder:
        for _ in range(100):
            binder.submit(BIND)
        for _ in range(10):
            await asyncio.sleep(0)
        assert binder.work_queue.waiting == 100 - 32


async def test_pool_whose_bindings_get_no_answer_delays_no_other_pool() -> None:
    world = World(answer_seconds=60.0)
    world.script.always["post", PATH] = lambda _: hang
    world.script.always["post", PATH.replace("/p/", "/quiet/")] = lambda _: reply(201)
    async with world.running(in_flight=32) as binder:
        for number in range(300):
            binder.submit(replace(BIND, pod=a_pod("p", uid=f"c{number}")))
        await until(lambda: world.posts == 32)
        binder.submit(replace(BIND, pod=a_pod("quiet", uid="quiet"), pool="quiet"))
        await until(lambda: world.outcomes)
        assert world.outcomes == [BindAccepted("quiet", "n1")]
        assert binder.unanswered == 32


async def test_overload_that_one_pool_is_told_of_delays_no_other_pool() -> None:
    world = World()
    world.script.always["post", PATH] = lambda _: reply(429, b"Too many requests.", {"Retry-After": "20"})
    world.script.always["post", PATH.replace("/p/", "/quiet/")] = lambda _: reply(201)
    world.waits.hold()
    async with world.running(in_flight=32) as binder:
        for number in range(3):
            binder.submit(replace(BIND, pod=a_pod("p", uid=f"c{number}")))
        await until(lambda: world.waits.held == 3)
        binder.submit(replace(BIND, pod=a_pod("quiet", uid="quiet"), pool="quiet"))
        await until(lambda: world.outcomes)
    assert world.outcomes == [BindAccepted("quiet", "n1")]


async def test_lower_limit_holds_for_writers_that_have_waited_all_the_time() -> None:
    world, release = late_server()
    async with world.running(in_flight=32) as binder:
        await asyncio.sleep(0)
        binder.set_in_flight_max(1)
        for number in range(9):
            binder.submit(replace(BIND, pod=a_pod("p", uid=f"c{number}")))
        await until(lambda: world.posts)
        await settled()
        assert (world.posts, binder.unanswered) == (1, 1)
        release.set()
        await binder.work_queue.wait_finished()


async def finds_no_room(binder: Binder, release: asyncio.Event) -> None:
    """Check that the pool has no room until the server is released."""
    blocked = asyncio.create_task(binder.work_queue.wait_for_room(BIND.pool))
    await settled()
    assert not blocked.done()
    release.set()
    await blocked
    await binder.work_queue.wait_finished()


async def test_exception_in_a_read_costs_another_read_and_not_the_binder() -> None:
    bugs: list[str] = []
    world = World(reads=[RuntimeError("a bug"), BOUND], failed=lambda job, error: bugs.append(f"{job}: {error}"))
    assert await world.bind(status(500, "InternalError", "oops")) == BindAccepted("u1", "n1")
    assert bugs == ["binder: a bug"]


async def test_exception_in_a_send_leads_to_a_read_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(*_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(connection_pool.ConnectionPool, "send", send)
    bugs: list[str] = []
    world = World(reads=[BOUND], failed=lambda job, error: bugs.append(f"{job}: {error}"))
    assert await world.bind() == BindAccepted("u1", "n1")
    assert bugs == ["binder: a bug"]
