"""A daemon that ends releases the Lease unless a request may still take effect; then the Lease expires."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from aischeduler.config.schema import Config, LeaderElection
from aischeduler.daemon import shutdown
from aischeduler.daemon.process import Daemon
from aischeduler.model.names import MARK_PREFIX
from tests.daemon.cluster import EVENTS, PODS, cluster
from tests.daemon.test_daemon import scripted_cluster
from tests.kube.lease_server import LeaseServer
from tests.kube.scripted_server import Script, hang, reply, serving, status, stream, until

Lines = Callable[[], list[dict[str, Any]]]
ELECTED = Config(leader_election=LeaderElection(namespace="kube-system"))
BOUND_AT = "17"


class Stop(asyncio.Event):
    """Stops a daemon, or makes it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = asyncio.Event()

    async def wait(self) -> bool:  # type: ignore[override]
        stopping, failing = asyncio.create_task(super().wait()), asyncio.create_task(self.fails.wait())
        try:
            await asyncio.wait([stopping, failing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            failing.cancel()
        if self.fails.is_set():
            raise RuntimeError("a bug")
        return True


@asynccontextmanager
async def leader(script: Script) -> AsyncIterator[tuple[asyncio.Task[None], Stop]]:
    """Yield a daemon that leads and has sent a Binding."""
    stop = Stop()
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ELECTED, stop).run())
        await until(lambda: script.asked("post", PODS))
        yield task, stop
        await asyncio.wait([task])


def shown_bound(*, watched: bool) -> Script:
    """Return a server that accepts the Binding, and shows it in the watch only if `watched`."""
    script = scripted_cluster()
    script.on("post", f"{PODS}/p/binding", reply(201))
    bound = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-p", "resourceVersion": BOUND_AT},
        "spec": {"schedulerName": "ai-scheduler", "containers": [{"name": "c"}], "nodeName": "n1"},
    }
    if watched:
        line = reply_line(bound)

        async def after_binding(writer: asyncio.StreamWriter) -> None:
            await until(lambda: script.asked("post", PODS))
            await stream(line)(writer)

        script.on("watch", "/api/v1/pods", after_binding, after_binding)  # the leader opens its watches again
    return script


def reply_line(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": "MODIFIED", "object": document}) + b"\n"


def pods_seen(server: LeaseServer) -> str | None:
    """Return the version of pods in the released Lease; None while the Lease is held."""
    assert server.lease is not None
    if server.lease["spec"]["holderIdentity"]:
        return None
    return str(server.lease["metadata"].get("annotations", {}).get(f"{MARK_PREFIX}pods-seen", ""))


async def test_lease_is_released_with_the_version_at_which_the_last_binding_was_shown() -> None:
    script = shown_bound(watched=True)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        stop.set()
    assert task.exception() is None
    assert pods_seen(server) == BOUND_AT


async def test_lease_has_the_current_version_of_pods_where_the_watch_lags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdown, "SHOWN_SECONDS_MAX", 0.05)
    script = shown_bound(watched=False)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        await until(lambda: script.asked("post", EVENTS))
        script.always["get", "/api/v1/pods"] = lambda _: reply(200, {"metadata": {"resourceVersion": "99"}})
        stop.set()
    assert task.exception() is None
    assert pods_seen(server) == "99"


async def test_lease_has_no_version_where_the_version_of_pods_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutdown, "SHOWN_SECONDS_MAX", 0.05)
    script = shown_bound(watched=False)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        await until(lambda: script.asked("post", EVENTS))
        script.always["get", "/api/v1/pods"] = lambda _: status(500, "InternalError")
        stop.set()
    assert task.exception() is None
    assert pods_seen(server) == ""


async def test_daemon_that_ends_drops_the_events_that_their_rate_delays(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "REPORTS_GRACE_SECONDS", 20.0)  # longer than a test waits
    async with cluster() as world:
        assert world.daemon.components is not None
        world.daemon.components.workers.reporter.event_rate.set_limits(per_second=0.001, burst=1)
        await world.node("n1", cpu="40")
        for number in range(40):
            await world.pod(f"p{number}")
        await world.until(world.all_placed)
    (line,) = [line for line in lines() if line["event"] == "events not written"]
    assert line["count"] >= 39


async def test_lease_is_not_released_while_a_binding_may_still_take_effect(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "GRACE_SECONDS", 0.05)
    script = scripted_cluster()
    script.on("post", f"{PODS}/p/binding", hang)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        stop.set()
    assert task.exception() is None
    assert pods_seen(server) is None
    (line,) = [line for line in lines() if line["event"] == "lease not released"]
    assert (line["binds"], line["evictions"], line["another_leads_after_seconds"]) == (1, 0, 15)


async def test_daemon_that_fails_releases_the_lease_where_nothing_is_in_flight() -> None:
    script = shown_bound(watched=True)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        await until(lambda: script.asked("post", EVENTS))
        stop.fails.set()
    assert isinstance(task.exception(), ExceptionGroup)
    assert pods_seen(server) == ""


async def test_daemon_that_fails_with_a_binding_in_flight_lets_its_lease_expire(lines: Lines) -> None:
    script = scripted_cluster()
    script.on("post", f"{PODS}/p/binding", hang)
    server = LeaseServer(script)
    async with leader(script) as (task, stop):
        stop.fails.set()
    assert isinstance(task.exception(), ExceptionGroup)
    assert pods_seen(server) is None
    assert [line["binds"] for line in lines() if line["event"] == "lease not released"] == [1]
