import asyncio

import pytest

from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.write import evictor as evictor_module
from aischeduler.kube.write import resizer as resizer_module
from aischeduler.model.actions import (
    Bind,
    CreatePool,
    Evict,
    EvictionCause,
    LogLoanChange,
    LogPoolEdit,
    Nominate,
    ObjectRef,
    ReportWaiting,
    ResizeReason,
    ResumeJob,
    Warn,
)
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    EvictRefusal,
    EvictRefused,
    ResizeRefused,
)
from aischeduler.model.workload import JobRef
from tests.build import a_pod, replace
from tests.kube.executor_world import BIND, EVENTS, EVICT, EVICT_LINE, PATH, POD, POOLS, REFUSED, World
from tests.kube.pool_reports import a_report
from tests.kube.resizes import a_resize
from tests.kube.scripted_server import reply, settled, status, until

JOB = JobRef("Job", "default", "train", "uid-job")
JOB_PATH = "/apis/batch/v1/namespaces/default/jobs/train"
JOB_LINE = {"kind": "Job", "name": "train", "namespace": "default", "uid": "uid-job"}


async def test_accepted_bind_is_logged_and_reported_and_emits_no_event() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", reply(201))
    async with world.running() as executor:
        executor.perform([BIND])
        await until(lambda: world.script.asked("post", EVENTS))
    assert world.events == []
    assert world.logged() == [
        {
            "level": "info",
            "event": "bind",
            "pod": "p",
            "namespace": "default",
            "uid": "uid-p",
            "pool": "cpu",
            "home_pool": "home",
            "node": "n1",
            "decision": "d-1",
            "borrowed": True,
            "reason": "best of 12 nodes that fit, lent by pool cpu",
        }
    ]
    assert [(type(action), outcome) for action, outcome, _ in world.observed] == [(Bind, "Accepted")]


async def test_bind_in_the_home_pool_is_no_loan() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", reply(201))
    async with world.running() as executor:
        executor.perform([Bind(POD, "n1", "cpu", "cpu", "d-1", 12)])
        await until(lambda: world.observed)
    (line,) = world.logged()
    assert "borrowed" not in line
    assert line["reason"] == "best of 12 nodes that fit"


async def test_victim_gets_condition_deletion_event_and_one_log_line() -> None:
    world = World()
    world.script.on("delete", PATH, reply(200))
    async with world.running() as executor:
        executor.perform([EVICT])
        await until(lambda: world.script.asked("post", EVENTS))
    writes = [request.method for request in world.script.requests]
    assert writes == ["PATCH", "DELETE", "POST"]
    (event,) = world.script.asked("post", EVENTS)
    assert (event.json["type"], event.json["reason"], event.json["action"]) == ("Normal", "Preempted", "Preempting")
    assert event.json["regarding"]["uid"] == "uid-p"
    assert event.json["note"] == ("Preempted by team-a/owner (uid-owner) on node n1: pool gpu reclaimed lent room")
    assert world.events == []
    assert world.logged() == [{"level": "info", "event": "evict", **EVICT_LINE, "reason": EVICT.message}]
    assert [(type(action), outcome) for action, outcome, _ in world.observed] == [(Evict, "Evicted")]


async def test_suspension_of_a_job_has_one_log_line_and_one_event_and_no_pod_is_deleted() -> None:
    world = World()
    world.script.on("patch", JOB_PATH, reply(200))
    async with world.running() as executor:
        executor.perform([replace(EVICT, suspends=JOB)])
        await until(lambda: len(world.script.asked("post", EVENTS)) > 1)
    assert [request.method for request in world.script.requests if request.method != "POST"] == ["PATCH", "PATCH"]
    notes = {event.json["regarding"]["kind"]: event.json["note"] for event in world.script.asked("post", EVENTS)}
    suspended = f"Suspended to evict all its pods. It is resumed once they are gone. p: {EVICT.message}"
    assert notes == {"Job": suspended, "Pod": EVICT.message}
    assert world.logged()[1] == {
        "level": "info",
        "event": "suspend",
        **JOB_LINE,
        "decision": "d-7",
        "reason": "all its pods are evicted; it is resumed once they are gone",
    }


async def test_victim_of_a_job_that_cannot_be_aborted_says_so_in_its_event() -> None:
    world, why = World(), "no right to\npatch jobs" + "!" * 2000
    world.script.on("patch", JOB_PATH, status(403, "Forbidden", why))
    world.script.on("delete", PATH, reply(200))
    async with world.running() as executor:
        executor.perform([replace(EVICT, suspends=replace(JOB, aborts=True))])
        await until(lambda: world.script.asked("post", EVENTS))
    note = world.script.asked("post", EVENTS)[0].json["note"]
    said = ". The Job train could not be suspended, and may start again: no right to patch jobs!!"
    assert note.startswith(EVICT.message + said)
    assert len(note) < 1024
    line = world.logged()[1]
    assert (line["level"], line["event"], line["name"]) == ("warning", "suspend refused", "train")


async def test_job_is_resumed_only_where_it_has_the_mark_of_the_scheduler() -> None:
    world = World()
    world.script.on("patch", JOB_PATH, status(503), reply(200))
    async with world.running() as executor:
        executor.perform([ResumeJob(JOB)])
        await until(world.logged)
    sent, again = world.script.requests
    assert sent.body == again.body
    assert sent.headers["content-type"] == "application/json-patch+json"
    assert [(change["op"], change["path"]) for change in sent.json] == [
        ("test", "/metadata/uid"),
        ("test", "/metadata/annotations/resource.aibee.cn~1suspended-for-eviction"),
        ("remove", "/metadata/annotations/resource.aibee.cn~1suspended-for-eviction"),
        ("replace", "/spec/suspend"),
    ]
    (line,) = world.logged()
    assert line | {"reason": ""} == {"level": "info", "event": "resume", **JOB_LINE, "reason": ""}


@pytest.mark.parametrize("code", [403, 404, 409, 422])
async def test_job_that_may_not_be_resumed_is_logged_and_left_to_the_engine(code: int) -> None:
    world = World()
    world.script.on("patch", JOB_PATH, status(code, "Refused", "no"), reply(200))
    async with world.running() as executor:
        executor.perform([ResumeJob(JOB)])
        await until(world.logged)
        await settled()
    assert len(world.script.requests) == 1
    (line,) = world.logged()
    assert (line["event"], line["write"], line["status"]) == ("write refused", "resumed job", code)


async def test_loan_that_ends_by_the_spec_has_no_beneficiary() -> None:
    world = World()
    world.script.on("delete", PATH, reply(200))
    async with world.running() as executor:
        executor.perform([Evict(POD, "n1", "gpu", "cpu", EvictionCause.LOAN_ENDED, None, "d-8")])
        await until(lambda: world.script.asked("post", EVENTS))
    (line,) = world.logged()
    assert "beneficiary" not in line
    assert line["cause"] == "LoanEnded"


async def test_refused_eviction_emits_an_event_and_has_a_second_line() -> None:
    world = World()
    world.script.on("delete", PATH, status(403, "Forbidden", "no right to delete pods"))
    async with world.running() as executor:
        executor.perform([EVICT])
        await until(lambda: world.events)
    assert world.events == [EvictRefused("uid-p", EvictRefusal.FORBIDDEN, "no right to delete pods")]
    line = {"level": "warning", "event": "evict refused", **EVICT_LINE}
    assert world.logged()[1] == line | {"refusal": "Forbidden", "reason": "no right to delete pods"}
    assert world.script.asked("post", EVENTS) == []


async def test_victim_that_is_gone_emits_no_event() -> None:
    world = World()
    world.script.on("delete", PATH, status(404, "NotFound", 'pods "p" not found'))
    async with world.running() as executor:
        executor.perform([EVICT])
        await until(lambda: world.observed)
    assert world.events == []
    assert [line["event"] for line in world.logged()] == ["evict"]
    assert [(type(action), outcome) for action, outcome, _ in world.observed] == [(Evict, "Left")]


async def test_eviction_beyond_the_limit_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor_module, "WAITING_MAX", 0)
    world = World()
    async with world.running() as executor:
        executor.perform([EVICT])
    assert world.events == [EvictRefused("uid-p", EvictRefusal.UNAVAILABLE, "too many evictions are queued")]
    assert world.script.requests == []


@pytest.mark.parametrize(
    ("action", "method", "path"),
    [(BIND, "post", f"{PATH}/binding"), (EVICT, "patch", f"{PATH}/status")],
    ids=["bind", "evict"],
)
async def test_reports_wait_for_binds_and_evictions(action: Bind | Evict, method: str, path: str) -> None:
    world, release = World(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await status(404, "NotFound")(writer)

    world.script.on("post", POOLS, reply(201))
    async with world.running(limit=64) as executor:
        world.script.always[method, path] = lambda _: late
        executor.perform([*[action] * (1 + evictor_module.EVICTIONS_IN_FLIGHT), CreatePool("default")])
        await until(lambda: world.script.asked(method, path))
        await settled()
        assert world.script.asked("post", POOLS) == []
        release.set()
        await until(lambda: world.script.asked("post", POOLS))


async def test_nomination_and_new_pool_are_written_and_logged() -> None:
    world = World()
    world.script.on("post", POOLS, reply(201))
    async with world.running() as executor:
        executor.perform([Nominate(POD, "n1", "cpu", "d-3"), CreatePool("default")])
        assert [line["event"] for line in world.logged()] == ["nominated"]
        await until(lambda: len(world.logged()) == 2 and world.script.asked("patch", PATH))
    assert world.script.asked("patch", PATH)[0].json["status"] == {"nominatedNodeName": "n1"}
    assert world.script.asked("post", POOLS)[0].json["metadata"] == {"name": "default"}
    nominated, created = world.logged()
    assert nominated == {
        "level": "info",
        "event": "nominated",
        "pod": "p",
        "namespace": "default",
        "uid": "uid-p",
        "pool": "cpu",
        "decision": "d-3",
        "node": "n1",
        "reason": "the node holds room for the pod",
    }
    assert (created["event"], created["pool"]) == ("pool created", "default")


async def test_edits_and_the_loans_that_they_change_are_logged() -> None:
    world, pod = World(), a_pod("p", uid="uid-p", node="n1")
    async with world.running() as executor:
        executor.perform(
            [
                LogPoolEdit("gpu", ("disableSharing: false -> true", "nodeSelector changed")),
                LogLoanChange("gpu", "cpu", (pod,), 1),
                LogLoanChange("cpu", "cpu", (), 8000),
            ]
        )
    edited, loan, home = world.logged()
    level = {"level": "info"}
    assert edited == level | {
        "event": "pool edited",
        "pool": "gpu",
        "reason": "disableSharing: false -> true, nodeSelector changed",
    }
    assert loan == level | {
        "event": "loan started",
        "pod": "p",
        "namespace": "default",
        "uid": "uid-p",
        "pool": "gpu",
        "home_pool": "cpu",
        "node": "n1",
        "reason": "after an edit the node belongs to another pool than the pod",
    }
    assert home == level | {
        "event": "loan ended",
        "pool": "cpu",
        "home_pool": "cpu",
        "pods": 8000,
        "reason": "after an edit the node belongs to the pod's own pool",
    }


async def test_only_changed_conditions_are_logged() -> None:
    world = World()
    async with world.running() as executor:
        for _ in range(3):
            executor.perform([a_report()])
        executor.perform([a_report(conditions=(REFUSED,))])
    assert [line["status"] for line in world.logged()] == [True, False]


async def test_refused_bind_emits_an_event_and_is_logged_and_not_reported_as_scheduled() -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", status(422, "Invalid", "the policy says no"))
    async with world.running() as executor:
        executor.perform([BIND])
        await until(lambda: world.events)
    assert world.events == [BindRefused("uid-p", "n1", BindRefusal.INVALID, "the policy says no")]
    assert [(line["event"], line["level"]) for line in world.logged()] == [
        ("bind", "info"),
        ("bind refused", "warning"),
    ]
    assert world.script.asked("post", EVENTS) == []


async def test_no_line_is_built_below_the_level() -> None:
    world = World(level=30)
    world.script.on("post", f"{PATH}/binding", reply(201))
    async with world.running() as executor:
        executor.perform([BIND, ReportWaiting(POD, "cpu", "cpu", "no room", "d-2")])
        await until(lambda: world.observed)
    assert world.logged() == []


async def test_waiting_warning_and_pool_are_reported_and_logged() -> None:
    world = World()
    async with world.running() as executor:
        executor.perform(
            [
                ReportWaiting(POD, "cpu", "cpu", "0/1 nodes are available: 1 Insufficient cpu.", "d-2"),
                Warn(ObjectRef("Pod", "p", "uid-p", "default"), EventReason.UNKNOWN_POOL, "There is no pool 'x'."),
                a_report("cpu", conditions=(REFUSED,)),
            ]
        )
        await until(lambda: len(world.script.asked("post", EVENTS)) == 2)
        await until(lambda: world.script.asked("get", f"{POOLS}/cpu"))
    assert [line["event"] for line in world.logged()] == ["wait", "warned", "pool condition"]
    assert world.logged()[0]["reason"] == "pool cpu: 0/1 nodes are available: 1 Insufficient cpu."


async def test_exception_in_one_action_costs_no_pod_its_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.script.on("post", f"{PATH}/binding", reply(201))

    def fail(_reports: Reporter, _about: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(Reporter, "report_waiting", fail)
    monkeypatch.setattr(Reporter, "withdraw_waiting", fail)
    async with world.running() as executor:
        executor.perform([ReportWaiting(POD, "cpu", "cpu", "no room", "d-2"), BIND])
        await until(lambda: world.observed)
    assert [(type(action), outcome) for action, outcome, _ in world.observed] == [(Bind, "Accepted")]
    assert world.bugs == ["perform ReportWaiting", "perform Bind"]


RESIZE_LINE = {
    "kind": "Job",
    "name": "train",
    "namespace": "team",
    "uid": "uid-train",
    "from": 4,
    "to": 6,
    "reason": "Grown",
    "decision": "d-1",
}
RESIZE_PATH = "/apis/batch/v1/namespaces/team/jobs/train"
TEAM_EVENTS = EVENTS.replace("default", "team")


async def test_written_size_has_one_log_line_and_an_event() -> None:
    world = World()
    world.script.on("patch", RESIZE_PATH, reply(200))
    world.script.on("post", TEAM_EVENTS, reply(201))
    async with world.running() as executor:
        executor.perform([a_resize()])
        await until(lambda: world.script.asked("post"))
    assert world.events == []
    line = {"level": "info", "event": "resized", **RESIZE_LINE, "message": "there is room for 2 more"}
    assert world.logged() == [line]
    (event,) = [request.json for request in world.script.asked("post")]
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Resized", "Resizing")
    assert event["note"] == "Resized from 4 to 6 instances: there is room for 2 more"
    about = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "namespace": "team"}
    assert event["regarding"] == about


@pytest.mark.parametrize(("reason", "lines"), [(ResizeReason.WRITTEN_BY_ANOTHER, 1), (ResizeReason.NOTED, 0)])
async def test_size_that_stays_has_no_event_and_what_is_noted_no_line(reason: ResizeReason, lines: int) -> None:
    world = World()
    world.script.on("patch", RESIZE_PATH, reply(200))
    async with world.running() as executor:
        executor.perform([a_resize(reason=reason, before=6)])
        await until(lambda: world.script.requests)
        await settled()
    assert not world.script.asked("post")
    assert len(world.logged()) == lines


@pytest.mark.parametrize(("code", "changed", "level"), [(403, False, "warning"), (409, True, "info")])
async def test_refused_size_is_told_to_the_engine_and_has_a_line(code: int, changed: bool, level: str) -> None:
    world = World()
    world.script.on("patch", RESIZE_PATH, status(code, "Refused", "no right to patch jobs"))
    async with world.running() as executor:
        executor.perform([a_resize()])
        await until(world.logged)
    seconds = 0.0 if changed else 300.0
    told = ResizeRefused("Job", "team", "train", "uid-train", "no right to patch jobs", changed, seconds)
    assert world.events == [told]
    line = {"level": level, "event": "resize refused", **RESIZE_LINE, "message": "no right to patch jobs"}
    assert world.logged() == [line]


async def test_size_that_finds_the_queue_full_is_refused_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(resizer_module, "WAITING_MAX", 0)
    async with world.running() as executor:
        executor.perform([a_resize()])
    told = ResizeRefused("Job", "team", "train", "uid-train", "too many resizes are queued", retry_after_seconds=10.0)
    assert world.events == [told]
