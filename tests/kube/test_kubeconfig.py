import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube.auth import Kubeconfig
from aischeduler.kube.errors import AccessError
from aischeduler.kube.kubeconfig import Access, read_plain
from tests.controlplane.certificates import Authority

SERVER = {"server": "https://10.0.0.1:6443"}


def write(path: Path, cluster: Any, user: Any, **more: Any) -> str:
    document = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        **more,
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def test_files_are_named_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    cluster = {**SERVER, "certificate-authority": "pki/ca.crt", "tls-server-name": "kubernetes"}
    user = {"client-certificate": "me.crt", "client-key": "/abs/me.key"}
    assert read_plain(write(tmp_path / "config", cluster, user), None) == Access(
        host="https://10.0.0.1:6443",
        ssl_ca_cert=str(tmp_path / "pki/ca.crt"),
        cert_file=str(tmp_path / "me.crt"),
        key_file="/abs/me.key",
        tls_server_name="kubernetes",
    )


def test_what_stands_in_the_file_wins_over_the_files_that_it_names(tmp_path: Path) -> None:
    data = {name: b64encode(f"the {name}\n".encode()).decode() for name in ("ca", "certificate", "key")}
    cluster = {**SERVER, "certificate-authority": "ca.crt", "certificate-authority-data": data["ca"]}
    user = {"client-certificate": "a", "client-certificate-data": data["certificate"], "client-key-data": data["key"]}
    assert read_plain(write(tmp_path / "config", cluster, user), None) == Access(
        host="https://10.0.0.1:6443", ca_data="the ca\n", identity_data=b"the certificate\n\nthe key\n"
    )


@pytest.mark.parametrize("user", [{"token": "abc"}, {"tokenFile": "token"}])
def test_token_and_token_file(tmp_path: Path, user: dict[str, str]) -> None:
    (tmp_path / "token").write_text("abc")
    read = read_plain(write(tmp_path / "config", {**SERVER, "insecure-skip-tls-verify": True}, user), None)
    assert read == Access(host="https://10.0.0.1:6443", api_key={"BearerToken": "Bearer abc"}, verify_ssl=False)


@pytest.mark.parametrize(
    ("cluster", "user", "more"),
    [
        (SERVER, {"exec": {"command": "x"}}, {}),
        (SERVER, {"username": "a", "password": "b"}, {}),
        (SERVER, {"auth-provider": {"name": "oidc"}}, {}),
        (SERVER, {"token": "a", "tokenFile": "b"}, {}),
        (SERVER, {"client-certificate-data": "", "client-key-data": "YQ=="}, {}),
        (SERVER, {"client-certificate-data": "YQ=="}, {}),
        (SERVER, {"client-certificate-data": "a", "client-key-data": "YQ=="}, {}),
        (SERVER, None, {}),
        ({**SERVER, "proxy-url": "http://p"}, {}, {}),
        ({**SERVER, "certificate-authority-data": "/w=="}, {}, {}),
        ({"server": 5}, {}, {}),
        (SERVER, {}, {"current-context": "two"}),
        (SERVER, {}, {"current-context": None}),
        (SERVER, {}, {"users": []}),
        (SERVER, {}, {"users": [{"name": "u", "user": {}}, {"name": "u", "user": {"token": "a"}}]}),
        (SERVER, {}, {"clusters": "none"}),
    ],
)
def test_what_is_not_plain_is_left_to_others(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], more: dict[str, Any]
) -> None:
    assert read_plain(write(tmp_path / "config", cluster, user, **more), None) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"a: [", b"\xff\xfe\xfd", b"&a [*a]", b"a: " + b"[" * 5000])
def test_file_that_is_no_kubeconfig_is_not_plain(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config").write_bytes(text)
    assert read_plain(str(tmp_path / "config"), None) is None


async def test_plain_file_is_read_as_the_package_reads_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    me = authority.client("me", "")
    (tmp_path / "token").write_text("abc")
    cluster = {**SERVER, "certificate-authority": authority.certificate.name, "tls-server-name": "kubernetes"}
    user = {"client-certificate": me.certificate.name, "client-key": me.key.name, "tokenFile": "token"}
    for number, (a_cluster, a_user) in enumerate([(cluster, user), (SERVER, {"token": "x"}), (SERVER, {})]):
        path = write(tmp_path / f"config-{number}", a_cluster, a_user)
        assert await Kubeconfig(path, None)._load_by_package() == read_plain(path, None)


async def test_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, {"tokenFile": "nowhere"})
    with pytest.raises(AccessError, match=r"config: .*No such file .*nowhere"):
        await Kubeconfig(path, None).load()


def test_plain_file_does_not_cost_the_import_of_the_package(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, {"token": "abc"})
    program = (
        "import asyncio, sys; from aischeduler.kube.auth import connect;"
        "asyncio.run(connect(sys.argv[1], None, float)); sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, path], check=False).returncode == 0
