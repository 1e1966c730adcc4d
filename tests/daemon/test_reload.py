"""A running scheduler reloads the file of its configuration."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from aischeduler.config.load import load_config
from aischeduler.config.schema import Config, EventsConfig
from aischeduler.daemon import reload as module
from aischeduler.daemon.reload import Reload, Source
from tests.daemon.cluster import cluster
from tests.kube.scripted_server import hang, settled, until

INTERVAL_SECONDS = 0.005


@dataclass
class World:
    """A configuration file, the configurations that were applied, and the lines of the log."""

    path: Path
    applied: list[Config] = field(default_factory=list)
    lines: CapturingLogger = field(default_factory=CapturingLogger)

    @asynccontextmanager
    async def following(
        self, *, interval_seconds: float = INTERVAL_SECONDS, file: bool = True
    ) -> AsyncIterator[Reload]:
        path = self.path if file else None
        log = structlog.wrap_logger(self.lines, processors=[], wrapper_class=structlog.BoundLogger).bind()
        reload = Reload(Source(path, partial(load_config, path)), load_config(path), self.applied.append, log)
        task = asyncio.create_task(reload.run(interval_seconds))
        try:
            yield reload
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def told(self) -> list[dict[str, Any]]:
        return [dict(call.kwargs) for call in self.lines.calls]


def mounted(directory: Path, text: str) -> Path:
    """Write a file as in a mounted ConfigMap, behind two links, of which an update swaps one."""
    directory.mkdir()
    swap(directory, "one", text)
    (directory / "config.yaml").symlink_to("..data/config.yaml")
    return directory / "config.yaml"


def swap(directory: Path, version: str, text: str) -> None:
    (directory / version).mkdir()
    (directory / version / "config.yaml").write_text(text)
    (directory / "..new").symlink_to(version)
    (directory / "..new").rename(directory / "..data")


async def test_file_that_was_written_is_reloaded_and_logged(tmp_path: Path) -> None:
    world = World(tmp_path / "ai.yaml")
    world.path.write_text("bindInFlight: 3\n")
    async with world.following() as reload:
        world.path.write_text("bindInFlight: 30\nevents: {burst: 7}\n")
        await until(world.told)
    assert world.applied == [Config(bind_in_flight=30, events=EventsConfig(burst=7))]
    assert reload.config == world.applied[0]
    assert world.told() == [
        {"event": "configuration reloaded", "cause": "the file changed", "changed": "bindInFlight, events.burst"}
    ]


async def test_swapped_link_of_a_config_map_counts_as_a_change(tmp_path: Path) -> None:
    world = World(mounted(tmp_path / "etc", "bindInFlight: 3\n"))
    async with world.following():
        swap(tmp_path / "etc", "two", "bindInFlight: 4\n")
        await until(lambda: world.applied)
    assert world.applied == [Config(bind_in_flight=4)]


async def test_fields_that_need_a_restart_are_named_and_not_applied(tmp_path: Path) -> None:
    world = World(tmp_path / "ai.yaml")
    world.path.write_text("")
    async with world.following() as reload:
        world.path.write_text('backoff: {maxSeconds: 60}\nhttp: {address: ":1"}\n')
        await until(lambda: len(world.told()) == 2)
    assert world.applied == []
    assert reload.config == Config()
    assert world.told() == [
        {"event": "configuration reloaded", "cause": "the file changed", "changed": "nothing"},
        {"event": "restart needed", "fields": "backoff.maxSeconds, http.address"},
    ]


@pytest.mark.expects_errors("bindInFlight must be a whole number", "cannot be read")
async def test_invalid_file_is_logged_once_and_the_old_values_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, stamp = 0, module._stamp

    def look(path: Path | None) -> tuple[int, ...]:
        nonlocal looks
        looks += 1
        return stamp(path)

    monkeypatch.setattr(module, "_stamp", look)
    world = World(tmp_path / "ai.yaml")
    world.path.write_text("bindInFlight: 3\n")
    async with world.following() as reload:
        world.path.write_text("bindInFlight: 0\n")
        await until(world.told)
        enough = looks + 4
        await until(lambda: looks >= enough)
        assert reload.config == Config(bind_in_flight=3)
        assert world.told() == [
            {
                "event": "configuration not applied",
                "cause": "the file changed",
                "reason": f"{world.path}: bindInFlight must be a whole number from 1 to 256, not 0",
            }
        ]
        world.path.unlink()
        await until(lambda: len(world.told()) == 2)
        world.path.write_text("bindInFlight: 5\n")
        await until(lambda: world.applied)
    assert world.applied == [Config(bind_in_flight=5)]


async def test_signal_reloads_an_unchanged_file_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "ai.yaml")
    world.path.write_text("bindInFlight: 3\n")
    async with world.following(interval_seconds=60) as reload:
        reload.request()
        await until(world.told)
    assert world.told() == [{"event": "configuration reloaded", "cause": "SIGHUP", "changed": "nothing"}]


async def test_signal_without_a_file_is_logged(tmp_path: Path) -> None:
    world = World(tmp_path / "no.yaml")
    async with world.following(interval_seconds=60, file=False) as reload:
        reload.request()
        await until(world.told)
    assert [line["changed"] for line in world.told()] == ["nothing"]


async def test_daemon_applies_the_fields_that_the_schema_names() -> None:
    async with cluster() as world:
        daemon = world.daemon
        assert daemon.components is not None
        binder, reports = daemon.components.workers.binder, daemon.components.workers.reporter
        daemon.apply(Config(bind_in_flight=3, request_timeout_seconds=7, events=EventsConfig(per_second=5, burst=10)))
        assert {connections.answer_seconds for connections in daemon.components.connection_pools} == {7}
        rate = reports.event_rate
        assert rate.available == 10
        for _ in range(10):
            rate.take()
        assert 0.0 < rate.seconds_until_token <= 0.2
        world.between.rule = lambda request: hang if request.path.endswith("/binding") else None
        await world.node("n", cpu="9")
        for number in range(9):
            await world.pod(f"p{number}")
        await until(lambda: binder.unanswered == 3)
        await settled()
        assert binder.unanswered == 3
        daemon.apply(Config(bind_in_flight=9))
        await until(lambda: binder.unanswered == 9)
