"""kopf asks the API server as our own client does, and waits while there is no answer."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from ssl import Purpose, create_default_context

from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.access.dialer import Proxy
from aischeduler.kube.access.server import Tls
from aischeduler.operator.session import session_of
from tests.controlplane.certificates import Authority
from tests.kube.scripted_server import Script, Waits, hang, reply, serving, slam, status, until

PATH = "/api/v1/pods"


@dataclass
class Tokens:
    """Credentials of which the API server refuses the first ones."""

    number: int = 1

    async def read(self, *, refused: bool) -> Credential:
        self.number += refused
        return Credential(f"Bearer {self.number}".encode())


async def test_request_has_the_identity_of_our_client() -> None:
    script = Script()
    script.on("get", PATH, reply(200, {"items": []}))
    async with serving(script) as server:
        named = replace(
            server, credential_source=Tokens(), impersonation=b"Impersonate-User: a\r\nImpersonate-Group: b\r\n"
        )
        async with session_of(named) as session, session.get(f"{named.url}{PATH}") as answer:
            assert answer.status == 200
    headers = script.requests[0].headers
    assert (headers["authorization"], headers["impersonate-user"], headers["impersonate-group"]) == (
        "Bearer 1",
        "a",
        "b",
    )
    assert headers["user-agent"].startswith("ai-scheduler/")


async def test_refused_credentials_are_read_again_before_anything_waits() -> None:
    script, waits = Script(), Waits()
    script.on("get", PATH, status(401), reply(200))
    async with serving(script) as server:
        named = replace(server, credential_source=Tokens())
        async with session_of(named, waits.sleep) as session, session.get(f"{named.url}{PATH}") as answer:
            assert answer.status == 200
    assert [one.headers["authorization"] for one in script.requests] == ["Bearer 1", "Bearer 2"]
    assert waits.seconds == []


async def test_outage_is_waited_for_and_other_answers_are_passed_on() -> None:
    script, waits = Script(), Waits()
    overloaded = status(429, headers={"Retry-After": "7"})
    script.on("get", PATH, slam, status(503), overloaded, status(410, "Expired"))
    async with (
        serving(script) as server,
        session_of(server, waits.sleep) as session,
        session.get(f"{server.url}{PATH}") as answer,
    ):
        assert answer.status == 410
    assert waits.seconds == [1, 1, 7]


async def test_try_without_an_answer_ends_and_is_repeated() -> None:
    script, waits = Script(), Waits()
    script.on("get", PATH, hang)
    script.always["get", PATH] = lambda _: reply(200)
    async with (
        serving(script) as server,
        session_of(server, waits.sleep, script.answer_seconds) as session,
        session.get(f"{server.url}{PATH}") as answer,
    ):
        assert answer.status == 200


async def test_changed_authority_counts_for_the_next_try(tmp_path: Path) -> None:
    authority, script, tls = Authority(tmp_path), Script(), Tls(create_default_context(), server_name="localhost")
    identity, context = authority.server("server"), create_default_context(Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)

    async def rotate(_seconds: float) -> None:
        tls.context = create_default_context(cafile=authority.certificate)

    script.on("get", PATH, reply(200))
    async with (
        serving(script, context) as server,
        session_of(replace(server, tls=tls), rotate) as session,
        session.get(f"https://127.0.0.1:{server.port}{PATH}") as answer,
    ):
        assert answer.status == 200


async def test_proxy_gets_a_connect_with_its_authorization() -> None:
    script, waits = Script(), Waits()
    waits.hold()
    async with serving(script) as server:
        proxy = Proxy(server.host, server.port, b"Basic eA==")
        behind = replace(server, host="api.example.com", port=443, tls=Tls(create_default_context()), proxy=proxy)
        async with session_of(behind, waits.sleep) as session:
            asking = asyncio.create_task(session.get(f"{behind.url}{PATH}"))
            await until(lambda: waits.held)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
    (asked,) = script.requests
    assert (asked.method, asked.target) == ("CONNECT", "api.example.com:443")
    assert asked.headers["proxy-authorization"] == "Basic eA=="
