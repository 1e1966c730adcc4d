import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.access.exec_credential import RERUN_SECONDS
from aischeduler.kube.access.server import REREAD_SECONDS, Server, Tls, from_kubeconfig
from aischeduler.kube.http import connection, connection_pool
from aischeduler.kube.http.client import LIST_SECONDS, REQUESTS_IN_FLIGHT_MAX, Client, LineSplitter
from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import RefusedError, UnreachableError
from aischeduler.kube.watch.list_pager import pages, read_raw
from aischeduler.kube.watch.watched_resources import nodes
from tests.controlplane.certificates import Authority, Identity
from tests.kube.kubeconfig_files import credential, printing, runs, times_asked
from tests.kube.scripted_server import Answer as ScriptedAnswer
from tests.kube.scripted_server import Script, hang, reply, serving, slam, status, stream, until


async def test_refusal_has_the_servers_reason_and_message() -> None:
    script = Script()
    script.on("get", "/x", status(403, "Forbidden", "pods is forbidden", {"Retry-After": "3"}))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(RefusedError, match="403 Forbidden: pods is forbidden") as caught:
            await client.get("/x")
    assert (caught.value.status, caught.value.reason, caught.value.retry_after_seconds) == (403, "Forbidden", 3.0)


async def test_refusal_without_a_status_is_not_the_api_servers_and_quotes_the_body() -> None:
    script = Script()
    script.on("get", "/x", reply(502, b"<html>bad gateway"))
    script.on("watch", "/x", reply(404, b"default backend - 404"))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(
            UnreachableError, match=r"GET /x: a server in front of the API server answered 502.*<html>bad"
        ):
            await client.get("/x")
        with pytest.raises(UnreachableError, match="GET /x: a server in front of the API server answered 404"):
            async with client.watch("/x", {"watch": "true"}, 1.0):
                pytest.fail("a watch began with an answer that no API server sent")


@pytest.mark.parametrize(
    ("piece", "pause", "problem"), [(b"x" * 65_536, 0.0, "is larger than 1048576 bytes"), (b"x", 0.02, "within 0.3 s")]
)
async def test_refusal_of_a_watch_that_never_ends_is_unreachable(piece: bytes, pause: float, problem: str) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause)

    script = Script()
    script.on("watch", "/x", endless)
    async with serving(script) as server, Client(server) as client, asyncio.timeout(120):
        client.connections.answer_seconds = 0.3 if pause else 30.0
        with pytest.raises(UnreachableError, match=f"GET /x: the refusal .*{problem}"):
            async with client.watch("/x", {"watch": "true"}, 75.0):
                pytest.fail("a watch began with a refusal")


async def test_kind_that_an_api_server_does_not_serve_is_refused_in_plain_text() -> None:
    script = Script()
    script.on("get", "/apis/resource.aibee.cn/v1alpha1/pools", reply(404, b"404 page not found\n"))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(RefusedError, match="404 Unknown: 404 page not found"):
            await client.get("/apis/resource.aibee.cn/v1alpha1/pools")


async def test_request_has_the_headers_of_a_client() -> None:
    script = Script()
    script.on("get", "/x", reply(200))
    async with serving(script) as server, Client(server) as client:
        await client.get("/x", {"fieldSelector": "a!=b,c=d", "continue": "a&b="})
    (request,) = script.requests
    assert request.query == {"fieldSelector": "a!=b,c=d", "continue": "a&b="}
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["accept"] == "application/json"
    assert request.headers["user-agent"].startswith("ai-scheduler/")


async def test_cut_connection_is_unreachable() -> None:
    script = Script()
    script.always["get", "/cut"] = lambda _: slam
    script.on("get", "/x", stream(b"half", end="cut"))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(UnreachableError, match="GET /cut"):
            await client.get("/cut")
        with pytest.raises(UnreachableError, match="GET /x: the connection broke during the answer"):
            await client.get("/x")


async def test_watch_opens_while_the_most_reads_in_flight_hang() -> None:
    script = Script()
    script.always["get", "/pod"] = lambda _: hang
    script.on("watch", "/pods", stream(b"line"))
    async with serving(script) as server, Client(server) as client:
        reads = [asyncio.create_task(client.get("/pod")) for _ in range(2 * REQUESTS_IN_FLIGHT_MAX)]
        await until(lambda: len(script.asked("get")) == REQUESTS_IN_FLIGHT_MAX)
        async with client.watch("/pods", {"watch": "true"}, 1.0) as watch:
            assert await watch.read() == b"line"
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_answer_that_is_too_large_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_BYTES_MAX", 1000)
    script = Script()
    script.on("get", "/x", reply(200, b"x" * 5000))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(UnreachableError, match="larger than 1000 bytes"):
            await client.get("/x")


async def test_slow_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SWEEP_SECONDS", 0.01)
    script = Script()
    script.on("get", "/x", stream(b"and then nothing"))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(UnreachableError, match=r"GET /x: no answer within 0\.03 s"):
            await client.get("/x", seconds=0.03)


async def test_list_may_take_longer_than_the_read_of_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []
    send = ConnectionPool.send

    async def send_and_note(
        self: ConnectionPool, method: bytes, path: bytes, body: bytes, content_type: bytes, seconds: float | None
    ) -> Answer:
        limits.append(seconds)
        return await send(self, method, path, body, content_type, seconds)

    monkeypatch.setattr(ConnectionPool, "send", send_and_note)
    script = Script()
    script.always["get", "/api/v1/nodes"] = lambda _: reply(200, {"metadata": {}})
    async with serving(script) as server, Client(server) as client:
        await client.get("/api/v1/nodes")
        async for _ in pages(client, nodes(), read_raw):
            pass
    assert limits == [None, LIST_SECONDS]


@asynccontextmanager
async def serving_tls(script: Script, authority: Authority, identity: Identity) -> AsyncIterator[Server]:
    """Serve only clients with a certificate of the CA."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.load_cert_chain(identity.certificate, identity.key)
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(script, context) as server:
        yield server


def write_kubeconfig(path: Path, server: Server, authority: Authority, client: Identity | None) -> str:
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)} if client else {}
    cluster = {"server": f"https://{server.host}:{server.port}", "certificate-authority": str(authority.certificate)}
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_client_certificate_is_accepted_for_requests_and_watches(tmp_path: Path) -> None:
    authority, script = Authority(tmp_path), Script()
    script.on("get", "/x", reply(200, b"listed"))
    script.on("post", "/x", reply(201, b"bound"))
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        me = authority.client("ai-scheduler", "system:masters")
        path = write_kubeconfig(tmp_path / "config", address, authority, me)
        server = await from_kubeconfig(path, None, address.clock)
        async with Client(server) as client:
            assert await client.get("/x") == b"listed"
        connection_pool = ConnectionPool(server, 1)
        assert (await connection_pool.send(b"POST", b"/x", b"{}", b"application/json")).body == b"bound"
        await connection_pool.close()


async def test_credentials_in_the_kubeconfig_are_accepted_for_requests_and_watches(tmp_path: Path) -> None:
    authority, script = Authority(tmp_path), Script()
    script.on("get", "/x", reply(200, b"listed"))
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        me = authority.client("ai-scheduler", "system:masters")
        path = tmp_path / "config"
        document = yaml.safe_load(Path(write_kubeconfig(path, address, authority, me)).read_text())
        for part in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
            for name in [name for name in part if name != "server"]:
                part[f"{name}-data"] = b64encode(Path(part.pop(name)).read_bytes()).decode()
        path.write_text(yaml.safe_dump(document))
        server = await from_kubeconfig(str(path), None, address.clock)
        assert server.tls is not None
        assert server.tls.context.get_ca_certs(binary_form=True) == [der(authority.certificate)]
        async with Client(server) as client:
            assert await client.get("/x") == b"listed"


async def test_certificate_of_a_credential_plugin_is_accepted(tmp_path: Path) -> None:
    authority, script = Authority(tmp_path), Script()
    script.on("get", "/x", reply(200, b"listed"))
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        path = with_program(tmp_path, address, authority, authority.client("me", ""))
        async with Client(await from_kubeconfig(path, None, address.clock)) as client:
            assert await client.get("/x") == b"listed"


async def test_401_opens_a_connection_with_the_new_certificate_of_a_plugin(tmp_path: Path) -> None:
    authority, script, now = Authority(tmp_path), Script(), 100.0
    script.always["get", "/x"] = lambda _: known_as("second")
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        path = with_program(tmp_path, address, authority, authority.client("first", ""))
        async with Client(await from_kubeconfig(path, None, lambda: now)) as client:
            with pytest.raises(RefusedError, match="first is not known"):
                await client.get("/x")
            with_program(tmp_path, address, authority, authority.client("second", ""))
            now += RERUN_SECONDS
            assert await client.get("/x") == b"second"
            assert await client.get("/x") == b"second"
    assert (script.connections, times_asked(tmp_path)) == (2, 2)


async def test_401_opens_a_connection_with_the_new_certificate_in_the_files(tmp_path: Path) -> None:
    authority, script = Authority(tmp_path), Script()
    script.always["get", "/x"] = lambda _: known_as("second")
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        first, second = authority.client("first", ""), authority.client("second", "")
        path = write_kubeconfig(tmp_path / "config", address, authority, first)
        async with Client(await from_kubeconfig(path, None, lambda: 0.0)) as client:
            second.certificate.replace(first.certificate)
            second.key.replace(first.key)
            assert await client.get("/x") == b"second"


async def test_certificate_whose_key_is_not_written_yet_leaves_the_old_pair_in_use(tmp_path: Path) -> None:
    authority, script, now = Authority(tmp_path), Script(), 100.0
    async with serving_tls(script, authority, authority.server("kube-apiserver")) as address:
        first, second = authority.client("first", ""), authority.client("second", "")
        path = tmp_path / "config"
        document = yaml.safe_load(Path(write_kubeconfig(path, address, authority, first)).read_text())
        cluster = document["clusters"][0]["cluster"]
        cluster["certificate-authority-data"] = b64encode(
            Path(cluster.pop("certificate-authority")).read_bytes()
        ).decode()
        path.write_text(yaml.safe_dump(document))
        server = await from_kubeconfig(str(path), None, lambda: now)
        for source, target, name in (
            (second.certificate, first.certificate, "first"),
            (second.key, first.key, "second"),
        ):
            source.replace(target)
            now += REREAD_SECONDS
            script.on("get", "/x", known_as(name))
            async with Client(server) as client:
                assert await client.get("/x") == name.encode()


def with_program(directory: Path, server: Server, authority: Authority, me: Identity) -> str:
    """Write a kubeconfig whose plugin prints this certificate."""
    path = directory / "config"
    document = yaml.safe_load(Path(write_kubeconfig(path, server, authority, None)).read_text())
    printed = credential(clientCertificateData=me.certificate.read_text(), clientKeyData=me.key.read_text())
    document["users"][0]["user"] = runs(printing(directory / "program", printed))
    path.write_text(yaml.safe_dump(document))
    return str(path)


def known_as(name: str) -> ScriptedAnswer:
    """Answer with the common name of the client certificate; accept only this one."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        subject = dict(pairs for (pairs,) in writer.get_extra_info("peercert")["subject"])["commonName"]
        unknown = status(401, "Unauthorized", f"{subject} is not known")
        await (reply(200, subject.encode()) if subject == name else unknown)(writer)

    return answer


def der(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


async def test_server_of_another_ca_is_refused(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    async with serving_tls(Script(), theirs, theirs.server("kube-apiserver")) as address:
        path = write_kubeconfig(tmp_path / "config", address, ours, ours.client("me", ""))
        server = await from_kubeconfig(path, None, address.clock)
        async with Client(server) as client:
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await client.get("/x")
        connection_pool = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await connection_pool.send(b"POST", b"/x", b"{}", b"application/json")
        await connection_pool.close()


async def test_new_ca_in_the_file_is_trusted_after_a_while(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(old.certificate.read_bytes())
    script, now = Script(), 0.0
    script.on("post", "/x", reply(201))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    identity = new.server("kube-apiserver")
    context.load_cert_chain(identity.certificate, identity.key)
    async with serving(script, context) as address:
        tls = Tls(ssl.create_default_context(cafile=str(bundle)), ca_file=str(bundle))
        tls.reload()
        server = Server(address.host, address.port, lambda: now, tls=tls)
        connection_pool = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError):
            await connection_pool.send(b"POST", b"/x", b"{}", b"application/json")
        bundle.write_bytes(new.certificate.read_bytes())
        now += 60.0
        assert (await connection_pool.send(b"POST", b"/x", b"{}", b"application/json")).status == 201
        await connection_pool.close()


async def test_ca_that_left_the_file_is_not_trusted_by_new_connections(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    bundle = tmp_path / "ca.crt"
    bundle.write_bytes(old.certificate.read_bytes())
    me, now, script = old.client("me", ""), 0.0, Script()
    script.always["get", "/x"] = lambda _: reply(200)
    async with serving_tls(script, old, old.server("kube-apiserver")) as address:
        path = write_kubeconfig(tmp_path / "config", address, old, me)
        Path(path).write_text(Path(path).read_text().replace(str(old.certificate), str(bundle)))
        server = await from_kubeconfig(path, None, lambda: now)
        connection_pool = ConnectionPool(server, 1)
        assert (await connection_pool.send(b"GET", b"/x")).status == 200
        bundle.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
        now += REREAD_SECONDS
        await connection_pool.close()
        again = ConnectionPool(server, 1)
        assert (await again.send(b"GET", b"/x")).status == 200, "the client certificate is still sent"
        await again.close()
        bundle.write_bytes(new.certificate.read_bytes())
        now += REREAD_SECONDS
        last = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            await last.send(b"GET", b"/x")
        await last.close()


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.integers(1, 7))
def test_lines_are_whole_however_the_chunks_are_cut(lines: list[bytes], size: int) -> None:
    text = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = [line for i in range(0, len(text), size) for line in splitter.feed(text[i : i + size])]
    assert found == lines
    assert not splitter.unfinished


def test_a_line_that_has_begun_is_unfinished() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.unfinished
    assert splitter.feed(b"o\n") == [b"two"]
