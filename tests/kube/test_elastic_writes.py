"""Sizes of elastic jobs: the requests, the meaning of the answers, and how both are sent and retried."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import OnInternalError
from aischeduler.kube.write import resizer as module
from aischeduler.kube.write.elastic_writes import (
    REFUSED_SECONDS,
    UNANSWERED_SECONDS,
    Resized,
    content_type,
    read_answer,
    resize_patch,
    resize_path,
)
from aischeduler.kube.write.pod_writes import Throttled, Unauthenticated, Unknown
from aischeduler.kube.write.resizer import INTERNAL, Resizer
from aischeduler.model.actions import Resize, ResizeReason
from aischeduler.model.elastic import COMPLETIONS_KEY, RESIZE_REASON_KEY, RESIZED_AT_KEY, SERVICE_KEY, SIZE_KEY
from aischeduler.model.events import ResizeRefused
from tests.kube.resizes import AT, a_resize
from tests.kube.scripted_server import (
    PATIENCE_SECONDS,
    Answer,
    Script,
    Waits,
    broken,
    hang,
    reply,
    serving,
    settled,
    slam,
    status,
    until,
)
from tests.objects import Json

NOTED = {SIZE_KEY: "6", SERVICE_KEY: f"1200 {AT}"}
GROWN = NOTED | {RESIZED_AT_KEY: AT, RESIZE_REASON_KEY: "there is room for 2 more"}
JOB = "/apis/batch/v1/namespaces/team/jobs/train"


def sent(**parts: Any) -> Any:
    return json.loads(resize_patch(a_resize(**parts)))


def refused(message: str = "no", seconds: float = REFUSED_SECONDS, kind: str = "Job") -> ResizeRefused:
    return ResizeRefused(kind, "team", "train", "uid-train", message, retry_after_seconds=seconds)


def changed(message: str = "no", kind: str = "Job") -> ResizeRefused:
    return ResizeRefused(kind, "team", "train", "uid-train", message, changed=True)


@pytest.mark.parametrize(
    ("kind", "path", "size"),
    [
        ("Job", JOB, "parallelism"),
        ("Deployment", "/apis/apps/v1/namespaces/team/deployments/train", "replicas"),
        ("StatefulSet", "/apis/apps/v1/namespaces/team/statefulsets/train", "replicas"),
    ],
)
def test_one_merge_patch_writes_the_size_and_what_is_noted_of_it(kind: str, path: str, size: str) -> None:
    assert resize_path(a_resize(kind)) == path
    assert content_type(a_resize(kind)) == "application/merge-patch+json"
    completions = None if kind == "Job" else False
    assert sent(kind=kind, completions_follow=completions) == {
        "metadata": {"uid": "uid-train", "resourceVersion": "7", "annotations": GROWN},
        "spec": {size: 6},
    }


@pytest.mark.parametrize(
    ("follow", "spec", "note"),
    [
        (True, {"parallelism": 6, "completions": 6}, {COMPLETIONS_KEY: "follow"}),
        (False, {"parallelism": 6}, {COMPLETIONS_KEY: "fixed"}),
        (None, {"parallelism": 6}, {}),
    ],
)
def test_completions_of_a_job_follow_its_size_where_they_are_to(
    follow: bool | None, spec: Json, note: dict[str, str]
) -> None:
    found = sent(completions_follow=follow)
    assert (found["spec"], found["metadata"]["annotations"]) == (spec, GROWN | note)


def test_one_json_patch_writes_the_size_of_a_part_of_a_job_set() -> None:
    action = a_resize("JobSet", part="workers", part_index=2, completions_follow=True)
    assert resize_path(action) == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train"
    assert content_type(action) == "application/json-patch+json"
    uid, version, name, *changes = json.loads(resize_patch(action))
    assert uid == {"op": "replace", "path": "/metadata/uid", "value": "uid-train"}
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert name == {"op": "test", "path": "/spec/replicatedJobs/2/name", "value": "workers"}
    assert {change["op"] for change in changes} == {"add"}
    spec, notes = "/spec/replicatedJobs/2/template/spec", "/metadata/annotations/resource.aibee.cn~1"
    noted = {key.replace("resource.aibee.cn/", notes): text for key, text in GROWN.items()}
    assert {change["path"]: change["value"] for change in changes} == {
        **noted,
        f"{notes}completions": "follow",
        f"{spec}/parallelism": 6,
        f"{spec}/completions": 6,
    }


@pytest.mark.parametrize(
    ("reason", "notes"),
    [
        (ResizeReason.SHRUNK, GROWN),
        (ResizeReason.RECLAIMED, GROWN),
        (ResizeReason.ADOPTED, NOTED | {RESIZE_REASON_KEY: "there is room for 2 more"}),
        (ResizeReason.TAKEN_BACK, NOTED | {RESIZE_REASON_KEY: "there is room for 2 more"}),
        (ResizeReason.NOTED, NOTED),
    ],
)
def test_only_a_resize_writes_its_time_and_what_is_only_noted_has_no_reason(
    reason: ResizeReason, notes: dict[str, str]
) -> None:
    assert sent(reason=reason)["metadata"]["annotations"] == notes


def answered(code: int, message: str = "no", *, kind: str = "Job", causes: tuple[str, ...] = ()) -> Any:
    document = {
        "kind": "Status",
        "code": code,
        "message": message,
        "details": {"causes": [{"reason": c} for c in causes]},
    }
    return read_answer(a_resize(kind), code, None, json.dumps(document).encode())


def test_meaning_of_each_answer() -> None:
    assert answered(200) == Resized()
    assert answered(409) == changed()
    assert answered(404) == changed()
    for code in (400, 403, 405, 413, 415, 422):
        assert answered(code) == refused()
    assert answered(401) == Unauthenticated()
    assert answered(429) == Unknown("no", answered=True)
    assert answered(503) == Unknown("no", answered=True)
    assert read_answer(a_resize(), 429, "3", b"too many requests") == Throttled(3.0)
    assert read_answer(a_resize(), 403, None, b"<html>") == refused("the API server answered 403")


def test_json_patch_that_does_not_fit_the_job_set_finds_it_changed() -> None:
    misfit = "the server rejected our request due to an error in our request"
    assert answered(422, misfit, kind="JobSet") == changed(misfit, "JobSet")
    assert answered(422, misfit) == refused(misfit)
    forbidden = 'admission webhook "vjobset.kb.io" denied the request: field is immutable'
    assert answered(422, forbidden, kind="JobSet") == refused(forbidden, kind="JobSet")
    assert answered(422, misfit, kind="JobSet", causes=("FieldValueInvalid",)) == refused(misfit, kind="JobSet")


@dataclass
class World:
    """A resizer and a scripted server."""

    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    ends: list[Resized | ResizeRefused] = field(default_factory=list)
    failed: OnInternalError = broken

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Resizer]:
        async with serving(self.script) as server:
            connections = ConnectionPool(server, 4, PATIENCE_SECONDS)
            resizer = Resizer(connections, self.waits.timing(), self.failed)
            task = asyncio.create_task(resizer.run(lambda _, outcome: self.ends.append(outcome)))
            try:
                yield resizer
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await connections.close()

    async def ending(self, *answers: Answer, action: Resize | None = None) -> Resized | ResizeRefused:
        """Return the outcome of a resize to which the server answers so."""
        self.script.on("patch", JOB, *answers)
        async with self.running() as resizer:
            assert resizer.submit(action or a_resize())
            await until(lambda: self.ends)
            await settled()
        (outcome,) = self.ends
        return outcome


async def test_size_is_sent_once() -> None:
    world = World()
    assert await world.ending(reply(200)) == Resized()
    (request,) = world.script.requests
    assert request.body == resize_patch(a_resize())
    assert request.headers["content-type"] == "application/merge-patch+json"


@pytest.mark.parametrize("answer", [status(503), status(429), slam, status(401), reply(429)])
async def test_size_without_an_answer_is_sent_again(answer: Answer) -> None:
    world = World()
    assert await world.ending(answer, answer, status(409, "Conflict", "no")) == changed()
    assert len({request.body for request in world.script.requests}) == 1
    assert len(world.script.requests) >= 3
    assert world.waits.seconds


async def test_size_to_which_no_answer_comes_is_refused_for_a_moment() -> None:
    world = World()
    answers = [status(503, "ServiceUnavailable", "no")] * module.TRIES_MAX
    assert await world.ending(*answers) == refused(seconds=UNANSWERED_SECONDS)
    assert len(world.script.requests) == module.TRIES_MAX / module.ERROR_TRIES


@pytest.mark.parametrize("code", [403, 422])
async def test_size_that_may_not_be_written_is_not_sent_again(code: int) -> None:
    world = World()
    assert await world.ending(status(code, "", "no"), reply(200)) == refused()
    assert len(world.script.requests) == 1


async def test_internal_error_costs_one_size() -> None:
    bugs: list[str] = []
    world = World(failed=lambda job, _: bugs.append(job))
    assert await world.ending(action=a_resize(kind="Unknown")) == refused(INTERNAL, UNANSWERED_SECONDS, "Unknown")
    assert bugs == ["resizer"]


async def test_resizer_that_runs_again_refuses_what_it_left_unfinished() -> None:
    world = World()
    world.script.on("patch", JOB, hang)
    async with world.running() as resizer:
        resizer.submit(a_resize())
        await until(lambda: world.script.requests)
    assert not world.ends
    task = asyncio.create_task(resizer.run(lambda _, outcome: world.ends.append(outcome)))
    await until(lambda: world.ends)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert world.ends == [refused(INTERNAL, UNANSWERED_SECONDS)]
    assert resizer.work_queue.unfinished == 0


def test_too_many_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 1)

    async def submitted() -> list[bool]:
        async with serving(Script()) as server:
            resizer = Resizer(ConnectionPool(server, 4), Waits().timing(), broken)
            return [resizer.submit(a_resize()), resizer.submit(a_resize())]

    assert asyncio.run(submitted()) == [True, False]
