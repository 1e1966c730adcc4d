"""CPU of taking in what the API server tells: from bytes of a watch to events of the core."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from aischeduler.kube import watched_resources
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.watched_resources import WatchedResource
from aischeduler.model.events import Event
from tests.bench.board import cpu_seconds, micros, show, times
from tests.bench.documents import real_node, real_pod, watch_line
from tests.bench.replay import reflector_of

pytestmark = pytest.mark.bench

EVENTS = 5_000
PIECE_BYTES = 64 * 1024


def pieces(lines: Sequence[bytes]) -> list[bytes]:
    """Cut the lines as a socket does."""
    stream = b"".join(lines)
    return [stream[start : start + PIECE_BYTES] for start in range(0, len(stream), PIECE_BYTES)]


def take_in(cut: Sequence[bytes], resource: WatchedResource[Any]) -> list[Event]:
    """Let a reflector watch the lines; return what it told the core."""
    heard: list[Event] = []
    asyncio.run(reflector_of(resource, cut, heard.append)._watch())
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


def row(name: str, resource: Callable[[], WatchedResource[Any]], lines: Sequence[bytes]) -> list[str]:
    """Measure one kind of event in every way."""
    cut = pieces(lines)
    assert len(take_in(cut, resource())) == EVENTS
    least, dicts, library = (cpu_seconds(lambda: lines, read) for read in (floor, as_dicts, by_standard_library))
    ours = cpu_seconds(resource, partial(take_in, cut))
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
            row("pending pod", lambda: watched_resources.pods(SpecCache()), pending),
            row("running pod", lambda: watched_resources.pods(SpecCache()), running),
            row("node", watched_resources.nodes, nodes),
        ],
    )
