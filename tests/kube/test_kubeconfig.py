import json
import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube.access.exec_credential import GROUP, ExecPlugin
from aischeduler.kube.access.kubeconfig import FILE_BYTES_MAX, KubeconfigContext, read_kubeconfig_context
from aischeduler.kube.http.errors import AccessError
from tests.kube.kubeconfig_files import SERVER, V1, runs, write

HOST = SERVER["server"]


def read(paths: str) -> KubeconfigContext:
    return read_kubeconfig_context(paths, None)


def refusal(path: str) -> str:
    """Return why a context cannot be read: a sentence that begins with the file."""
    with pytest.raises(AccessError) as caught:
        read(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert "\n" not in sentence
    return sentence.removeprefix(f"{path}: ")


def write_part(path: Path, **document: Any) -> str:
    path.write_text(yaml.safe_dump({name.replace("_", "-"): value for name, value in document.items()}))
    return str(path)


def joined(*paths: str) -> str:
    return os.pathsep.join(paths)


def a_context(name: str, cluster: str, user: str) -> dict[str, Any]:
    return {"name": name, "context": {"cluster": cluster, "user": user}}


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    more: dict[str, Any] = {"extensions": [{"name": "x", "extension": {"a": 1}}], "disable-compression": True}
    cluster_fields, user_fields = {**SERVER, **more, "new": 1}, {"token": "t", **more}
    path = write(tmp_path / "config", cluster_fields, user_fields, preferences={"colors": True})
    assert read(path) == KubeconfigContext(HOST, header=b"Bearer t")


def test_empty_user_and_lists_are_read_as_kubectl_writes_them(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, None)
    empty = write_part(tmp_path / "empty", contexts=None, clusters=None, users=None, preferences={}, current_context="")
    assert read(joined(empty, path)) == KubeconfigContext(HOST)


def test_first_file_that_has_a_name_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"server": "https://first"}, {"token": "first"})
    second = write(tmp_path / "second", {"server": "https://second", "tls-server-name": "s"}, {"username": "second"})
    assert read(joined(first, second)) == KubeconfigContext("https://first", header=b"Bearer first")


def test_context_cluster_and_user_may_be_in_three_files(tmp_path: Path) -> None:
    paths = joined(
        write_part(tmp_path / "a", contexts=[a_context("it", "c", "u")]),
        write_part(tmp_path / "b", clusters=[{"name": "c", "cluster": SERVER}], current_context="it"),
        write_part(tmp_path / "c", users=[{"name": "u", "user": {"token": "t"}}], current_context="other"),
    )
    found = read(paths)
    assert (found.cluster, found.where) == (f"{tmp_path / 'b'}: cluster 'c'", f"{tmp_path / 'c'}: user 'u'")
    assert found == KubeconfigContext(HOST, header=b"Bearer t")


def test_missing_files_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, {})
    assert read(joined("/not/there", "", path)).server == HOST


def test_file_that_cannot_be_read_is_refused_even_beside_one_that_can(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("contexts: 5")
    with pytest.raises(AccessError, match="broken: is not a kubeconfig"):
        read(joined(write(tmp_path / "config", SERVER, {}), str(tmp_path / "broken")))


def test_tilde_in_a_path_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "config", SERVER, {})
    assert read("~/config").cluster == f"{tmp_path / 'config'}: cluster 'c'"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"5",
        b"a: [",
        b"\xff\xfe\xfd",
        b"&a [*a]",
        b"a: " + b"[" * 5000,
        b"? [1]\n: 1\n",
        b"contexts: 5\n",
    ],
)
def test_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config").write_bytes(text)
    assert refusal(str(tmp_path / "config")).startswith("is not a kubeconfig: ")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"kind": "Pod"}, "is not a kubeconfig: its kind is Pod"),
        ({"current-context": ""}, "current-context is not set"),
        ({"current-context": "on"}, "there is no context 'on'; did you mean one?"),
        ({"users": []}, "there is no user 'u'"),
        ({"clusters": [{"name": "C", "cluster": SERVER}]}, "there is no cluster 'c'; did you mean C?"),
        ({"users": [{"name": "u", "user": {}}, {"name": "u"}]}, "user 'u' is defined 2 times"),
        ({"contexts": [{"name": "one", "context": {"user": "u"}}]}, "context 'one' names no cluster"),
        ({"contexts": [{"name": "one", "context": []}]}, "context 'one': must be a mapping, not a list"),
        ({"users": [{"name": "u", "user": {"token": 5}}]}, "user 'u': token: must be a string, not a whole number"),
    ],
)
def test_error_names_the_entry(tmp_path: Path, more: dict[str, Any], reason: str) -> None:
    assert refusal(write(tmp_path / "config", SERVER, {}, **more)) == reason


def test_context_without_a_user_is_for_anonymous(tmp_path: Path) -> None:
    contexts = [{"name": "one", "context": {"cluster": "c"}}]
    found = read(write(tmp_path / "config", SERVER, {"token": "t"}, contexts=contexts))
    assert found == KubeconfigContext(HOST)
    assert found.where == f"{tmp_path / 'config'}: context 'one', which names no user"


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    assert refusal(str(tmp_path / "config")) == f"is larger than {FILE_BYTES_MAX} bytes"


def test_no_file_at_all_is_refused() -> None:
    assert refusal(joined("/not/there", "/nor/there")) == "there is no such kubeconfig file"


def data(text: str) -> str:
    return b64encode(text.encode()).decode()


def access(directory: Path, user: Any, **cluster: Any) -> KubeconfigContext:
    return read(write(directory / "config", {**SERVER, **cluster}, user))


def plugin(directory: Path, user: Any, **cluster: Any) -> ExecPlugin:
    found = access(directory, user, **cluster).plugin
    assert found is not None
    return found


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
    found = read(joined(str(tmp_path / "a" / "config"), str(tmp_path / "b" / "config")))
    assert (found.ca_file, found.certificate_file) == (str(tmp_path / "a/ca.crt"), str(tmp_path / "b/me.crt"))


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
    assert refusal(write(tmp_path / "config", SERVER, user)) == reason


def test_cluster_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {**SERVER, "certificate-authority-data": "a"}, {})
    assert refusal(path) == "cluster 'c': certificate-authority-data is not base64"


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    reason = refusal(write(tmp_path / "config", SERVER, {"tokenFile": "nowhere"}))
    assert reason.endswith(f"No such file or directory: '{tmp_path / 'nowhere'}'")


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
    found = read(write(Path("config"), SERVER, runs("./login"))).plugin
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
