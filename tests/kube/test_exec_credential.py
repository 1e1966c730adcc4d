import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvloop

from aischeduler.kube.access import exec_credential as module
from aischeduler.kube.access.credentials import Credential
from aischeduler.kube.access.exec_credential import (
    OUTPUT_BYTES_MAX,
    POLL_SECONDS,
    REFRESH_BEFORE_SECONDS,
    RERUN_SECONDS,
    ExecCredentialCache,
    ExecPlugin,
)
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.user_text import LINE_LENGTH_MAX
from tests.kube.kubeconfig_files import V1, credential, printing, program, times_asked
from tests.kube.scripted_server import until

V1BETA1 = "client.authentication.k8s.io/v1beta1"
AT_END = "status.expirationTimestamp"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def plugin(command: str, *arguments: str, version: str = V1, hint: str = "", **environment: str) -> ExecPlugin:
    return ExecPlugin("/config: user 'u'", command, arguments, tuple(environment.items()), version, hint, '{"spec":{}}')


async def ask(exec_plugin: ExecPlugin) -> Credential:
    return await ExecCredentialCache(exec_plugin, Clock(0.0), Clock(NOON)).read(refused=False)


async def failure(exec_plugin: ExecPlugin) -> str:
    """Return why a plugin gives no credential, without the file, user and command at its beginning."""
    with pytest.raises(AccessError) as caught:
        await ask(exec_plugin)
    start = f"/config: user 'u': the command {exec_plugin.command!r} "
    sentence = str(caught.value)
    assert sentence.startswith(start)
    assert "\n" not in sentence
    return sentence.removeprefix(start)


async def test_token_without_an_expiration_is_valid_for_ever(tmp_path: Path) -> None:
    assert await ask(plugin(printing(tmp_path / "x", credential(token="made")))) == Credential(b"Bearer made")


async def test_certificate_comes_with_its_key(tmp_path: Path) -> None:
    printed = credential(clientCertificateData="certificate", clientKeyData="key", token=None)
    assert await ask(plugin(printing(tmp_path / "x", printed))) == Credential(None, b"certificate\nkey")


async def test_plugin_of_the_older_version_answers_in_that_version(tmp_path: Path) -> None:
    command = printing(tmp_path / "x", credential(V1BETA1, token="made"))
    assert (await ask(plugin(command, version=V1BETA1))).header == b"Bearer made"


async def test_plugin_gets_arguments_and_environment_and_an_empty_stdin(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = f'echo "$1|$2|$A|$HOME|$KUBERNETES_EXEC_INFO|$(cat)" > "{seen}"; echo \'{credential(token="t")}\''
    await ask(plugin(program(tmp_path / "x", script), "a", "b c", A="1"))
    assert seen.read_text() == f'a|b c|1|{os.environ["HOME"]}|{{"spec":{{}}}}|\n'


async def test_plugin_is_found_in_the_path_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    printing(tmp_path / "prints-a-token", credential(token="made"))
    assert (await ask(plugin("prints-a-token"))).header == b"Bearer made"


async def test_credential_is_valid_until_it_expires(tmp_path: Path) -> None:
    clock, wall = Clock(0.0), Clock(NOON)
    said = credential(token="first", expirationTimestamp="2030-01-01T13:00:00Z")
    cache = ExecCredentialCache(plugin(printing(tmp_path / "x", said)), clock, wall)
    good_seconds = 3600.0 - REFRESH_BEFORE_SECONDS
    assert await cache.read(refused=False) == Credential(b"Bearer first", valid_seconds=good_seconds)
    clock.now += good_seconds - 1
    wall.now += good_seconds - 1
    assert await cache.read(refused=False) == Credential(b"Bearer first", valid_seconds=1.0)
    assert times_asked(tmp_path) == 1
    printing(tmp_path / "x", credential(token="second", expirationTimestamp="2030-01-01T14:00:00+00:00"))
    clock.now += REFRESH_BEFORE_SECONDS + 1
    wall.now += REFRESH_BEFORE_SECONDS + 1
    assert await cache.read(refused=False) == Credential(b"Bearer second", valid_seconds=good_seconds)
    assert times_asked(tmp_path) == 2


async def test_credential_that_expires_soon_is_used_while_the_plugin_runs_again(tmp_path: Path) -> None:
    clock, wall = Clock(0.0), Clock(NOON)
    said = credential(token="first", expirationTimestamp="2030-01-01T12:01:00Z")
    cache = ExecCredentialCache(plugin(printing(tmp_path / "x", said)), clock, wall)
    assert await cache.read(refused=False) == Credential(b"Bearer first", valid_seconds=30.0)
    printing(tmp_path / "x", credential(token="second"))
    clock.now += 30
    wall.now += 30
    assert await cache.read(refused=False) == Credential(b"Bearer first", valid_seconds=POLL_SECONDS)
    await until(lambda: cache._running is None)
    assert await cache.read(refused=False) == Credential(b"Bearer second")
    assert times_asked(tmp_path) == 2


async def test_plugin_that_hangs_is_killed_and_runs_again_while_the_valid_credential_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLUGIN_TIMEOUT_SECONDS", 0.3)
    clock, wall = Clock(0.0), Clock(NOON)
    said = credential(token="first", expirationTimestamp="2030-01-01T12:01:00Z")
    cache = ExecCredentialCache(plugin(printing(tmp_path / "x", said)), clock, wall)
    await cache.read(refused=False)
    program(tmp_path / "x", f'echo $$ >> "{tmp_path}/pids"; sleep 60')
    clock.now += 30
    wall.now += 30
    assert (await cache.read(refused=False)).header == b"Bearer first"
    await until(lambda: cache._running is None)
    found = await cache.read(refused=False)
    trouble = f"/config: user 'u': the command '{tmp_path / 'x'}' did not exit within 0.3 s and was killed"
    assert found == Credential(b"Bearer first", valid_seconds=RERUN_SECONDS, failure=trouble)
    assert not any(alive(int(pid)) for pid in (tmp_path / "pids").read_text().split())
    printing(tmp_path / "x", credential(token="second"))
    clock.now += RERUN_SECONDS
    wall.now += RERUN_SECONDS
    await cache.read(refused=False)
    await until(lambda: cache._running is None)
    assert await cache.read(refused=False) == Credential(b"Bearer second")


async def test_plugin_that_runs_in_the_background_is_killed_at_the_end(tmp_path: Path) -> None:
    clock, wall = Clock(0.0), Clock(NOON)
    said = credential(token="first", expirationTimestamp="2030-01-01T12:01:00Z")
    cache = ExecCredentialCache(plugin(printing(tmp_path / "x", said)), clock, wall)
    await cache.read(refused=False)
    _, pids = slow(tmp_path)
    clock.now += 30
    wall.now += 30
    await cache.read(refused=False)
    await until((tmp_path / "pids").exists)
    await cache.close()
    await until(lambda: not any(alive(pid) for pid in pids()))


async def test_plugin_runs_again_after_a_refused_token_but_not_at_once(tmp_path: Path) -> None:
    clock = Clock(0.0)
    cache = ExecCredentialCache(plugin(printing(tmp_path / "x", credential(token="same"))), clock, Clock(NOON))
    for _ in range(3):
        assert (await cache.read(refused=True)).header == b"Bearer same"
    assert times_asked(tmp_path) == 1
    clock.now += RERUN_SECONDS
    await cache.read(refused=True)
    assert times_asked(tmp_path) == 2


async def test_failure_is_returned_until_the_plugin_may_run_again(tmp_path: Path) -> None:
    clock = Clock(0.0)
    command = program(tmp_path / "x", f'echo asked >> "{tmp_path}/asked"; exit 3')
    cache = ExecCredentialCache(plugin(command), clock, Clock(NOON))
    for _ in range(3):
        with pytest.raises(AccessError, match="exited with status 3"):
            await cache.read(refused=False)
    assert times_asked(tmp_path) == 1
    printing(tmp_path / "x", credential(token="made"))
    clock.now += RERUN_SECONDS
    assert (await cache.read(refused=False)).header == b"Bearer made"


async def test_missing_command_is_reported_with_the_hint(tmp_path: Path) -> None:
    assert await failure(plugin("no-such-thing")) == "cannot be found"
    assert await failure(plugin(str(tmp_path / "x"), hint="Install\n  \x1b[1mit.")) == "cannot be found: Install [1mit."


async def test_command_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no program")
    assert "cannot be started: [Errno 13] Permission denied" in await failure(plugin(str(tmp_path / "x")))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo first >&2; echo 'token is over' >&2; echo >&2; exit 7", "exited with status 7: token is over"),
        ("exit 1", "exited with status 1"),
        ("kill -9 $$", "was killed by signal 9"),
        ("echo secret", "printed no ExecCredential: JSON is malformed: invalid character (byte 0)"),
        (
            f"echo '{credential(token=5)}'",
            "printed no ExecCredential: status.token: must be a string, not a whole number",
        ),
        (
            f"echo '{credential(V1BETA1, token='t')}'",
            f"printed {V1BETA1} ExecCredential instead of {V1} ExecCredential",
        ),
        (f"echo '{credential(kind='Pod', token='t')}'", f"printed {V1} Pod instead of {V1} ExecCredential"),
        ("echo '{}'", f"printed nothing instead of {V1} ExecCredential"),
        (f"echo '{credential()}'", "printed neither a token nor a certificate"),
        (
            f"echo '{credential(token='t', clientKeyData='k')}'",
            "printed only one of clientCertificateData and clientKeyData",
        ),
        (f"echo '{credential(token='sécret')}'", "printed a token that contains characters that a token cannot have"),
        (
            f"echo '{credential(token='t', expirationTimestamp='2030-01-01T13:00:00')}'",
            f"printed no ExecCredential: {AT_END}: must be a time such as 2026-01-02T03:04:05Z",
        ),
    ],
)
async def test_plugin_without_a_credential_is_reported(tmp_path: Path, script: str, reason: str) -> None:
    assert await failure(plugin(program(tmp_path / "x", script))) == reason


async def test_error_output_is_shortened(tmp_path: Path) -> None:
    reason = await failure(plugin(program(tmp_path / "x", "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1")))
    assert reason == "exited with status 1: " + "x" * LINE_LENGTH_MAX


def alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def slow(directory: Path) -> tuple[str, Callable[[], list[int]]]:
    """Return a plugin that waits for a child process, and a function that returns the process ids."""
    script = f'sleep 60 & echo "$$ $!" > "{directory}/begun"; mv "{directory}/begun" "{directory}/pids"; wait'
    return program(directory / "x", script), lambda: [int(pid) for pid in (directory / "pids").read_text().split()]


async def test_plugin_that_takes_too_long_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLUGIN_TIMEOUT_SECONDS", 1.0)
    command, pids = slow(tmp_path)
    assert await failure(plugin(command)) == "did not exit within 1 s and was killed"
    await until(lambda: not any(alive(pid) for pid in pids()))


async def test_plugin_is_killed_when_no_request_waits_for_it(tmp_path: Path) -> None:
    command, pids = slow(tmp_path)
    task = asyncio.create_task(ask(plugin(command)))
    await until((tmp_path / "pids").exists)
    task.cancel()
    await asyncio.wait([task])
    await until(lambda: not any(alive(pid) for pid in pids()))


async def test_plugin_that_prints_too_much_is_killed(tmp_path: Path) -> None:
    command = program(tmp_path / "x", f'echo $$ > "{tmp_path}/pids"; exec cat /dev/zero')
    assert await failure(plugin(command)) == f"printed more than {OUTPUT_BYTES_MAX} bytes"
    assert not alive(int((tmp_path / "pids").read_text()))


async def test_child_that_keeps_the_output_of_a_plugin_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLUGIN_TIMEOUT_SECONDS", 1.0)
    leave = f'setsid sleep 60 & echo $! > "{tmp_path}/pids"'
    command = program(tmp_path / "x", f"{leave}; echo '{credential(token='t')}'")
    assert await failure(plugin(command)) == "did not exit within 1 s and was killed"
    os.kill(int((tmp_path / "pids").read_text()), signal.SIGKILL)


async def test_event_loop_continues_while_a_plugin_runs(tmp_path: Path) -> None:
    wait = f'touch "{tmp_path}/begun"; until [ -e "{tmp_path}/go" ]; do sleep 0.01; done'
    task = asyncio.create_task(ask(plugin(program(tmp_path / "x", f"{wait}; echo '{credential(token='t')}'"))))
    await until((tmp_path / "begun").exists)
    (tmp_path / "go").touch()
    assert (await task).header == b"Bearer t"


def test_uvloop_runs_and_kills_plugins_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLUGIN_TIMEOUT_SECONDS", 1.0)
    command, pids = slow(tmp_path)

    async def both() -> None:
        good = printing(tmp_path / "good", json.dumps(json.loads(credential(token="made")), indent=2))
        assert (await ask(plugin(good))).header == b"Bearer made"
        assert await failure(plugin("no-such-thing")) == "cannot be found"
        assert await failure(plugin(command)) == "did not exit within 1 s and was killed"
        await until(lambda: not any(alive(pid) for pid in pids()))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())
