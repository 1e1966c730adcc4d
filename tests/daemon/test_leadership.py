"""Two daemons of one name: one leads and schedules, the other stands by with warm caches and takes over."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest
import structlog

from aischeduler.config.schema import Config, LeaderElection
from aischeduler.daemon.leadership import CATCH_UP_SECONDS_MAX, Leadership
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import Server
from aischeduler.kube.election import LeaderElectionConfig, LeaderElector
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import UnreachableError
from aischeduler.observability import health, status_log
from tests.daemon.cluster import PODS, Cluster, cluster
from tests.kube.scripted_server import Half, Script, reply, serving, settled, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ai-scheduler"
ELECTED = Config(leader_election=LeaderElection(namespace="kube-system"))


async def a_little(seconds: float) -> None:
    await asyncio.sleep(seconds / 20)


@asynccontextmanager
async def second(world: Cluster) -> AsyncIterator[tuple[Daemon, asyncio.Event]]:
    address = urlsplit(world.sandbox.url)
    server = Server(address.hostname or "", address.port or 0, time.monotonic)
    stop = asyncio.Event()
    daemon = Daemon(server, ELECTED, stop, Timing(time.monotonic, a_little, Half()))
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon, stop
    finally:
        stop.set()
        async with asyncio.timeout(120):
            await task


async def marks(world: Cluster, name: str) -> dict[str, str]:
    return next(
        dict(pod["metadata"]["annotations"]) for pod in await world.listed(PODS) if pod["metadata"]["name"] == name
    )


async def test_standby_leads_when_the_leader_is_stopped() -> None:
    async with cluster(config=ELECTED) as world, second(world) as (standby, _):
        await world.node("n", cpu="8")
        await world.pod("first")
        await world.until(world.all_placed)
        await until(standby.standing_by.is_set)
        assert standby._unready() == ""
        assert not standby.deciding.is_set()
        assert (await marks(world, "first"))["scheduling.resource.aibee.cn/epoch"] == "0"
        world.stop.set()
        await until(standby.deciding.is_set)
        await world.pod("second")
        await world.until(world.all_placed)
        assert (await marks(world, "second"))["scheduling.resource.aibee.cn/epoch"] == "1"


async def test_next_leader_knows_the_changes_that_came_while_it_stood_by() -> None:
    async with cluster(config=ELECTED) as world, second(world) as (standby, _):
        await until(standby.standing_by.is_set)
        await world.node("n", cpu="2")
        for name in ("p", "q"):
            await world.pod(name)
        await world.until(world.all_placed)
        world.stop.set()
        await until(standby.deciding.is_set)
        await world.pod("too-much")
        await world.until(lambda: told_waiting(world, "too-much"))
        assert (await world.placed())["too-much"] == ""


async def told_waiting(world: Cluster, pod: str) -> bool:
    return pod in await world.notes("FailedScheduling")


async def test_pods_that_wait_for_the_leader_are_no_sign_of_a_stuck_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.0)
    async with cluster(config=ELECTED) as world, second(world) as (standby, _):
        await until(standby.standing_by.is_set)
        await world.pod("waits")
        await world.until(lambda: told_waiting(world, "waits"))
        await until(lambda: standby.scheduler.ready(time.monotonic()))
        assert [standby._telemetry.problem(lambda: standby._leadership.leads) for _ in range(2)] == ["", ""]


async def test_only_the_leader_logs_pool_statuses(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_log, "PERIOD_SECONDS", 0.0)
    async with cluster(config=ELECTED) as world, second(world) as (standby, _):
        await until(standby.standing_by.is_set)
        await world.pool("a", nodeSelector={"matchLabels": {"pool": "a"}})
        await world.node("n", labels={"pool": "a"})
        await world.pod("p", pool="a", cpu="2")
        await world.until(world.all_placed)
        await until(lambda: "a" in standby.scheduler.pools() and standby.scheduler.summary()[0].pods == 1)
        await until(lambda: [line for line in lines() if line["event"] == "pool status" and line["cpu_used"] == 2])
        standby_log = standby._telemetry.pool_status_log
        assert (standby_log._reported, standby_log._last) == ({}, {})


class EndedError(Exception):
    """Stands for the end of the process."""


def end() -> NoReturn:
    raise EndedError


class Clock:
    """A clock that the test moves; a sleep takes no time and is counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, _: float) -> None:
        self.waits += 1
        await asyncio.sleep(0.001)


@asynccontextmanager
async def leader(clock: Clock) -> AsyncIterator[tuple[Leadership, ConnectionPool, Script]]:
    """Yield a leadership that leads, a connection pool that it fences, and the server's script."""
    script = Script()
    lease = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}
    script.always["post", LEASE.rpartition("/")[0]] = lambda _: reply(201, lease)
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        timing, log = Timing(clock, clock.sleep, Half()), structlog.get_logger()
        elector = LeaderElector(
            ConnectionPool(server, 1), LeaderElectionConfig("kube-system", "ai-scheduler", "me"), timing, time.time, log
        )
        leadership = Leadership(elector, timing, log, end)
        connections = ConnectionPool(server, 1, fence=leadership.fence)
        yield leadership, connections, script
        await connections.close()
        await leadership.close()


@pytest.mark.expects_errors("lost the lease")
async def test_write_that_is_due_after_the_lease_is_never_sent_and_ends_the_process() -> None:
    clock = Clock()
    async with leader(clock) as (leadership, connections, script):
        await leadership.begin(Pods("1"), ())
        clock.now = 9.9
        assert (await connections.send(b"POST", b"/x")).status == 201
        clock.now = 15.0
        with pytest.raises(EndedError):
            await connections.send(b"POST", b"/x")
        assert len(script.asked("post", "/x")) == 1


@pytest.mark.parametrize("warm", [True, False])
async def test_write_that_is_due_after_the_deadline_waits_for_the_lease_to_be_renewed(warm: bool) -> None:
    clock = Clock()
    async with leader(clock) as (leadership, connections, script):
        await leadership.begin(Pods("1"), ())
        if warm:
            await connections.send(b"POST", b"/x")
        before = len(script.requests)
        expected = script.connections + (not warm)
        clock.now = 10.0
        writing = asyncio.create_task(connections.send(b"POST", b"/x"))
        await until(lambda: clock.waits >= 3)
        assert len(script.requests) == before
        script.always["patch", LEASE] = lambda _: reply(200, {"metadata": {"resourceVersion": "2"}, "spec": {}})
        renewing = asyncio.create_task(leadership.renew())
        assert (await writing).status == 201
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        assert script.requests[before].path == LEASE
        assert script.connections == expected, "the write waits on one connection"


@pytest.mark.expects_errors("lost the lease")
async def test_write_that_waits_for_the_lease_ends_the_process_when_the_lease_is_over() -> None:
    clock = Clock()
    async with leader(clock) as (leadership, connections, script):
        await leadership.begin(Pods("1"), ())
        clock.now = 10.0
        writing = asyncio.create_task(connections.send(b"POST", b"/x"))
        await until(lambda: clock.waits >= 3)
        clock.now = 15.0
        with pytest.raises(EndedError):
            await writing
        assert script.asked("post", "/x") == []


async def test_reading_needs_no_lease() -> None:
    clock = Clock()
    async with leader(clock) as (leadership, connections, script):
        await leadership.begin(Pods("1"), ())
        clock.now = 60.0
        script.always["get", "/y"] = lambda _: reply(200)
        assert (await connections.send(b"GET", b"/y")).status == 200


async def test_scheduler_that_never_led_writes_nothing_and_goes_on() -> None:
    async with leader(Clock()) as (_, connections, script):
        with pytest.raises(RuntimeError, match="does not lead"):
            await connections.send(b"POST", b"/x")
        assert script.asked("post", "/x") == []
        script.always["get", "/y"] = lambda _: reply(200)
        assert (await connections.send(b"GET", b"/y")).status == 200


@pytest.mark.expects_errors("lost the lease")
async def test_write_that_waits_for_a_connection_is_fenced_when_it_is_sent() -> None:
    clock = Clock()
    async with leader(clock) as (leadership, connections, script):
        await leadership.begin(Pods("1"), ())
        release = asyncio.Event()

        async def late(writer: asyncio.StreamWriter) -> None:
            await release.wait()
            await reply(200)(writer)

        script.always["get", "/slow"] = lambda _: late
        reading = asyncio.create_task(connections.send(b"GET", b"/slow"))
        await until(lambda: script.asked("get", "/slow"))
        writing = asyncio.create_task(connections.send(b"POST", b"/x"))
        await settled()
        clock.now = 15.0
        release.set()
        await reading
        with pytest.raises(EndedError):
            await writing


class Pods:
    """The versions that the watch shows, one per read, and the current version of the pods; counts the requests."""

    def __init__(self, *seen: str, now: str = "") -> None:
        self.seen = list(seen)
        self.now = now
        self.versions = 0
        self.lists = 0

    @property
    def watch_version(self) -> str:
        return self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]

    async def version(self) -> str:
        self.versions += 1
        if not self.now:
            raise UnreachableError("the API server is away")
        return self.now

    async def relist(self) -> None:
        self.lists += 1


def released(pods_seen: str) -> dict[str, Any]:
    """Return a Lease that its holder released, with the version of pods that the holder wrote."""
    marks = {"scheduling.resource.aibee.cn/pods-seen": pods_seen} if pods_seen else {}
    return {
        "metadata": {"resourceVersion": "1", "annotations": marks},
        "spec": {"holderIdentity": "", "leaseTransitions": 4},
    }


def expired() -> dict[str, Any]:
    """Return a Lease whose holder was killed."""
    return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15}}


class Watched:
    """A watch that counts how often it is opened again."""

    def __init__(self, *, absent: bool = False) -> None:
        self.watching = asyncio.Event()
        self.not_served = absent
        self.reopened = 0

    def reopen_watch(self) -> None:
        self.reopened += 1
        if not self.not_served:
            self.watching.set()


async def takes_over(lease: dict[str, Any], pods: Pods, *watches: Watched) -> list[float]:
    """Let a scheduler take this Lease and begin; return the seconds of each sleep after that."""
    script, clock, slept = Script(), Clock(), list[float]()
    script.always["get", LEASE] = lambda _: reply(200, lease)
    script.always["patch", LEASE] = lambda _: reply(200, {"metadata": {"resourceVersion": "2"}, "spec": {}})

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if script.asked("patch", LEASE):
            slept.append(seconds)

    async with serving(script) as server:
        timing, log = Timing(clock, sleep, Half()), structlog.get_logger()
        elector = LeaderElector(
            ConnectionPool(server, 1), LeaderElectionConfig("kube-system", "ai-scheduler", "me"), timing, time.time, log
        )
        leadership = Leadership(elector, timing, log, end)
        await leadership.begin(pods, watches)
        await leadership.close()
    return slept


async def test_new_leader_waits_until_its_watch_has_shown_the_last_leaders_bindings() -> None:
    pods = Pods("97", "98", "100")
    assert len(await takes_over(released("99"), pods)) == 2
    assert (pods.seen, pods.versions, pods.lists) == (["100"], 0, 0)


async def test_new_leader_lists_pods_again_where_its_watch_lags() -> None:
    pods = Pods("97")
    assert sum(await takes_over(released("99"), pods)) == pytest.approx(CATCH_UP_SECONDS_MAX, abs=0.1)
    assert pods.lists == 1


async def test_leader_after_a_killed_one_waits_until_its_watch_shows_the_current_pods() -> None:
    pods = Pods("97", "98", "100", now="99")
    assert len(await takes_over(expired(), pods)) == 2
    assert (pods.versions, pods.lists) == (1, 0)


@pytest.mark.parametrize("now", ["", "no number"])
async def test_new_leader_that_cannot_read_the_version_of_pods_lists_them_again(now: str) -> None:
    pods = Pods("97", now=now)
    assert await takes_over(expired(), pods) == []
    assert pods.lists == 1


async def test_leader_after_one_that_left_no_version_reads_the_version_itself() -> None:
    pods = Pods("100", now="99")
    assert await takes_over(released(""), pods) == []
    assert (pods.versions, pods.lists) == (1, 0)


async def test_new_leader_opens_all_watches_again_before_it_reads_their_versions() -> None:
    watches = Watched(), Watched(absent=True)

    class Late(Pods):
        @property
        def watch_version(self) -> str:
            assert [watch.reopened for watch in watches] == [1, 1]
            return super().watch_version

    pods = Late("100")
    assert await takes_over(released("99"), pods, *watches) == []
    assert pods.lists == 0


async def test_first_leader_waits_for_no_version() -> None:
    pods = Pods("1")
    async with leader(Clock()) as (leadership, _, _):
        await leadership.begin(pods, ())
    assert (pods.versions, pods.lists) == (0, 0)


async def test_election_that_fails_to_connect_is_no_error_of_the_daemon() -> None:
    async with serving(Script()) as server:
        pass
    elector = LeaderElector(
        ConnectionPool(server, 1),
        LeaderElectionConfig("kube-system", "s", "me"),
        Timing(Clock(), asyncio.sleep, Half()),
        time.time,
        structlog.get_logger(),
    )
    assert not await elector._try_acquire()
    with pytest.raises(UnreachableError):
        await elector._read()
    await elector.close()
