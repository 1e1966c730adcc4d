"""CPU of taking in what the API server tells: from bytes of a watch to events of the core."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import msgspec
import pytest

from aischeduler.kube import resources
from aischeduler.kube.client import Client
from aischeduler.kube.pace import Pace
from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.reflector import Ears, Reflector
from aischeduler.kube.resources import Resource
from aischeduler.model.events import Event
from tests.bench.board import cpu_seconds, micros, show, times
from tests.bench.documents import real_node, real_pod, watch_line
from tests.kube.scripted import Half

pytestmark = pytest.mark.bench

EVENTS = 5_000
PIECE_BYTES = 64 * 1024


class Replay:
    """A client whose watch yields lines that were made before, in pieces as a socket gives them."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        stream = b"".join(lines)
        self._pieces = [stream[start : start + PIECE_BYTES] for start in range(0, len(stream), PIECE_BYTES)]

    @asynccontextmanager
    async def watch(self, *_: object) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        pieces = iter(self._pieces)

        async def read() -> bytes:
            return next(pieces, b"")

        yield read


def take_in(lines: Sequence[bytes], resource: Resource[Any]) -> list[Event]:
    """Let a reflector watch the lines; return what it told the core."""
    heard: list[Event] = []

    def fail(*said: object) -> None:
        raise AssertionError(said)

    pace = Pace(time.monotonic, asyncio.sleep, Half())
    reflector = Reflector(cast("Client", Replay(lines)), resource, Ears(heard.append, fail, fail), pace)
    asyncio.run(reflector._watch())
    return heard


def floor(lines: Sequence[bytes]) -> None:
    """Parse and keep nothing: what no reader of these bytes can avoid."""
    decode = msgspec.json.Decoder(msgspec.Struct).decode
    for line in lines:
        decode(line)


def as_dicts(lines: Sequence[bytes]) -> None:
    for line in lines:
        msgspec.json.decode(line)


def by_standard_library(lines: Sequence[bytes]) -> None:
    for line in lines:
        json.loads(line)


def row(name: str, resource: Callable[[], Resource[Any]], lines: Sequence[bytes]) -> list[str]:
    """Measure one kind of event in every way."""
    assert len(take_in(lines, resource())) == EVENTS
    least, dicts, library = (cpu_seconds(lambda: lines, read) for read in (floor, as_dicts, by_standard_library))
    ours = cpu_seconds(resource, partial(take_in, lines))
    costs = [micros(cost, EVENTS) for cost in (least, ours, dicts, library)]
    return [name, f"{sum(map(len, lines)) / EVENTS / 1000:.1f}", *costs, times(ours, least), times(ours, library)]


def test_cpu_of_a_watch_event_against_parsing_its_bytes() -> None:
    numbers = range(EVENTS)
    pending = [watch_line("ADDED", real_pod(n, version=n + 1)) for n in numbers]
    running = [watch_line("MODIFIED", real_pod(n, version=n + 1, node="gpu-00001")) for n in numbers]
    nodes = [watch_line("ADDED", real_node(n, version=n + 1)) for n in numbers]
    floor_title, ours_title = "floor: msgspec, nothing kept", "ours, to an event of the core"
    show(
        "A watch event, CPU microseconds each",
        ["", "kB", floor_title, ours_title, "msgspec to dict", "json to dict", "ours / floor", "ours / json"],
        [
            row("pending pod", lambda: resources.pods(SpecCache()), pending),
            row("running pod", lambda: resources.pods(SpecCache()), running),
            row("node", resources.nodes, nodes),
        ],
    )
