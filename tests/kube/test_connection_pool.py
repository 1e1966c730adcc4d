import asyncio
from collections.abc import AsyncIterator

import pytest

from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.access.server import Server
from aischeduler.kube.http import connection
from aischeduler.kube.http import connection_pool as module
from aischeduler.kube.http.connection import Answer, Stream
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import UnreachableError
from tests.kube.scripted_server import Script, hang, reply, serving, settled, slam, status, stream, until

JSON = b"application/json"


async def send(connections: ConnectionPool, path: bytes = b"/x", body: bytes = b"{}") -> Answer:
    return await connections.send(b"POST", path, body, JSON)


async def test_request_and_answer_arrive_complete() -> None:
    script = Script()
    script.on("post", "/x", reply(201, b"made", {"Retry-After": "9"}))
    async with serving(script) as server:
        connections = ConnectionPool(server, 2)
        assert await send(connections, body=b"body") == Answer(201, "9", b"made")
        await connections.close()
    request = script.requests[0]
    assert (request.method, request.body) == ("POST", b"body")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["host"].startswith("127.0.0.1:")
    assert "authorization" not in request.headers


async def test_connection_is_used_again() -> None:
    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        connections = ConnectionPool(server, 2)
        for _ in range(5):
            assert (await send(connections)).status == 201
        await connections.close()
    assert script.connections == 1


async def test_answer_in_chunks_is_read() -> None:
    script = Script()
    script.on("post", "/x", stream(b"one", b"two", end="clean"))
    async with serving(script) as server:
        connections = ConnectionPool(server, 2)
        assert (await send(connections)).body == b"onetwo"
        await connections.close()


async def test_no_more_than_the_limit_are_in_flight() -> None:
    script, flying, most, release = Script(), 0, 0, asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await release.wait()
        flying -= 1
        await reply(201)(writer)

    script.always["post", "/x"] = lambda _: slow
    async with serving(script) as server:
        connections = ConnectionPool(server, 3)
        asked = [asyncio.create_task(send(connections)) for _ in range(12)]
        await settled()
        assert flying == 3
        release.set()
        answers = await asyncio.gather(*asked)
        await connections.close()
    assert [answer.status for answer in answers] == [201] * 12
    assert most == 3


async def test_no_answer_in_time_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    script = Script()
    script.on("post", "/x", hang, reply(201))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1, answer_seconds=0.03)
        with pytest.raises(UnreachableError, match=r"no answer within 0\.03 s"):
            await send(connections)
        assert (await send(connections)).status == 201
        await connections.close()


async def test_time_without_any_answer_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.05)
    script, go = Script(), asyncio.Event()

    async def answer_later(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await reply(201)(writer)

    script.on("post", "/x", answer_later)
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        sending = asyncio.create_task(send(connections))
        await until(lambda: connections.stalled_seconds >= 0.2)
        go.set()
        assert (await sending).status == 201
        await connections.close()


async def test_time_with_an_answer_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.2)
    script = Script()
    script.on("post", "/slow", hang)
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        connections = ConnectionPool(server, 2)
        hanging = asyncio.create_task(send(connections, b"/slow"))
        end = asyncio.get_running_loop().time() + 1.0
        while asyncio.get_running_loop().time() < end:
            await send(connections)
        assert connections.stalled_seconds == 0.0
        hanging.cancel()
        await connections.close()


async def test_time_without_a_request_in_flight_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.02)
    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        await send(connections)
        await asyncio.sleep(0.1)
        await send(connections)
        assert connections.stalled_seconds == 0.0
        await connections.close()


async def test_connection_cut_before_the_answer_is_unreachable_and_replaced() -> None:
    script = Script()
    script.on("post", "/x", slam, reply(201))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError, match="broke before the answer"):
            await send(connections)
        assert (await send(connections)).status == 201
        await connections.close()


async def test_answer_that_is_not_http_is_unreachable() -> None:
    async def noise(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x15\x03\x01 what is this\r\n\r\n")
        await writer.drain()

    script = Script()
    script.on("post", "/x", noise)
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError, match="not HTTP"):
            await send(connections)
        await connections.close()


async def test_address_without_a_server_is_unreachable() -> None:
    connections = ConnectionPool(Server("127.0.0.1", 1, asyncio.get_running_loop().time), 1)
    with pytest.raises(UnreachableError, match=r"no connection to http://127\.0\.0\.1:1"):
        await send(connections)
    await connections.close()


async def test_connection_that_the_server_closes_after_an_answer_is_not_used_again() -> None:
    script = Script()
    script.on("post", "/x", reply(201, headers={"Connection": "close"}), reply(202))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        assert (await send(connections)).status == 201
        assert (await send(connections)).status == 202
        await connections.close()


async def test_connection_that_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", -1.0)
    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        await send(connections)
        await send(connections)
        await connections.close()
    assert script.connections == 2


async def test_connections_of_a_burst_are_closed_when_they_are_idle_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        connections = ConnectionPool(server, 20)
        await asyncio.gather(*(send(connections) for _ in range(20)))
        assert script.open == script.connections == 20
        while script.open > 1:
            assert (await send(connections)).status == 201
        await until(lambda: script.open == 0)
        assert (await send(connections)).status == 201
        await connections.close()


async def test_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script()
    script.always["post", "/x"] = lambda _: hang
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        sending = [asyncio.create_task(send(connections)) for _ in range(4)]
        await until(lambda: len(script.requests) == 1)
        connections.raise_limit(3)
        connections.raise_limit(2)
        await until(lambda: len(script.requests) == 3)
        await connections.close()
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await connections.close()


async def test_close_ends_requests_in_flight() -> None:
    script = Script()
    script.on("post", "/x", hang)
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        task = asyncio.create_task(send(connections))
        await until(lambda: script.requests)
        await connections.close()
        with pytest.raises(UnreachableError, match="was closed"):
            await task


async def test_token_is_sent_and_renewed() -> None:
    class Source:
        tokens = iter([b"Bearer one", b"Bearer two"])

        async def read(self, *, refused: bool) -> Credential:
            return Credential(next(self.tokens))

    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        server.credential_source = Source()
        connections = ConnectionPool(server, 1)
        await send(connections)
        script.on("post", "/x", status(401, "Unauthorized"))
        assert (await send(connections)).status == 201
        await connections.close()
    sent = [request.headers["authorization"] for request in script.requests]
    assert sent == ["Bearer one", "Bearer one", "Bearer two"]


async def test_impersonation_is_in_the_headers_of_every_request() -> None:
    script = Script()
    script.always["post", "/x"] = lambda _: reply(201)
    async with serving(script) as server:
        server.impersonation = b"Impersonate-User: jane\r\nImpersonate-Group: developers\r\n"
        connections = ConnectionPool(server, 1)
        await send(connections)
        await send(connections)
        await connections.close()
    for request in script.requests:
        assert (request.headers["impersonate-user"], request.headers["impersonate-group"]) == ("jane", "developers")


async def test_stream_returns_its_chunks_and_its_clean_end_and_the_connection_is_used_again() -> None:
    script = Script()
    script.on("get", "/x", stream(b"one", b"two", end="clean"), reply(200, b"three"))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        async with connections.stream(b"/x", 5.0) as answer:
            assert answer.status == 200
            assert b"".join([piece async for piece in pieces(answer)]) == b"onetwo"
        assert (await connections.send(b"GET", b"/x")).body == b"three"
        await connections.close()
    assert script.connections == 1


async def test_stream_that_is_cut_returns_its_chunks_before_the_error() -> None:
    script = Script()
    script.on("get", "/x", stream(b"half", end="cut"))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        async with connections.stream(b"/x", 5.0) as answer:
            assert await answer.read() == b"half"
            with pytest.raises(UnreachableError, match="during the answer"):
                await answer.read()
        await connections.close()


async def test_stream_without_bytes_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    script = Script()
    script.on("get", "/x", stream(b"and then nothing"))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        async with connections.stream(b"/x", 0.5) as answer:
            assert await answer.read() == b"and then nothing"
            with pytest.raises(UnreachableError, match=r"no answer within 0\.5 s"):
                await answer.read()
        await connections.close()


async def test_stream_whose_reader_is_slow_is_not_silent_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(connection, "BUFFERED_BYTES_MAX", 1000)
    script = Script()
    script.on("get", "/x", stream(*[b"%06d" % number * 1000 for number in range(200)], end="clean"))
    async with serving(script) as server:
        connections, longest = ConnectionPool(server, 1), 0
        found = b""
        async with connections.stream(b"/x", 0.5) as answer:
            await asyncio.sleep(0.8)
            async for piece in pieces(answer):
                longest = max(longest, len(piece))
                found += piece
        await connections.close()
    assert found == b"".join(b"%06d" % number * 1000 for number in range(200))
    assert longest < 300_000, "the server waited for the reader"


async def pieces(answer: Stream) -> AsyncIterator[bytes]:
    while piece := await answer.read():
        yield piece
