"""Clients of the HTTP port that send many requests, never read their answer, or never send a request."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from aischeduler.observability.connection_limit import OPEN_MAX, accept_connections, close_after_answer
from aischeduler.observability.telemetry import listen

LARGE = 8 << 20
"""Bytes: more than the buffers of both ends of a connection hold."""
DEADLINE_SECONDS = 120
FLOOD = 100
"""Connections that come before a probe; the backlog of a listener holds at least so many."""
PROBE_TIMEOUT_SECONDS = 1
"""The kubelet's own limit for the answer to a probe, if none is set."""


@asynccontextmanager
async def limited_server() -> AsyncIterator[tuple[web.Server, tuple[str, int]]]:
    """Yield a server behind the limit that answers `/` with a word and `/large` with many bytes, and its address."""

    async def small(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE))

    pages = web.Application(middlewares=[close_after_answer])
    pages.add_routes([web.get("/", small), web.get("/large", large)])
    runner = web.AppRunner(pages, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = listen("127.0.0.1:0")
    assert listener is not None
    assert runner.server is not None
    accepting = asyncio.create_task(accept_connections(listener, runner.server))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield runner.server, listener.getsockname()
    finally:
        accepting.cancel()
        await runner.cleanup()
        listener.close()


def ask(address: tuple[str, int], request: bytes) -> socket.socket:
    """Send a request and read nothing; the caller closes the socket."""
    client = socket.create_connection(address, timeout=5)
    client.sendall(request)
    return client


async def get(address: tuple[str, int], path: str = "/") -> tuple[int, str]:
    url = f"http://{address[0]}:{address[1]}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, answer.headers["Connection"]


async def until_open(server: web.Server, number: int) -> None:
    while len(server.connections) != number:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "request_sent", [b"", b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["silent", "never reads"]
)
async def test_connections_that_stay_open_are_closed_for_newer_ones(request_sent: bytes) -> None:
    async with limited_server() as (server, address):
        clients = [ask(address, request_sent) for _ in range(OPEN_MAX)]
        await until_open(server, OPEN_MAX)
        first, last = server.connections[0], server.connections[-1]
        assert await get(address) == (200, "close")
        await until_open(server, OPEN_MAX - 1)
        assert first not in server.connections
        assert last in server.connections
        for client in clients:
            client.close()


async def test_no_more_connections_are_open_than_the_limit() -> None:
    async with limited_server() as (server, address):
        clients = [ask(address, b"") for _ in range(OPEN_MAX + 10)]
        assert await get(address) == (200, "close")
        await until_open(server, OPEN_MAX - 1)
        for client in clients:
            client.close()


async def test_probe_is_answered_soon_behind_a_flood_of_connections() -> None:
    """Accepted at a rate, such a flood kept the kubelet's probes waiting until the kubelet ended the daemon."""
    async with limited_server() as (_, address):
        clients = [ask(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(FLOOD)]
        async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
            assert await get(address) == (200, "close")
        for client in clients:
            client.close()


@pytest.mark.parametrize(("path", "status"), [("/", 200), ("/nothing", 404)])
async def test_connection_ends_with_its_answer(path: str, status: int) -> None:
    async with limited_server() as (server, address):
        assert await get(address, path) == (status, "close")
        await until_open(server, 0)


async def test_requests_sent_in_advance_get_one_answer() -> None:
    async with limited_server() as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        writer.close()


async def test_client_that_is_gone_before_its_turn_does_not_end_the_accepting() -> None:
    async with limited_server() as (_, address):
        for _ in range(20):
            client = ask(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close says RST
            client.close()
        assert await get(address) == (200, "close")
