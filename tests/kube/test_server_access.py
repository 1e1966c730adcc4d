import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube.access import server as module
from aischeduler.kube.access.credentials import Credential, TokenFile
from aischeduler.kube.access.dialer import Proxy
from aischeduler.kube.access.server import REREAD_SECONDS, Server, connect, from_kubeconfig, in_cluster
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import AccessError, RefusedError
from tests.controlplane.certificates import Authority
from tests.kube.kubeconfig_files import credential, printing, runs, times_asked
from tests.kube.scripted_server import Script, reply, serving, status


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """Returns these credentials in order, then the last one again and again."""

    def __init__(self, *credentials: Credential) -> None:
        self.credentials = list(credentials)

    async def read(self, *, refused: bool) -> Credential:
        return self.credentials.pop(0) if len(self.credentials) > 1 else self.credentials[0]


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
    assert (server.host, server.port, server.tls, server.path_prefix) == ("127.0.0.1", 1234, None, "")
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


async def test_token_of_a_kubeconfig_is_read_again(tmp_path: Path) -> None:
    clock = Clock()
    server = await from_kubeconfig(kubeconfig(tmp_path / "config", user={"token": "first"}), None, clock)
    kubeconfig(tmp_path / "config", user={"token": "second"})
    assert await server.authorization() == b"Bearer first"
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer second"


async def test_credential_plugin_runs_once_for_the_token(tmp_path: Path) -> None:
    clock, user = Clock(), runs(printing(tmp_path / "plugin", credential(token="made")))
    server = await from_kubeconfig(kubeconfig(tmp_path / "config", user=user), None, clock)
    assert await server.authorization() == b"Bearer made"
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer made"
    assert times_asked(tmp_path) == 1


async def test_credential_plugin_that_fails_at_the_start_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", user=runs("no-such-thing", installHint="Buy it."))
    with pytest.raises(AccessError, match=r"config: user 'u': the command 'no-such-thing' cannot be found: Buy it\."):
        await from_kubeconfig(path, None, Clock())


async def test_token_that_expires_soon_is_read_again_when_it_expires() -> None:
    clock = Clock()
    source = Scripted(Credential(b"a", valid_seconds=30.0), Credential(b"b", valid_seconds=-5.0), Credential(b"c"))
    server = Server("h", 1, clock, credential_source=source)
    seen = []
    for _ in range(33):
        seen.append(await server.authorization())
        clock.now += 1.0
    assert seen == [b"a"] * 30 + [b"b"] + [b"c"] * 2


async def test_failure_to_read_the_token_is_reported_until_it_is_read(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    server = Server("h", 1, clock, credential_source=TokenFile(path))
    assert await server.authorization() is None
    assert server.credential_failure == f"[Errno 2] No such file or directory: '{path}'"
    path.write_text("first")
    assert await server.renew_credentials(None, 0)
    assert (await server.authorization(), server.credential_failure) == (b"Bearer first", "")


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        ({"server": "ftp://x"}, "not an http or https address"),
        ({"server": None}, "cluster.server '' is not an http or https address"),
        ({"server": "https://x:99999"}, "not an http or https address"),
        ({"server": "https://[x"}, "not an http or https address"),
        ({"proxy-url": "socks5://p"}, "cluster 'c': proxy-url names a socks5:// proxy; only http://"),
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


@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [
        ({"certificate-authority-data": "/w=="}, {}, "certificate-authority-data cannot be read"),
        ({}, {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, "the client certificate cannot be read"),
    ],
)
async def test_certificates_in_the_file_that_are_none_are_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], reason: str
) -> None:
    path = kubeconfig(tmp_path / "config", user=user, **{"server": "https://x", **cluster})
    with pytest.raises(AccessError, match=f"config: {reason}"):
        await from_kubeconfig(path, None, Clock())


async def test_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(["/not/there", kubeconfig(tmp_path / "config")]))
    assert (await connect(None, None, Clock())).port == 1234


async def test_proxy_url_of_a_kubeconfig_wins_over_the_environment_and_its_exceptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:1")
    monkeypatch.setenv("NO_PROXY", "example.com")
    cluster: dict[str, Any] = {"server": "https://api.example.com", "proxy-url": "http://kubeconfig:2"}
    path = kubeconfig(tmp_path / "config", **cluster)
    assert (await from_kubeconfig(path, None, Clock())).proxy == Proxy("kubeconfig", 2)
    assert (await from_kubeconfig(path, "two", Clock())).proxy is None
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert (await from_kubeconfig(path, "two", Clock())).proxy == Proxy("environment", 1)


async def test_proxy_of_the_environment_is_used_inside_of_a_cluster_too(tmp_path: Path) -> None:
    assert Authority(tmp_path).certificate == tmp_path / "ca.crt"
    (tmp_path / "token").write_text("t")
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HTTPS_PROXY": "http://proxy:1"}
    assert in_cluster(tmp_path, environment, Clock()).proxy == Proxy("proxy", 1)
    assert in_cluster(tmp_path, environment | {"NO_PROXY": "10.0.0.0/8"}, Clock()).proxy is None


async def test_service_account_is_used_inside_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Authority(tmp_path).certificate == tmp_path / "ca.crt"
    (tmp_path / "token").write_text("first\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    clock = Clock()
    server = await connect(None, None, clock)
    assert server.url == "https://10.0.0.1:6443"
    assert await server.authorization() == b"Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert await server.authorization() == b"Bearer first"
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer second"


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod with a service account, whose home is the returned folder."""
    assert Authority(tmp_path).certificate == tmp_path / "ca.crt"
    (tmp_path / "token").write_text("account")
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path / "home"


@pytest.mark.parametrize("account_first", [False, True])
async def test_kubeconfig_in_the_home_of_a_pod_comes_before_its_account_as_with_kubectl_but_not_for_the_daemon(
    pod: Path, account_first: bool
) -> None:
    assert (await connect(None, None, Clock(), account_first=account_first)).host == "10.0.0.1"
    kubeconfig(pod / ".kube" / "config", server="https://home:1")
    host = (await connect(None, None, Clock(), account_first=account_first)).host
    assert host == ("10.0.0.1" if account_first else "home")


@pytest.mark.parametrize("account_first", [False, True])
async def test_pod_without_a_service_account_token_uses_the_kubeconfig_in_its_home(
    pod: Path, account_first: bool
) -> None:
    (pod.parent / "token").unlink()
    with pytest.raises(AccessError, match=r"token: there is no service account token, and there is no ~/\.kube/config"):
        await connect(None, None, Clock(), account_first=account_first)
    kubeconfig(pod / ".kube" / "config", server="https://home:1")
    assert (await connect(None, None, Clock(), account_first=account_first)).host == "home"


async def test_missing_service_account_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="token: there is no service account token"):
        in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Clock())


async def test_old_token_stays_while_its_file_cannot_be_read(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "token"
    path.write_text("first")
    server = Server("h", 1, clock, credential_source=TokenFile(path))
    assert await server.authorization() == b"Bearer first"
    path.unlink()
    clock.now += REREAD_SECONDS
    assert await server.authorization() == b"Bearer first"


async def test_requests_at_one_time_share_the_first_token() -> None:
    reads = 0

    class Slow:
        async def read(self, *, refused: bool) -> Credential:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0.01)
            return Credential(b"Bearer slow")

    server = Server("h", 1, Clock(), credential_source=Slow())
    assert set(await asyncio.gather(*(server.authorization() for _ in range(8)))) == {b"Bearer slow"}
    assert reads == 1


async def test_401_reads_the_token_again_once(tmp_path: Path) -> None:
    path, script = tmp_path / "token", Script()
    path.write_text("old")
    script.on("get", "/x", status(401, "Unauthorized"), reply(200, b"fine"))
    async with serving(script) as server:
        server.credential_source = TokenFile(path)
        async with Client(server) as client:
            await server.authorization()
            path.write_text("new")
            assert await client.get("/x") == b"fine"
    assert [request.headers["authorization"] for request in script.requests] == ["Bearer old", "Bearer new"]


async def test_401_names_the_failure_to_read_the_token(tmp_path: Path) -> None:
    path, script = tmp_path / "token", Script()
    path.write_text("old")
    script.on("get", "/x", status(401, "Unauthorized", "Unauthorized"))
    async with serving(script) as server:
        server.credential_source = TokenFile(path)
        async with Client(server) as client:
            await server.authorization()
            path.unlink()
            with pytest.raises(RefusedError, match=r"401 Unauthorized: Unauthorized; .*No such file.*token"):
                await client.get("/x")
