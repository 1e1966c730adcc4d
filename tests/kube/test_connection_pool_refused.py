"""A 401 with requests in flight, and answers that did not come from an API server."""

import asyncio

import pytest

from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import InterceptedError
from tests.kube.scripted_server import Rule, Script, reply, serving, status, stream, until


async def send(connections: ConnectionPool) -> Answer:
    return await connections.send(b"POST", b"/x", b"{}", b"application/json")


class Tokens:
    """A token that can change; it counts the reads after a refusal."""

    def __init__(self) -> None:
        self.token = b"Bearer old"
        self.renewals = 0

    async def read(self, *, refused: bool) -> Credential:
        self.renewals += refused
        await asyncio.sleep(0)
        return Credential(self.token, where="the test")


def knows(token: bytes) -> Rule:
    """Accept requests with this token, refuse others."""
    unknown = status(401, "Unauthorized", "Unauthorized")
    return lambda request: reply(201) if request.headers["authorization"].encode() == token else unknown


async def test_burst_of_refused_tokens_is_one_renewal_and_each_request_is_sent_again_with_the_new_one() -> None:
    script, tokens = Script(), Tokens()
    script.always["post", "/x"] = knows(b"Bearer new")
    async with serving(script) as server:
        server.credential_source = tokens
        connections = ConnectionPool(server, 8)
        await server.authorization()
        tokens.token = b"Bearer new"
        answers = await asyncio.gather(*(send(connections) for _ in range(50)))
        await connections.close()
    assert {answer.status for answer in answers} == {201}
    assert tokens.renewals == 1


async def test_request_that_is_refused_after_others_renewed_the_token_is_sent_again() -> None:
    script, tokens, go = Script(), Tokens(), asyncio.Event()

    async def refuse_late(writer: asyncio.StreamWriter) -> None:
        await go.wait()
        await status(401, "Unauthorized", "Unauthorized")(writer)

    script.on("post", "/x", refuse_late)
    script.always["post", "/x"] = knows(b"Bearer new")
    async with serving(script) as server:
        server.credential_source = tokens
        connections = ConnectionPool(server, 8)
        late = asyncio.create_task(send(connections))
        await until(lambda: script.requests)
        tokens.token = b"Bearer new"
        assert (await send(connections)).status == 201
        go.set()
        assert (await late).status == 201
        await connections.close()
    assert tokens.renewals == 1


async def test_burst_of_refused_tokens_without_a_new_one_is_one_renewal_and_one_report() -> None:
    script, tokens, told = Script(), Tokens(), set[str]()
    script.always["post", "/x"] = knows(b"Bearer new")
    async with serving(script) as server:
        server.credential_source, server.on_credential_failure = tokens, told.add
        connections = ConnectionPool(server, 8)
        answers = await asyncio.gather(*(send(connections) for _ in range(50)))
        await connections.close()
    assert {answer.status for answer in answers} == {401}
    assert tokens.renewals == 1
    assert told == {"the test: the API server answers 401 Unauthorized"}


async def test_stream_that_is_refused_is_opened_again_with_the_new_token() -> None:
    script, tokens = Script(), Tokens()
    script.on("get", "/x", status(401, "Unauthorized"), stream(b"one", end="clean"))
    async with serving(script) as server:
        server.credential_source = tokens
        connections = ConnectionPool(server, 1)
        await server.authorization()
        tokens.token = b"Bearer new"
        async with connections.stream(b"/x", 5.0) as answer:
            assert (answer.status, await answer.read()) == (200, b"one")
        await connections.close()
    assert [request.headers["authorization"] for request in script.requests] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (200, b"<html>log in"),
        (302, b""),
        (400, b"<html>bad request"),
        (403, b"<html>a proxy"),
        (404, b"default backend - 404"),
        (405, b"<html>method not allowed"),
        (407, b""),
        (413, b"too large"),
        (418, b"\xff\xfe"),
        (422, b'{"error": "no"}'),
        (502, b"<html>bad gateway"),
        (503, b""),
    ],
)
async def test_answer_without_a_status_comes_from_a_server_before_the_api_server(code: int, body: bytes) -> None:
    script, told = Script(), list[InterceptedError]()
    script.on("post", "/x", reply(code, body))
    async with serving(script) as server:
        server.on_intercepted = told.append
        connections = ConnectionPool(server, 1)
        with pytest.raises(InterceptedError, match=f"in front of the API server answered {code}, without a Status"):
            await send(connections)
        await connections.close()
    assert [(error.status, error.request) for error in told] == [(code, "POST /x")]


@pytest.mark.parametrize(("code", "headers"), [(401, {}), (408, {}), (429, {}), (503, {"Retry-After": "3"})])
async def test_answer_that_asks_for_a_retry_is_accepted_from_any_sender(code: int, headers: dict[str, str]) -> None:
    script = Script()
    script.on("post", "/x", reply(code, b"Too many requests, please try again later.", headers))
    async with serving(script) as server:
        connections = ConnectionPool(server, 1)
        assert (await send(connections)).status == code
        await connections.close()
