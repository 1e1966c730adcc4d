import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from aischeduler.kube.errors import AccessError
from aischeduler.kube.exec_credential import GROUP, ExecPlugin
from aischeduler.kube.kubeconfig_context import KubeconfigContext, read_kubeconfig_context
from tests.kube.kubeconfig_files import SERVER, V1, runs, write

HOST = SERVER["server"]


def data(text: str) -> str:
    return b64encode(text.encode()).decode()


def access(directory: Path, user: Any, **cluster: Any) -> KubeconfigContext:
    return read_kubeconfig_context(write(directory / "config", {**SERVER, **cluster}, user), None)


def plugin(directory: Path, user: Any, **cluster: Any) -> ExecPlugin:
    found = access(directory, user, **cluster).plugin
    assert found is not None
    return found


def refusal(directory: Path, user: Any, **cluster: Any) -> str:
    """Return why a context cannot be used: a sentence that begins with the file."""
    with pytest.raises(AccessError) as caught:
        access(directory, user, **cluster)
    sentence = str(caught.value)
    assert sentence.startswith(f"{directory / 'config'}: ")
    assert "\n" not in sentence
    return sentence.removeprefix(f"{directory / 'config'}: ")


def test_paths_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    cluster = {"certificate-authority": "pki/ca.crt", "tls-server-name": "kubernetes"}
    user = {"client-certificate": "me.crt", "client-key": "/abs/me.key"}
    assert access(tmp_path, user, **cluster) == KubeconfigContext(
        HOST,
        ca_file=str(tmp_path / "pki/ca.crt"),
        certificate_file=str(tmp_path / "me.crt"),
        key_file="/abs/me.key",
        server_name="kubernetes",
    )


def test_paths_of_several_files_are_relative_to_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a" / "config", {**SERVER, "certificate-authority": "ca.crt"}, {}, users=[])
    write(tmp_path / "b" / "config", {}, {"client-certificate": "me.crt"}, clusters=[])
    read = read_kubeconfig_context(f"{tmp_path / 'a' / 'config'}:{tmp_path / 'b' / 'config'}", None)
    assert (read.ca_file, read.certificate_file) == (str(tmp_path / "a/ca.crt"), str(tmp_path / "b/me.crt"))


def test_data_in_the_file_wins_over_the_files_that_it_names(tmp_path: Path) -> None:
    cluster = {"certificate-authority": "ca.crt", "certificate-authority-data": data("the ca\n")}
    pem = {"client-certificate-data": data("certificate\n"), "client-key-data": data("key\n")}
    user = {"client-certificate": "a", **pem}
    assert access(tmp_path, user, **cluster) == KubeconfigContext(
        HOST, ca_data="the ca\n", client_certificate=b"certificate\n\nkey\n"
    )


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate": "me.crt", "client-key-data": data("key")},
        {"client-certificate-data": data("certificate"), "client-key": "me.key"},
    ],
)
def test_certificate_and_key_may_be_in_different_places(tmp_path: Path, user: dict[str, str]) -> None:
    (tmp_path / "me.crt").write_text("certificate")
    (tmp_path / "me.key").write_text("key")
    assert access(tmp_path, user) == KubeconfigContext(HOST, client_certificate=b"certificate\nkey")


def test_text_between_certificates_may_have_any_characters(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": data("# Jürgen\nthe ca")}
    assert access(tmp_path, {}, **cluster).ca_data == "# Jrgen\nthe ca"


@pytest.mark.parametrize("user", [{"token": "abc"}, {"tokenFile": "token"}, {"token": "old", "tokenFile": "token"}])
def test_token_and_token_file(tmp_path: Path, user: dict[str, str]) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert access(tmp_path, user, **{"insecure-skip-tls-verify": True}) == KubeconfigContext(
        HOST, header=b"Bearer abc", verify_server=False
    )


def test_token_is_used_while_its_file_is_missing(tmp_path: Path) -> None:
    assert access(tmp_path, {"token": "old", "tokenFile": "token"}).header == b"Bearer old"


def test_name_and_password(tmp_path: Path) -> None:
    header = access(tmp_path, {"username": "jürgen", "password": "a:b"}).header
    assert header is not None
    assert b64decode(header.removeprefix(b"Basic ")).decode() == "jürgen:a:b"


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    user = {"token": "hidden", "client-certificate-data": data("hidden"), "client-key-data": data("hidden")}
    assert "hidden" not in repr(access(tmp_path, user))


def test_impersonation_becomes_header_lines(tmp_path: Path) -> None:
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["developers", "admins"],
        "as-user-extra": {"acme.com/project": ["a", "b"]},
    }
    assert access(tmp_path, user).impersonation == (
        b"Impersonate-User: jane\r\n"
        b"Impersonate-Uid: 7\r\n"
        b"Impersonate-Group: developers\r\n"
        b"Impersonate-Group: admins\r\n"
        b"Impersonate-Extra-acme.com%2Fproject: a\r\n"
        b"Impersonate-Extra-acme.com%2Fproject: b\r\n"
    )


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ({"token": "a", "username": "b"}, "user 'u' has both a token and a user name with a password"),
        (
            {"auth-provider": {"name": "oidc"}},
            "user 'u': auth-provider 'oidc' is not supported; use exec with a credential plugin instead",
        ),
        ({"as-groups": ["g"]}, "user 'u' has as-uid, as-groups or as-user-extra without as"),
        ({"as": "a\r\nX: y"}, "user 'u': Impersonate-User contains characters that a header cannot have"),
        ({"token": "a\nb"}, "user 'u': token contains characters that a header cannot have"),
        ({"token": "ä"}, "user 'u': token contains characters that a token cannot have"),
        ({"client-certificate-data": "a"}, "user 'u': client-certificate-data is not base64"),
        ({"client-certificate-data": data("a"), "client-key-data": "a"}, "user 'u': client-key-data is not base64"),
        (runs(""), "user 'u': exec has no command"),
        (
            runs("x", apiVersion=f"{GROUP}/v1alpha1"),
            f"user 'u': exec.apiVersion is '{GROUP}/v1alpha1', not {GROUP}/v1 or {GROUP}/v1beta1",
        ),
        (
            runs("login", interactiveMode="Always"),
            "user 'u': 'login' needs a terminal (exec.interactiveMode Always), and there is none",
        ),
        (
            runs("login", interactiveMode=None),
            "user 'u': exec.interactiveMode is '', not Never, IfAvailable or Always",
        ),
    ],
)
def test_user_that_is_not_supported_is_refused(tmp_path: Path, user: dict[str, Any], reason: str) -> None:
    assert refusal(tmp_path, user) == reason


def test_cluster_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": "a"}
    assert refusal(tmp_path, {}, **cluster) == "cluster 'c': certificate-authority-data is not base64"


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"tokenFile": "nowhere"}).endswith(f"No such file or directory: '{tmp_path / 'nowhere'}'")


def test_token_file_without_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(AccessError, match="token: the file has no token"):
        access(tmp_path, {"tokenFile": "token"})


def test_exec_entry_is_read(tmp_path: Path) -> None:
    user = runs("login", args=["a", "b c"], env=[{"name": "A", "value": "1"}, {"name": "B"}], installHint="buy it")
    told = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}'
    where = f"{tmp_path / 'config'}: user 'u'"
    assert plugin(tmp_path, user) == ExecPlugin(
        where, "login", ("a", "b c"), (("A", "1"), ("B", "")), V1, "buy it", told
    )


@pytest.mark.parametrize(("written", "meant"), [("login", "login"), ("bin/login", "{}/bin/login"), ("/x/y", "/x/y")])
def test_command_with_a_slash_is_relative_to_the_file(tmp_path: Path, written: str, meant: str) -> None:
    assert plugin(tmp_path, runs(written)).command == meant.format(tmp_path)


def test_command_with_a_path_is_not_searched_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_kubeconfig_context(write(Path("config"), SERVER, runs("./login")), None).plugin
    assert found is not None
    assert found.command == str(tmp_path / "login")


def test_exec_entry_of_the_older_version_needs_no_interactive_mode(tmp_path: Path) -> None:
    older = f"{GROUP}/v1beta1"
    assert plugin(tmp_path, {"exec": {"apiVersion": older, "command": "x"}}).version == older


@pytest.mark.parametrize("static", [{"token": "t"}, {"username": "n"}, {"client-certificate": "c", "client-key": "k"}])
def test_plugin_is_not_used_where_the_file_has_credentials(tmp_path: Path, static: dict[str, str]) -> None:
    assert access(tmp_path, {**runs("x"), **static}).plugin is None


def test_plugin_gets_the_cluster_info_where_it_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("the ca")
    extension = {"name": f"{GROUP}/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": "ca.crt", "tls-server-name": "s", "extensions": [{"name": "x"}, extension]}
    asked = json.loads(plugin(tmp_path, runs("x", provideClusterInfo=True), **cluster).exec_info)
    assert asked["spec"] == {
        "interactive": False,
        "cluster": {
            "server": HOST,
            "tls-server-name": "s",
            "certificate-authority-data": data("the ca"),
            "config": {"audience": "a"},
        },
    }
