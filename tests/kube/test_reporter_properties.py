"""Random reports, answers and times: nothing is lost but by a named limit, nothing is written twice or out of order."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client, refusal
from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import UnreachableError, raise_internal_error
from aischeduler.kube.report import report_queue
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.report.reporter import Reporter
from aischeduler.model.actions import Bind, Nominate, ObjectRef, ReportWaiting, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod
from tests.kube.pool_reports import a_report
from tests.kube.reporter_world import WALL
from tests.kube.scripted_server import Half

IN_FLIGHT_MAX, LANE_MAX = 5, 2
ANSWER_SECONDS, TIMEOUT_SECONDS = 0.05, 30.0
TURNS = 40
"""Turns of the event loop in which everything happens that is due."""
ADVANCES_MAX = 20_000
NAMESPACES = ("red", "blue", "green")
STATUS_OF_A_REFUSAL = json.dumps({"kind": "Status", "status": "Failure", "message": "no", "reason": "No"}).encode()
ANSWERS = ("accepted", "conflict", "forbidden", "not now", "overloaded", "broken", "lost", "hangs")
STEPS = ("condition", "nomination", "bound", "warning", "pool", "a moment passes", "seconds pass", "a minute passes")
Key = tuple[str, str]


class Time:
    """A clock that goes on when the test says so, and the sleeps that wait for it."""

    def __init__(self) -> None:
        self.now = WALL
        self._sleeps: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence = count()

    async def sleep(self, seconds: float) -> None:
        waits = asyncio.get_running_loop().create_future()
        heappush(self._sleeps, (self.now + seconds, next(self._sequence), waits))
        await waits

    async def advance(self, seconds: float = float("inf")) -> bool:
        """Go on to the end of the next sleep within so many seconds; return whether there was one."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        while self._sleeps and self._sleeps[0][2].done():
            heappop(self._sleeps)
        found = bool(self._sleeps) and self._sleeps[0][0] <= self.now + seconds
        if found:
            self.now, _, waits = heappop(self._sleeps)
            waits.set_result(None)
        return found

    async def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while await self.advance(end - self.now):
            pass
        self.now = end


class Server:
    """Answers as planned, then accepts everything; it checks each request."""

    def __init__(self, time: Time, answers: list[str]) -> None:
        self.stalled_seconds = 0.0
        self.written: dict[Key, list[int]] = defaultdict(list)
        """The numbers of the accepted reports of each key."""
        self.refused_events = 0
        self._time = time
        self._answers: Iterator[str] = iter(answers)
        self._pools: Counter[str] = Counter()
        self._under_way: set[Key] = set()

    async def send(self, _method: bytes, path: bytes, body: bytes, _content_type: bytes) -> Answer:
        document = json.loads(body)
        key, number = read(path.decode(), document)
        answer = await self._answer(key)
        if answer.status < 300 or answer is LOST:
            self._accept(key, number)
        if answer is LOST:
            raise UnreachableError("the connection broke")
        self.refused_events += key[0] == "event" and answer.status in (403, 409)
        return answer

    async def get(self, path: str) -> bytes:
        await self._read_or_write(path)
        name = path.rsplit("/", 1)[1]
        metadata = {"name": name, "uid": "u-cpu", "resourceVersion": str(self._pools[name])}
        return json.dumps({"metadata": metadata, "status": self._status(name)}).encode()

    async def patch(self, path: str, body: bytes, _content_type: str) -> bytes:
        await self._read_or_write(path)
        name, document = path.rsplit("/", 2)[1], json.loads(body)
        assert document["metadata"]["resourceVersion"] == str(self._pools[name])
        self._pools[name] += 1
        self._accept(("pool", name), document["status"]["observedGeneration"])
        return json.dumps({"metadata": {"name": name}, "status": document["status"]}).encode()

    def _status(self, pool: str) -> dict[str, int]:
        return {"observedGeneration": self.written["pool", pool][-1]} if self.written["pool", pool] else {}

    async def _read_or_write(self, path: str) -> None:
        name = path.removesuffix("/status").rsplit("/", 1)[1]
        answer = await self._answer(("pool", name))
        if answer is LOST:
            raise UnreachableError("the connection broke")
        if answer.status >= 300:
            raise refusal(answer.status, answer.body, answer.retry_after, path)

    async def _answer(self, key: Key) -> Answer:
        assert key not in self._under_way, f"two writes of {key} at once"
        self._under_way.add(key)
        assert len(self._under_way) <= IN_FLIGHT_MAX
        try:
            planned = next(self._answers, "accepted")
            if planned == "hangs":
                await self._time.sleep(TIMEOUT_SECONDS)
                raise UnreachableError("no answer")
            await self._time.sleep(ANSWER_SECONDS)
            return ANSWER_OF[planned]
        finally:
            self._under_way.discard(key)

    def _accept(self, key: Key, number: int) -> None:
        numbers = self.written[key]
        if key[0] != "event":
            assert not numbers or number >= numbers[-1], f"an older status of {key} was written after a newer one"
        numbers.append(number)


LOST = Answer(0, None, b"")
ANSWER_OF = {
    "accepted": Answer(201, None, b"{}"),
    "conflict": Answer(409, None, STATUS_OF_A_REFUSAL),
    "forbidden": Answer(403, None, STATUS_OF_A_REFUSAL),
    "not now": Answer(429, "7", STATUS_OF_A_REFUSAL),
    "overloaded": Answer(429, None, b"Too many requests."),
    "broken": Answer(500, None, STATUS_OF_A_REFUSAL),
    "lost": LOST,
}


def read(path: str, document: dict[str, Any]) -> tuple[Key, int]:
    """Return the key of a report to a pod or of an Event, and the number in its text."""
    if "note" in document:
        return ("event", f"{document['reason']} {document['regarding']['uid']}"), number_in(document["note"])
    if "conditions" in document["status"]:
        return ("condition", path), number_in(document["status"]["conditions"][0]["message"])
    return ("nomination", path), number_in(document["status"]["nominatedNodeName"])


def number_in(text: str) -> int:
    return int(text.rpartition("#")[2])


class World:
    """A reporter, what it was told last, and its server."""

    def __init__(self, answers: list[str]) -> None:
        self.time = Time()
        self.server = Server(self.time, answers)
        timing = Timing(lambda: self.time.now, self.time.sleep, Half())
        controller = ReportingController("ai-scheduler", "i")
        connections, client = cast("ConnectionPool", self.server), cast("Client", self.server)
        log = structlog.wrap_logger(CapturingLogger())
        self.reports = Reporter(connections, client, timing, log, controller=controller, wall=lambda: WALL)
        self.reports.set_event_rate(2, 3)
        self.last: dict[Key, int] = {}

    async def step(self, what: str, number: int, which: int) -> None:
        pod = a_pod(f"p{which}", uid=f"u{which}", namespace=NAMESPACES[which % len(NAMESPACES)])
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        match what:
            case "condition":
                self.reports.report_waiting(ReportWaiting(pod, "cpu", "cpu", f"no room #{number}", "d"))
                self.last["condition", path] = number
            case "nomination":
                self.reports.report_nominated(Nominate(pod, f"n#{number}", "cpu", "d"))
                self.last["nomination", path] = number
            case "bound":
                self.reports.withdraw_waiting(pod)
                self.reports.report_scheduled(Bind(pod, f"n#{number}", "cpu", "cpu", "d", 1))
                self.last["event", f"Scheduled {pod.uid}"] = number
                for kind in ("condition", "nomination"):
                    self.last.pop((kind, path), None)
            case "warning":
                about = ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
                self.reports.report_warning(Warn(about, EventReason.UNREADABLE, f"#{number}"))
                self.last["event", f"Unreadable {pod.uid}"] = number
            case "pool":
                self.reports.report_pool(a_report(f"pool{which}", generation=number))
                self.last["pool", f"pool{which}"] = number
            case "a moment passes":
                await self.time.go_on(ANSWER_SECONDS / 2 * which)
            case "seconds pass":
                await self.time.go_on(float(which))
            case _:
                await self.time.go_on(60.0)

    async def finish(self) -> None:
        """Let time pass until the reporter has nothing left to do."""
        for _ in range(ADVANCES_MAX):
            if not await self.time.advance():
                return
        raise AssertionError("the reporter never ends")

    def judge(self) -> None:
        written, counts = self.server.written, self.reports.counts
        lost = [key for key, number in self.last.items() if number not in written[key][-1:]]
        assert all(key[0] == "event" for key in lost), f"{lost} are not what was reported last"
        assert len(lost) <= counts.dropped + self.server.refused_events


async def live(steps: list[tuple[str, int]], answers: list[str]) -> World:
    world = World(answers)

    async def no_bindings() -> None:
        pass

    task = asyncio.create_task(world.reports.run(no_bindings, raise_internal_error))
    for number, (what, which) in enumerate(steps):
        await world.step(what, number, which)
    await world.finish()
    assert not task.done() or task.result()
    assert world.reports._queue.unfinished == 0
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    return world


@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), max_size=40),
    answers=st.lists(st.sampled_from(ANSWERS), max_size=60),
)
def test_last_report_of_each_object_is_written_whatever_the_server_answers(
    steps: list[tuple[str, int]], answers: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(report_queue, "REPORTS_IN_FLIGHT_MAX", IN_FLIGHT_MAX)
        limits.setattr(report_queue, "LANE_IN_FLIGHT_MAX", LANE_MAX)
        world = asyncio.run(live(steps, answers))
    world.judge()
    if "lost" not in answers:
        events = [numbers for key, numbers in world.server.written.items() if key[0] == "event"]
        assert all(len(numbers) == len(set(numbers)) for numbers in events), "an Event was sent again after a 2xx"
