"""One candidate leads, no write is sent outside of its term, and the next candidate leads as soon as it may."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube.access.server import Server
from aischeduler.kube.election import LeaderElectionConfig, LeaderElector, LostLeaseError
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from tests.kube.lease_server import LEASE, LEASES, LeaseServer
from tests.kube.scripted_server import Answer, Half, Request, reply, serving, status, until


class Candidate:
    """A candidate with its own clock, which moves when it sleeps or when a test moves it."""

    def __init__(self, server: Server, name: str) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.runs_until: Callable[[], float] = lambda: float("inf")
        self.logger = CapturingLogger()
        self.connections = ConnectionPool(server, 2)
        timing = Timing(lambda: self.now, self._sleep, Half())
        log = structlog.wrap_logger(self.logger, processors=[])
        self.elector = LeaderElector(
            self.connections,
            LeaderElectionConfig("kube-system", "ai-scheduler", name),
            timing,
            lambda: 1.7e9 + self.now,
            log,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0.001)
        while self.now >= self.runs_until():
            await asyncio.sleep(0.001)
        self.now += seconds

    def told(self) -> list[str]:
        """Return the logged events."""
        return [str(call.kwargs["event"]) for call in self.logger.calls]

    def reasons(self) -> list[str]:
        return [str(call.kwargs["reason"]) for call in self.logger.calls if "reason" in call.kwargs]


@asynccontextmanager
async def candidates(*names: str, server: LeaseServer) -> AsyncIterator[list[Candidate]]:
    async with serving(server.script) as address:
        found = [Candidate(address, name) for name in names]
        try:
            yield found
        finally:
            for candidate in found:
                await candidate.connections.close()


def held(server: LeaseServer) -> tuple[str, int]:
    """Return holder and term of the Lease."""
    assert server.lease is not None
    return server.lease["spec"]["holderIdentity"], server.lease["spec"]["leaseTransitions"]


async def test_first_candidate_creates_the_lease_and_leads() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        assert held(server) == ("a", 0)
        assert (a.elector.may_write, a.elector.epoch) == (True, 0)
        assert a.told() == ["leading"]


async def test_second_takes_over_once_the_lease_expires_on_its_own_clock_and_begins_a_new_term() -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        await a.elector.acquire()
        await b.elector.acquire()
        assert sum(b.slept) == pytest.approx(15), "the second candidate tries when the lease expires"
        assert held(server) == ("b", 1)
        assert (b.elector.may_write, b.elector.epoch) == (True, 1)
        assert b.told() == ["standing by", "leading"]


async def test_second_stands_by_as_long_as_the_first_renews() -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        a.runs_until, b.runs_until = lambda: b.now + 3, lambda: a.now + 3  # clocks run at nearly the same speed
        await a.elector.acquire()
        renewing, standing = asyncio.create_task(a.elector.renew()), asyncio.create_task(b.elector.acquire())
        await until(lambda: a.now > 1100 and b.now > 1100)
        assert held(server) == ("a", 0)
        assert not b.elector.may_write
        for task in (renewing, standing):
            task.cancel()
        await asyncio.gather(renewing, standing, return_exceptions=True)


async def test_released_lease_is_acquired_at_the_next_try_with_the_version_of_its_holder() -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        await a.elector.acquire()
        standing = asyncio.create_task(b.elector.acquire())
        await until(lambda: b.told() == ["standing by"])
        await a.elector.release("4711")
        before = sum(b.slept)
        await standing
        assert sum(b.slept) - before <= 2
        assert (held(server), b.elector.pods_seen) == (("b", 1), "4711")
        assert not a.elector.may_write
        assert a.told() == ["leading", "lease released"]


async def test_nothing_may_be_written_from_the_renew_deadline_on_counted_from_before_the_request() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        taking = asyncio.create_task(a.elector.acquire())
        await until(lambda: server.script.asked("post"))
        a.now += 3.0  # the answer took this long
        await taking
        a.now = 1009.9
        assert a.elector.may_write
        a.now = 1010.0
        assert not a.elector.may_write


async def test_leader_that_cannot_renew_loses_the_lease_when_it_expires_and_not_before() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        server.refusal = status(500, "InternalError", "etcd is tired")
        with pytest.raises(LostLeaseError, match="could not be renewed for 15 s"):
            await a.elector.renew()
        assert a.now == pytest.approx(1015.0)
        assert a.told() == ["leading", "the lease could not be renewed"]


async def test_leader_that_renews_before_the_lease_expires_leads_on_in_the_same_term() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        server.refusal = status(500, "InternalError", "etcd is tired")
        a.runs_until = lambda: 1011.0
        renewing = asyncio.create_task(a.elector.renew())
        await until(lambda: a.now >= 1011)
        assert (a.elector.may_write, a.elector.holds_lease) == (False, True)
        server.refusal = None
        a.runs_until = lambda: float("inf")
        await until(lambda: a.elector.may_write)
        assert held(server) == ("a", 0)
        assert a.told() == ["leading", "the lease could not be renewed", "the lease was renewed late"]
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def test_leader_that_renews_after_another_took_the_lease_has_lost_it_without_a_write() -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        await a.elector.acquire()
        await b.elector.acquire()
        a.now += 12.0
        with pytest.raises(LostLeaseError, match="is held by b"):
            await a.elector.renew()
        assert held(server) == ("b", 1)
        assert not a.elector.may_write


async def test_leader_that_slept_until_its_lease_expired_sends_no_request() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        a.now += 60.0
        asked = len(server.script.requests)
        with pytest.raises(LostLeaseError):
            await a.elector.renew()
        assert len(server.script.requests) == asked


async def test_leader_that_finds_another_holder_has_lost_the_lease_at_once() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        server.edit(holderIdentity="thief", leaseTransitions=1)
        with pytest.raises(LostLeaseError, match="is held by thief"):
            await a.elector.renew()
        assert a.now < 1003


async def test_lease_that_another_client_labels_keeps_its_holder() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        server.edit()
        renewing = asyncio.create_task(a.elector.renew())
        await until(lambda: a.now > 1100)
        assert (held(server), a.elector.may_write) == (("a", 0), True)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


@pytest.mark.parametrize("before", ["no lease", "another held it"])
async def test_candidate_whose_acquire_was_not_answered_leads_at_the_next_try(before: str) -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        if before == "another held it":
            await b.elector.acquire()
            await b.elector.release("")
        term = server.lease["spec"]["leaseTransitions"] + 1 if server.lease else 0
        server.lost = 1
        await a.elector.acquire()
        assert held(server) == ("a", term)
        assert sum(a.slept) <= 2


async def test_only_one_of_two_candidates_that_try_at_once_leads() -> None:
    server = LeaseServer()
    async with candidates("a", "b", server=server) as (a, b):
        a.runs_until = b.runs_until = lambda: 1001.0
        both = [asyncio.create_task(replica.elector.acquire()) for replica in (a, b)]
        await until(lambda: sum(task.done() for task in both) == 1 and len(a.slept) + len(b.slept) >= 1)
        assert [a.elector.may_write, b.elector.may_write].count(True) == 1
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def test_missing_permissions_are_logged_once_by_verb_and_resource_and_tried_again() -> None:
    server = LeaseServer()
    message = 'leases.coordination.k8s.io "ai-scheduler" is forbidden: User "u" cannot get resource "leases"'
    server.refusal = status(403, "Forbidden", message)
    async with candidates("a", server=server) as (a,):
        leading = asyncio.create_task(a.elector.acquire())
        await until(lambda: len(a.slept) > 5)
        assert a.told() == ["the lease could not be acquired"]
        assert message in a.reasons()[0]
        server.refusal = None
        await leading
        assert a.elector.may_write


async def test_leader_that_lost_the_lease_does_not_release_it() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()
        a.now += 15.0
        await a.elector.release("4711")
        assert held(server) == ("a", 0)
        assert json.loads(json.dumps(server.lease)).get("annotations") is None


async def test_candidate_that_is_stopped_while_it_acquires_the_lease_releases_it() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        hears = asyncio.Event()

        async def late(writer: asyncio.StreamWriter) -> None:
            await hears.wait()

        server.script.always["post", LEASES] = lambda request: (server._create(request), late)[1]
        taking = asyncio.create_task(a.elector.acquire())
        await until(lambda: server.lease)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await a.elector.release("")
        assert held(server) == ("", 0)
        hears.set()


async def test_lease_is_released_although_a_renewal_conflicts_with_the_release() -> None:
    server = LeaseServer()
    async with candidates("a", server=server) as (a,):
        await a.elector.acquire()

        def read_then_renewed(_: Request) -> Answer:
            answer = reply(200, json.loads(json.dumps(server.lease)))
            del server.script.always["get", LEASE]
            server.script.always["get", LEASE] = lambda _: server._read()
            server.edit(renewTime="later")
            return answer

        server.script.always["get", LEASE] = read_then_renewed
        await a.elector.release("4711")
        assert held(server) == ("", 0)
