import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from aischeduler.kube.access.dialer import (
    HAPPY_EYEBALLS_DELAY_SECONDS,
    PEER_TIMEOUT_SECONDS,
    Proxy,
    dial,
    parse_proxy,
    proxy_from_environment,
)
from aischeduler.kube.access.server import Server
from aischeduler.kube.http.connection import Answer
from aischeduler.kube.http.connection_pool import CONNECT_SECONDS, ConnectionPool
from aischeduler.kube.http.errors import AccessError, UnreachableError
from tests.kube.scripted_server import Script, reply, serving, stream, until

Address = tuple[int, int, int, str, tuple[str, int]]


def address(host: str, port: int) -> Address:
    return (socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))


@asynccontextmanager
async def black_hole() -> AsyncIterator[Address]:
    """Yield an address on loopback that accepts no connection, because its backlog is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.2", 0))
        listening.listen(0)
        host, port = listening.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((host, port))
        try:
            yield address(host, port)
        finally:
            for filler in fillers:
                filler.close()


async def get(connections: ConnectionPool) -> Answer:
    return await connections.send(b"GET", b"/x")


async def past_a_black_hole() -> float:
    """Send a request to a server whose first address is silent; return the seconds until the answer."""
    script = Script()
    script.on("get", "/x", reply(200))
    loop = asyncio.get_running_loop()
    async with serving(script) as server, black_hole() as dead:

        async def lookup(host: str, port: int) -> list[Address]:
            return [dead, address(server.host, server.port)]

        server.resolver = lookup
        connections, began = ConnectionPool(server, 1), loop.time()
        assert (await get(connections)).status == 200
        seconds = loop.time() - began
        await connections.close()
        return seconds


async def test_dead_first_address_does_not_use_up_the_time_of_the_second() -> None:
    seconds = await past_a_black_hole()
    assert HAPPY_EYEBALLS_DELAY_SECONDS <= seconds < CONNECT_SECONDS


def test_dead_first_address_does_not_use_up_the_time_of_the_second_on_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(past_a_black_hole()) < CONNECT_SECONDS


async def test_every_connection_has_the_socket_options_that_detect_a_dead_peer() -> None:
    script = Script()
    async with serving(script) as server:
        with await dial(server.host, server.port) as opened:
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            options = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 15_000}
            for name, value in options.items():
                if hasattr(socket, name):
                    assert opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value, name
            await until(lambda: script.connections)


@asynccontextmanager
async def proxying(
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n",
) -> AsyncIterator[tuple[int, list[str]]]:
    """Run a proxy that answers CONNECT and forwards on 200; yield its port and the requests."""
    heads: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        writer.write(answer)
        host, _, port = head.split()[1].rpartition(":")
        try:
            if answer.startswith(b"HTTP/1.1 200"):
                onward, away = await asyncio.open_connection(host, int(port))
                await asyncio.gather(copy(reader, away), copy(onward, writer), return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the server would log it
        finally:
            writer.close()
            await asyncio.sleep(0)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_requests_and_streams_go_through_the_tunnel_of_a_proxy() -> None:
    script = Script()
    script.on("get", "/x", reply(200, b"whole"), stream(b"piece"))
    async with serving(script) as server, proxying() as (port, heads):
        server.proxy = Proxy("127.0.0.1", port, b"Basic abc", "HTTPS_PROXY")
        connections = ConnectionPool(server, 1)
        assert (await get(connections)).body == b"whole"
        async with connections.stream(b"/x", 5.0) as answer:
            assert await answer.read() == b"piece"
        await connections.close()
    target = f"{server.host}:{server.port}"
    assert heads == [f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic abc\r\n\r\n"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "with 407 Proxy Authentication Required"),
        (b"HTTP/1.0 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "with 403 Forbidden"),
        (b"nonsense\r\n\r\n", "with no HTTP"),
        (b"", "the proxy .* closed the connection during CONNECT"),
    ],
)
async def test_proxy_that_opens_no_tunnel_is_named_with_its_answer(answer: bytes, reason: str) -> None:
    async with proxying(answer) as (port, _):
        server = Server("api.example", 443, asyncio.get_running_loop().time, proxy=Proxy("127.0.0.1", port, None, "F"))
        connections = ConnectionPool(server, 1)
        with pytest.raises(UnreachableError, match=rf"through the proxy http://127\.0\.0\.1:{port} \(F\): .*{reason}"):
            await get(connections)
        await connections.close()


NAMESPACE = f"ais-{os.getpid()}"
DEAF = """
import socket, sys
with socket.create_server(("10.231.0.2", 0)) as server:
    print(server.getsockname()[1], flush=True)
    peer, _ = server.accept()
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n1\\r\\nx\\r\\n")
    sys.stdin.read()
"""


@pytest.fixture
def far_end() -> Iterator[str]:
    """A network namespace that only a pair of virtual links connects."""
    tool = shutil.which("ip")
    if tool is None or os.geteuid() != 0:
        pytest.skip("a network namespace needs root and the program `ip`; the socket options are tested without them")

    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run([tool, *arguments], check=check, capture_output=True, text=True)

    made = run("netns", "add", NAMESPACE, check=False)
    if made.returncode:
        pytest.skip(f"this machine allows no network namespace: {made.stderr.strip()}")
    try:
        linked = run("link", "add", "ais0", "type", "veth", "peer", "name", "ais1", "netns", NAMESPACE, check=False)
        if linked.returncode:
            pytest.skip(f"this machine allows no virtual links: {linked.stderr.strip()}")
        run("addr", "add", "10.231.0.1/30", "dev", "ais0")
        run("link", "set", "ais0", "up")
        run("-n", NAMESPACE, "addr", "add", "10.231.0.2/30", "dev", "ais1")
        run("-n", NAMESPACE, "link", "set", "ais1", "up")
        yield tool
    finally:
        run("netns", "del", NAMESPACE, check=False)
        run("link", "del", "ais0", check=False)


async def test_stream_of_a_peer_whose_network_is_gone_ends_long_before_its_silence_limit(far_end: str) -> None:
    """The link of the peer goes down: no byte and no reset arrives, as when a machine dies."""
    loop = asyncio.get_running_loop()
    peer = await asyncio.create_subprocess_exec(
        *(far_end, "netns", "exec", NAMESPACE, sys.executable, "-c", DEAF),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert peer.stdout is not None
        server = Server("10.231.0.2", json.loads(await peer.stdout.readline()), loop.time)
        connections = ConnectionPool(server, 1)
        async with connections.stream(b"/x", 75.0) as answer:
            assert await answer.read() == b"x"
            subprocess.run([far_end, "-n", NAMESPACE, "link", "set", "ais1", "down"], check=True)
            began = loop.time()
            with pytest.raises(UnreachableError, match="the connection broke during the answer"):
                await answer.read()
            assert loop.time() - began < 3 * PEER_TIMEOUT_SECONDS
        await connections.close()
    finally:
        peer.kill()
        await peer.wait()


PROXY = "http://proxy.example:3128"


def chosen(host: str, no_proxy: str, port: int = 443) -> bool:
    """Say whether the proxy of the environment is used for this host."""
    return proxy_from_environment(True, host, port, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) is not None


def test_https_and_http_servers_have_variables_of_their_own() -> None:
    both = {"HTTPS_PROXY": "http://s:1", "HTTP_PROXY": "http://p:2", "https_proxy": "http://small:3"}
    assert proxy_from_environment(True, "h.example", 443, both) == Proxy("s", 1)
    assert proxy_from_environment(False, "h.example", 80, both) == Proxy("p", 2)
    assert proxy_from_environment(True, "h.example", 443, {"HTTPS_PROXY": "", "https_proxy": "small"}) == Proxy(
        "small", 80
    )
    assert proxy_from_environment(True, "h.example", 443, {"HTTP_PROXY": "http://p:2"}) is None


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.example.com", "*"),
        ("api.example.com", "other, example.com"),
        ("api.example.com", ".example.com"),
        ("api.example.com", "*.example.com"),
        ("API.example.com", "api.EXAMPLE.com"),
        ("api.example.com", "api.example.com:443"),
        ("10.96.0.1", "10.96.0.0/12"),
        ("10.96.0.1", "10.96.0.1"),
        ("10.96.0.1", "10.96.0.1:443"),
        ("fd00::1", "fd00::/8"),
        ("fd00::1", "[fd00::1]:443"),
        ("fd00::1", "fd00:0::1"),
        ("localhost", ""),
        ("127.0.0.2", ""),
        ("::1", ""),
    ],
)
def test_no_proxy_excludes_what_client_go_excludes(host: str, no_proxy: str) -> None:
    assert not chosen(host, no_proxy)


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.example.com", ""),
        ("api.example.com", " , "),
        ("example.com", ".example.com"),
        ("badexample.com", "example.com"),
        ("api.example.com", "api.example.com:8443"),
        ("10.96.0.1", "10.97.0.0/16"),
        ("10.96.0.1", "10.96.0.1:6443"),
        ("api.example.com", "10.96.0.0/12"),
        ("10.96.0.1", "nonsense/99"),
        ("10.96.0.1", ":443"),
    ],
)
def test_proxy_is_used_for_hosts_that_no_proxy_does_not_name(host: str, no_proxy: str) -> None:
    assert chosen(host, no_proxy)


def test_name_and_password_of_a_proxy_are_sent_and_never_shown() -> None:
    proxy = parse_proxy("http://me:p%40ss@proxy.example:3128", "config: cluster 'c': proxy-url")
    assert b"\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n" in proxy.request("h:443")
    assert str(proxy) == "http://proxy.example:3128 (config: cluster 'c': proxy-url)"
    assert "bWU6" not in repr(proxy)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://u:secret@p:1", "F names a https:// proxy; only http:// is supported"),
        ("socks5://p:1", "F names a socks5:// proxy; only http:// is supported"),
        ("http://p:99999", "F is not a valid proxy address"),
        ("http://", "F is not a valid proxy address"),
    ],
)
def test_proxy_that_cannot_be_used_is_refused_with_its_field(text: str, reason: str) -> None:
    with pytest.raises(AccessError) as caught:
        parse_proxy(text, "F")
    assert str(caught.value) == reason
