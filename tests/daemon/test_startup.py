"""The first requests to an API server that is unreachable, too old, or does not tell its version."""

import asyncio
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from aischeduler.config.schema import NO_ELECTION, Config
from aischeduler.daemon.process import Daemon
from aischeduler.daemon.startup import check_server
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import AccessError
from aischeduler.kube.watch.storage_resources import storage_resources
from tests.kube.scripted_server import Script, Waits, hang, reply, serving, slam, status


async def met(script: Script) -> tuple[str, list[dict[str, Any]]]:
    lines = CapturingLogger()
    log = structlog.wrap_logger(lines, processors=[], wrapper_class=structlog.BoundLogger).bind()
    async with serving(script) as server, Client(server) as client, asyncio.timeout(120):
        said = await check_server(client, "https://x:1", Waits().timing(), log)
    return said, [dict(call.kwargs) for call in lines.calls]


async def test_server_that_is_new_enough_is_accepted_without_a_log_line() -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, {"major": "1", "minor": "31"})
    assert await met(script) == ("", [])


async def test_daemon_waits_for_an_unreachable_server_and_logs_it_once() -> None:
    script, calls = Script(), iter(range(9))
    script.always["get", "/version"] = lambda _: slam if next(calls) < 3 else reply(200, {"major": "1", "minor": "36"})
    said, lines = await met(script)
    assert said == ""
    assert [line["event"] for line in lines] == ["API server not reached"]


@pytest.mark.parametrize("answer", [status(403, "Forbidden", "no"), reply(200, b"hello")])
async def test_server_that_does_not_tell_its_version_is_accepted_with_a_warning(answer: Any) -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: answer
    said, lines = await met(script)
    assert said == ""
    assert [line["event"] for line in lines] == ["API server version unknown"]


async def test_daemon_ends_before_it_writes_anything_to_a_server_that_is_too_old() -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, {"major": "1", "minor": "30"})
    async with serving(script) as server:
        for kind in ("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes"):
            script.always["get", f"/api/v1/{kind}"] = lambda _: hang
        for resource in storage_resources():
            script.always["get", resource.path] = lambda _: hang
        script.always["get", "/apis/policy/v1/poddisruptionbudgets"] = lambda _: hang
        script.always["get", "/apis/resource.aibee.cn/v1alpha1/pools"] = lambda _: hang
        async with asyncio.timeout(120):
            with pytest.raises(AccessError, match=r"is Kubernetes 1\.30; the scheduler needs 1\.31 or newer"):
                await Daemon(server, Config(leader_election=NO_ELECTION), asyncio.Event()).run()
    assert {request.method.lower() for request in script.requests} == {"get"}
