import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube.errors import AccessError
from aischeduler.kube.kubeconfig import FILE_BYTES_MAX, read_entries
from tests.kube.kubeconfig_files import SERVER, write


def refusal(path: str, context: str | None = None) -> str:
    """Return why a context cannot be read: a sentence that begins with the file."""
    with pytest.raises(AccessError) as caught:
        read_entries(path, context)
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
    cluster, user = read_entries(path, None)
    assert (cluster.fields.server, user.fields.token) == (SERVER["server"], "t")


def test_empty_user_and_lists_are_read_as_kubectl_writes_them(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, None)
    empty = write_part(tmp_path / "empty", contexts=None, clusters=None, users=None, preferences={}, current_context="")
    cluster, user = read_entries(joined(empty, path), None)
    assert cluster.fields.server == SERVER["server"]
    assert (user.fields.token, user.fields.exec) == (None, None)


def test_first_file_that_has_a_name_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"server": "https://first"}, {"token": "first"})
    second = write(tmp_path / "second", {"server": "https://second", "tls-server-name": "s"}, {"username": "second"})
    cluster, user = read_entries(joined(first, second), None)
    assert (cluster.file, cluster.fields.server, cluster.fields.tls_server_name) == (Path(first), "https://first", None)
    assert (user.file, user.fields.token, user.fields.username) == (Path(first), "first", None)


def test_context_cluster_and_user_may_be_in_three_files(tmp_path: Path) -> None:
    paths = joined(
        write_part(tmp_path / "a", contexts=[a_context("it", "c", "u")]),
        write_part(tmp_path / "b", clusters=[{"name": "c", "cluster": SERVER}], current_context="it"),
        write_part(tmp_path / "c", users=[{"name": "u", "user": {"token": "t"}}], current_context="other"),
    )
    cluster, user = read_entries(paths, None)
    assert (cluster.file.name, user.file.name, user.fields.token) == ("b", "c", "t")


def test_missing_files_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "config", SERVER, {})
    assert read_entries(joined("/not/there", "", path), None)[0].file == Path(path)


def test_file_that_cannot_be_read_is_refused_even_beside_one_that_can(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("contexts: 5")
    with pytest.raises(AccessError, match="broken: is not a kubeconfig"):
        read_entries(joined(write(tmp_path / "config", SERVER, {}), str(tmp_path / "broken")), None)


def test_tilde_in_a_path_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "config", SERVER, {})
    assert read_entries("~/config", None)[0].file == tmp_path / "config"


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"5", b"a: [", b"\xff\xfe\xfd", b"&a [*a]", b"a: " + b"[" * 5000, b"? [1]\n: 1\n"]
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
    cluster, user = read_entries(write(tmp_path / "config", SERVER, {"token": "t"}, contexts=contexts), None)
    assert (cluster.fields.server, user.fields.token) == (SERVER["server"], None)
    assert user.where == f"{tmp_path / 'config'}: context 'one', which names no user"


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    assert refusal(str(tmp_path / "config")) == f"is larger than {FILE_BYTES_MAX} bytes"


def test_no_file_at_all_is_refused() -> None:
    assert refusal(joined("/not/there", "/nor/there")) == "there is no such kubeconfig file"
