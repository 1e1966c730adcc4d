import pytest

from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.report import report_queue
from aischeduler.kube.report import reporter as module
from aischeduler.kube.report.reporter import REFUSED_RETRY_SECONDS
from aischeduler.model.actions import CreatePool, Evict, EvictionCause, Nominate, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod
from tests.kube import scripted_server
from tests.kube.reporter_world import EVENTS, POD, POOLS, STATUS, World, a_bind, waiting, written
from tests.kube.scripted_server import reply, settled, slam, status, until


async def test_bound_pod_gets_a_scheduled_event() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        await written(reports)
        assert reports.counts.written == 1
    (event,) = world.events
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Scheduled", "Binding")
    assert event["note"] == "Successfully assigned default/p to n1"
    assert event["eventTime"] == "2026-01-02T03:04:05.250000Z"
    assert event["regarding"]["uid"] == "u1"


async def test_waiting_pod_gets_an_event_and_a_condition() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        reports.report_waiting(waiting("0/1 nodes are available: 1 Insufficient cpu."))
        await written(reports)
    (event,) = world.events
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    (patch,) = world.script.asked("patch")
    assert patch.headers["content-type"] == "application/strategic-merge-patch+json"
    assert patch.json["metadata"] == {"uid": "u-p"}
    assert patch.json["status"]["conditions"][0]["message"] == "pool cpu: 0/1 nodes are available: 1 Insufficient cpu."


async def test_same_message_is_written_once_and_another_message_again() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        for message in ("a", "a", "b", "b"):
            reports.report_waiting(waiting(message))
            await written(reports)
    assert [event["note"] for event in world.events] == ["a", "b"]
    assert len(world.script.asked("patch")) == 2


async def test_same_message_is_written_again_after_a_while() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        reports.report_waiting(waiting("a"))
        await written(reports)
        world.waits.now += module.REASON_REPEAT_SECONDS + 1
        reports.report_waiting(waiting("a"))
        await written(reports)
    assert len(world.events) == 2
    assert len(world.script.asked("patch")) == 1


async def test_condition_and_nomination_of_a_pod_that_is_being_bound_are_not_written() -> None:
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        reports.report_waiting(waiting("no room"))
        reports.report_nominated(Nominate(a_pod("p", uid="u-p"), "n1", "cpu", "d"))
        reports.withdraw_waiting(a_pod("p", uid="u-p"))
        world.binds_done.set()
        await written(reports)
    assert [event["reason"] for event in world.events] == ["FailedScheduling"]
    assert world.script.asked("patch") == []


async def test_reports_are_written_after_the_waiting_bindings() -> None:
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        for number in range(400):
            reports.report_scheduled(a_bind(a_pod(f"p{number}")))
        await settled()
        assert world.script.requests == []
        world.binds_done.set()
        await written(reports)
    assert len({event["regarding"]["name"] for event in world.events}) == 400
    assert len({event["metadata"]["name"] for event in world.events}) == 400


async def test_event_waits_for_bindings_only_for_a_limited_time() -> None:
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        await settled()
        assert world.script.requests == []
        world.waits.now += report_queue.YIELD_SECONDS
        reports.report_scheduled(a_bind(a_pod("younger")))
        await until(lambda: len(world.events) == 1)
        await settled()
    assert [event["regarding"]["name"] for event in world.events] == ["p"]


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_refused_events_are_dropped_and_counted(code: int) -> None:
    world = World()
    world.script.on("post", EVENTS, status(code, "No"), reply(201))
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        reports.report_scheduled(a_bind(a_pod("q")))
        await written(reports)
        assert (reports.counts.refused, reports.counts.written) == (1, 1)
    assert len(world.events) == 2


async def test_overloaded_server_is_waited_for() -> None:
    world = World()
    world.script.on("post", EVENTS, status(429, "TooManyRequests", headers={"Retry-After": "4"}), reply(201))
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        await written(reports)
        assert reports.counts.written == 1
        assert not world.timing.throttle.active, "an answer to a report pauses no Binding"
    assert world.waits.seconds == [4.0]


async def test_pause_for_bindings_pauses_reports_too() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        world.timing.throttle.hold_for(4.0)
        reports.report_scheduled(a_bind(POD))
        await written(reports)
    assert world.waits.seconds == [pytest.approx(5.0)]


async def test_event_that_cannot_be_delivered_is_dropped_after_three_tries() -> None:
    world = World()
    world.script.always["post", EVENTS] = lambda _: slam
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        await written(reports)
        assert (reports.counts.dropped, reports.counts.written) == (1, 0)
    assert len(world.events) == 3


async def test_warning_is_written_once_per_object() -> None:
    world = World().accept_all()
    why = "status.allocatable.cpu: '1.5.3' is not a quantity"
    warning = Warn(ObjectRef("Node", "n1", "u-n"), EventReason.UNREADABLE, why)
    async with world.running() as reports:
        reports.report_warning(warning)
        await written(reports)
        reports.report_warning(warning)
        await written(reports)
    (event,) = world.events
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n"}


async def test_evicted_pod_gets_a_preempted_event() -> None:
    world = World().accept_all()
    evict = Evict(POD, "n1", "cpu", "cpu", EvictionCause.PREEMPTED, a_pod("owner", uid="u2"), "d")
    async with world.running() as reports:
        reports.report_evicted(evict)
        await written(reports)
    (event,) = world.events
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Preempted", "Preempting")
    assert event["regarding"]["uid"] == "u1"
    assert event["note"] == evict.message


async def test_warning_on_a_budget_names_its_api() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        about = ObjectRef("PodDisruptionBudget", "b", "u-b", "default")
        reports.report_warning(Warn(about, EventReason.UNREADABLE, "spec.selector"))
        await written(reports)
    (event,) = world.events
    assert event["regarding"]["apiVersion"] == "policy/v1"


@pytest.mark.expects_errors("job failed job=reporter")
async def test_exception_costs_one_report_and_not_those_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    world, send = World().accept_all(), ConnectionPool.send

    async def send_or_fail(
        connections: ConnectionPool, method: bytes, path: bytes, body: bytes, content_type: bytes
    ) -> Answer:
        if b"no room" in body:
            raise TypeError("a bug")
        return await send(connections, method, path, body, content_type)

    monkeypatch.setattr(ConnectionPool, "send", send_or_fail)
    async with world.running(bugs=1) as reports:
        reports.report_warning(Warn(ObjectRef("Pod", "p", "u1", "default"), EventReason.UNREADABLE, "no room"))
        reports.report_scheduled(a_bind(POD))
        await written(reports)
    assert [(line["job"], str(line["exc_info"])) for line in world.logged("job failed")] == [("reporter", "a bug")]
    assert [event["reason"] for event in world.events] == ["Scheduled"]
    assert (reports.counts.dropped, reports.counts.written) == (1, 1)


async def test_condition_is_retried_until_it_is_written() -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, *[slam] * 4, status(503, "ServiceUnavailable"), reply(200))
    async with world.running() as reports:
        reports.report_waiting(waiting("no room"))
        await written(reports)
        assert reports.counts.dropped == 0
    assert len(world.script.asked("patch")) == 6


async def test_older_nomination_is_not_written_after_a_newer_one() -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, slam)
    async with world.running() as reports:
        world.waits.hold()
        reports.report_nominated(Nominate(POD, "n1", "cpu", "d"))
        await until(lambda: world.waits.held)
        reports.report_nominated(Nominate(POD, "", "cpu", "d"))
        world.waits.release()
        await written(reports)
    patches = world.script.asked("patch")
    assert {patch.headers["content-type"] for patch in patches} == {"application/merge-patch+json"}
    assert [patch.json for patch in patches] == [
        {"metadata": {"uid": "u1"}, "status": {"nominatedNodeName": node}} for node in ("n1", None)
    ]


async def test_every_pod_of_a_burst_that_starts_to_wait_gets_its_report() -> None:
    world = World()
    world.binds_done.clear()
    async with world.running() as reports:
        for number in range(20_000):
            reports.report_waiting(waiting("no room", pod=f"p{number}"))
        assert reports.counts.dropped == 0


@pytest.mark.parametrize("code", [400, 403, 409, 422])
async def test_refused_status_of_a_pod_is_told_once_and_written_later(code: int) -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, *[status(code, "No", "the policy says no")] * 2)
    async with world.running() as reports:
        reports.report_nominated(Nominate(POD, "n1", "cpu", "d"))
        await until(lambda: reports.counts.written == 1)
        assert reports.counts.refused == 2
    assert len(world.script.asked("patch")) == 3
    assert [seconds for seconds in world.waits.seconds if seconds > 1] == [REFUSED_RETRY_SECONDS] * 2
    assert len(world.logged("write refused")) == 1


async def test_newer_status_of_a_pod_whose_status_was_refused_waits_for_the_next_try() -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, *[status(422, "Invalid", "no")] * 2)
    world.waits.hold()
    async with world.running() as reports:
        for number in range(20):
            reports.report_nominated(Nominate(POD, f"n{number}", "cpu", "d"))
            reports.report_waiting(waiting(f"no room, try {number}"))
            await settled()
        assert (len(world.script.asked("patch")), reports.counts.refused) == (2, 2)
        world.waits.release()
        await until(lambda: reports.counts.written == 2 + len(world.events))
    texts = [request.json["status"] for request in world.script.asked("patch")[2:]]
    assert {"nominatedNodeName": "n19"} in texts
    assert [text["conditions"][0]["message"] for text in texts if "conditions" in text] == ["no room, try 19"]


@pytest.mark.parametrize("answer", [status(404, "NotFound"), status(409, "Conflict", "the UID in the precondition")])
async def test_refused_status_of_a_pod_that_is_gone_is_not_written_later(answer: scripted_server.Answer) -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, answer)
    async with world.running() as reports:
        reports.report_waiting(waiting("no room"))
        await written(reports)
        reports.report_waiting(waiting("no room"))  # it exists after all
        await written(reports)
    assert len(world.script.asked("patch")) == 2
    assert REFUSED_RETRY_SECONDS not in world.waits.seconds


async def test_reason_that_a_pod_is_told_again_after_a_refused_binding_is_written_once() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        for _ in range(4):
            reports.report_waiting(waiting("binding to node n1 failed: no"))
            await written(reports)
            reports.withdraw_waiting(a_pod("p", uid="u-p"))
    assert (len(world.script.asked("patch")), len(world.events)) == (1, 1)


async def test_default_pool_whose_creation_is_refused_is_created_later() -> None:
    world = World()
    world.script.on("post", POOLS, status(403, "Forbidden", "no"), reply(201))
    async with world.running() as reports:
        reports.create_pool(CreatePool("default"))
        await until(lambda: reports.counts.written == 1)
    assert len(world.script.asked("post", POOLS)) == 2


async def test_report_that_was_under_way_when_the_reporter_ended_is_written_by_the_next_run() -> None:
    world = World().accept_all()
    world.script.on("patch", STATUS, scripted_server.hang)
    async with world.running() as reports:
        reports.report_nominated(Nominate(POD, "n1", "cpu", "d"))
        await until(lambda: world.script.asked("patch"))
        await world.run_again(reports)
        await until(lambda: reports.counts.written == 1)
    assert len(world.script.asked("patch")) == 2
