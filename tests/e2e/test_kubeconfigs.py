"""With the same kubeconfig the product and kubectl are the same user; an unusable one is unusable for both."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import AccessError
from tests.controlplane.plane import ControlPlane
from tests.kube.kubeconfig_files import V1, credential, program, runs
from tests.kube.test_dialer import proxying
from tests.objects import Json

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
JANE = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"acme.com/Project": ["x", "y z"]}}
Users = Callable[[ControlPlane, Path], Json]
"""Writes the files of a user into the directory of the kubeconfig, and returns the user entry."""


async def told_to_us(paths: str) -> Json:
    async with Client(await connect(paths, None, time.monotonic)) as client:
        answer = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(REVIEW).encode())
    user: Json = json.loads(answer)["status"]["userInfo"]
    return user


def told_to_kubectl(plane: ControlPlane, paths: str) -> Json:
    shown = plane.kubectl("auth", "whoami", "-o", "json", kubeconfig=Path(paths))
    assert shown.returncode == 0, shown.stderr
    user: Json = json.loads(shown.stdout)["status"]["userInfo"]
    return user


def write(plane: ControlPlane, path: Path, user: Json, **cluster: object) -> str:
    document = json.loads(plane.token_kubeconfig.read_text())
    document["users"][0]["user"] = user
    document["clusters"][0]["cluster"] |= cluster
    path.write_text(json.dumps(document))
    return str(path)


def certificate_and_key(plane: ControlPlane, directory: Path) -> Json:
    (directory / "me.crt").write_bytes(plane.admin.certificate.read_bytes())
    (directory / "me.key").write_bytes(plane.admin.key.read_bytes())
    return {"client-certificate": "me.crt", "client-key": "me.key"}


def token_file(plane: ControlPlane, directory: Path) -> Json:
    (directory / "token").write_text(f"{plane.token}\n")
    return {"tokenFile": "token", "token": "an old one"}


def token_of_a_program(plane: ControlPlane, directory: Path) -> Json:
    printed = credential(token=plane.token, expirationTimestamp="2090-01-01T00:00:00Z")
    program(directory / "login", f'test "$1$A" = "it\'s 1" && echo \'{printed}\'')
    return runs("./login", args=["it's "], env=[{"name": "A", "value": "1"}])


def certificate_of_a_program(plane: ControlPlane, directory: Path) -> Json:
    pem = {"clientCertificateData": plane.admin.certificate.read_text(), "clientKeyData": plane.admin.key.read_text()}
    (directory / "answer").write_text(credential(**pem))
    program(directory / "login", f"cat {directory / 'answer'}")
    return runs(str(directory / "login"))


def program_beside_a_token(plane: ControlPlane, directory: Path) -> Json:
    return {**runs(program(directory / "login", "exit 1")), "token": plane.token}


def somebody_else(plane: ControlPlane, directory: Path) -> Json:
    return {"token": plane.token, **JANE}


@pytest.mark.parametrize(
    ("user", "name"),
    [
        (certificate_and_key, "admin"),
        (token_file, "token-admin"),
        (token_of_a_program, "token-admin"),
        (certificate_of_a_program, "admin"),
        (program_beside_a_token, "token-admin"),
        (somebody_else, "jane"),
    ],
)
async def test_user_is_the_same_as_that_of_kubectl(
    control_plane: ControlPlane, tmp_path: Path, user: Users, name: str
) -> None:
    path = write(control_plane, tmp_path / "config", user(control_plane, tmp_path))
    found = await told_to_us(path)
    assert found["username"] == name
    assert found == told_to_kubectl(control_plane, path)


async def test_several_files_name_the_same_server_as_for_kubectl(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first = tmp_path / "first" / "config"
    write(control_plane, first, token_file(control_plane, first.parent))
    second = write(control_plane, tmp_path / "second", {"token": "wrong"}, server="https://127.0.0.1:1")
    paths = os.pathsep.join(["/not/there", str(first), second])
    assert (await told_to_us(paths))["username"] == "token-admin"
    assert await told_to_us(paths) == told_to_kubectl(control_plane, paths)


async def test_proxy_of_a_kubeconfig_is_used_as_by_kubectl(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with proxying() as (port, heads):
        proxy = {"proxy-url": f"http://me:secret@127.0.0.1:{port}"}
        path = write(control_plane, tmp_path / "config", {"token": control_plane.token}, **proxy)
        assert (await told_to_us(path))["username"] == "token-admin"
        (ours,) = heads
        assert await asyncio.to_thread(told_to_kubectl, control_plane, path) == await told_to_us(path)
    known = [line for line in ours.splitlines() if line.startswith(("CONNECT", "Host", "Proxy-Authorization"))]
    assert set(known) <= set(heads[1].splitlines()), "kubectl sends the same request to the proxy"


async def test_credential_plugin_gets_the_same_input_as_from_kubectl(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text(credential(token=control_plane.token))
    told = tmp_path / "told"
    user = runs(
        program(tmp_path / "login", f'echo "$KUBERNETES_EXEC_INFO" > {told}; cat {tmp_path / "answer"}'),
        provideClusterInfo=True,
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    path = write(control_plane, tmp_path / "config", user, extensions=[extension])
    await told_to_us(path)
    ours = json.loads(told.read_text())
    told_to_kubectl(control_plane, path)
    assert ours["apiVersion"] == V1
    assert ours["spec"]["cluster"]["config"] == {"audience": "a"}
    assert ours == json.loads(told.read_text())


@pytest.mark.parametrize(
    "user",
    [
        {"token": "t", "username": "n", "password": "p"},
        {"as-groups": ["g"]},
        {"exec": {"apiVersion": V1, "command": "login"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "login"}},
        runs("true"),
        runs("no-such-command-anywhere", installHint="Buy it."),
        runs("login", interactiveMode="Always"),
    ],
)
async def test_unusable_user_is_refused_by_both(control_plane: ControlPlane, tmp_path: Path, user: Json) -> None:
    path = write(control_plane, tmp_path / "config", user)
    with pytest.raises(AccessError, match="config: user"):
        await told_to_us(path)
    assert control_plane.kubectl("auth", "whoami", kubeconfig=Path(path)).returncode != 0
