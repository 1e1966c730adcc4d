import asyncio
import os
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube import auth
from aischeduler.kube.auth import REREAD_SECONDS, Server, TokenFile, connect, from_kubeconfig, in_cluster
from aischeduler.kube.client import Client
from aischeduler.kube.errors import AccessError
from tests.controlplane.certificates import Authority
from tests.kube.scripted import Script, reply, serving, status


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def kubeconfig(path: Path, *, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "http://127.0.0.1:1234", **cluster}},
            {"name": "d", "cluster": {"server": "https://example.com/k8s/clusters/x/"}},
        ],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_plain_http_of_a_kubeconfig(tmp_path: Path) -> None:
    server = await from_kubeconfig(kubeconfig(tmp_path / "config"), None, Clock())
    assert (server.host, server.port, server.tls, server.prefix) == ("127.0.0.1", 1234, None, "")
    assert server.url == "http://127.0.0.1:1234"
    assert await server.authorization() is None


async def test_another_context_with_a_path_in_its_address(tmp_path: Path) -> None:
    server = await from_kubeconfig(kubeconfig(tmp_path / "config"), "two", Clock())
    assert server.url == "https://example.com:443/k8s/clusters/x"
    assert server.tls is not None
    assert server.tls.context.verify_mode is ssl.CERT_REQUIRED


async def test_token_of_a_kubeconfig(tmp_path: Path) -> None:
    server = await from_kubeconfig(kubeconfig(tmp_path / "config", user={"token": "abc"}), None, Clock())
    assert await server.authorization() == b"Bearer abc"


async def test_token_file_of_a_kubeconfig_is_read_again(tmp_path: Path) -> None:
    clock, token = Clock(), tmp_path / "token"
    token.write_text("first")
    server = await from_kubeconfig(kubeconfig(tmp_path / "config", user={"tokenFile": str(token)}), None, clock)
    assert await server.authorization() == b"Bearer first"
    token.write_text("second")
    assert await server.authorization() == b"Bearer first"
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer second"


async def test_exec_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"made"}}'
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }
    server = await from_kubeconfig(kubeconfig(tmp_path / "config", user=user), None, Clock())
    assert await server.authorization() == b"Bearer made"


async def test_missing_file_is_one_sentence_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="nothing-here: there is no such kubeconfig file"):
        await from_kubeconfig(str(tmp_path / "nothing-here"), None, Clock())


@pytest.mark.parametrize("text", ["", "[]", "{}", "a: [", "current-context: x\ncontexts: 5\n"])
async def test_file_that_is_no_kubeconfig_is_one_sentence_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(AccessError, match="config: ") as caught:
        await from_kubeconfig(str(path), None, Clock())
    assert "\n" not in str(caught.value)


async def test_unknown_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="three"):
        await from_kubeconfig(kubeconfig(tmp_path / "config"), "three", Clock())


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ({"server": "ftp://x"}, "not an http or https address"),
        ({"proxy-url": "http://p"}, "proxy-url is not supported"),
    ],
)
async def test_cluster_that_cannot_be_used_is_named(tmp_path: Path, cluster: dict[str, Any], reason: str) -> None:
    with pytest.raises(AccessError, match=reason):
        await from_kubeconfig(kubeconfig(tmp_path / "config", **cluster), None, Clock())


async def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nonsense")
    cluster: dict[str, Any] = {"server": "https://x", "certificate-authority": str(tmp_path / "ca.crt")}
    path = kubeconfig(tmp_path / "config", **cluster)
    with pytest.raises(AccessError, match=r"ca\.crt: the certificates cannot be read"):
        await from_kubeconfig(path, None, Clock())


async def test_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/not/there", kubeconfig(tmp_path / "config")]))
    assert (await connect(None, None, Clock())).port == 1234


async def test_service_account_is_used_inside_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Authority(tmp_path).certificate == tmp_path / "ca.crt"
    (tmp_path / "token").write_text("first\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(auth, "SERVICE_ACCOUNT", tmp_path)
    clock = Clock()
    server = await connect(None, None, clock)
    assert server.url == "https://10.0.0.1:6443"
    assert await server.authorization() == b"Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert await server.authorization() == b"Bearer first"
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer second"


async def test_missing_service_account_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="token: there is no service account token"):
        in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Clock())


async def test_token_that_cannot_be_read_just_now_stays(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("first")
    server = Server("h", 1, clock, source=TokenFile(path))
    assert await server.authorization() == b"Bearer first"
    path.unlink()
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer first"


async def test_many_who_ask_at_once_get_the_first_token() -> None:
    reads = 0

    class Slow:
        async def header(self) -> bytes:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0.01)
            return b"Bearer slow"

    server = Server("h", 1, Clock(), source=Slow())
    assert set(await asyncio.gather(*(server.authorization() for _ in range(8)))) == {b"Bearer slow"}
    assert reads == 1


async def test_401_reads_the_token_again_once(tmp_path: Path) -> None:
    path, script = tmp_path / "token", Script()
    path.write_text("old")
    script.on("get", "/x", status(401, "Unauthorized"), reply(200, b"fine"))
    async with serving(script) as server:
        server.source = TokenFile(path)
        async with Client(server) as client:
            await server.authorization()
            path.write_text("new")
            assert await client.get("/x") == b"fine"
    assert [request.headers["authorization"] for request in script.requests] == ["Bearer old", "Bearer new"]
