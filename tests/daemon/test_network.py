"""Proxies between the daemon and its API server, and changes of its credentials, lose no pod."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aischeduler.config.schema import Config
from aischeduler.kube.access import exec_credential
from aischeduler.kube.access.credentials import TokenFile
from aischeduler.kube.access.server import KubeconfigCredentials
from aischeduler.kube.http import connection_pool
from aischeduler.kube.report.report_queue import REPORTS_IN_FLIGHT_MAX
from tests.daemon.between import Rule
from tests.daemon.cluster import Cluster, cluster
from tests.kube.kubeconfig_files import SERVER, credential, program, runs, write
from tests.kube.scripted_server import Request, reply, status

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp()
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
Lines = Callable[[], list[dict[str, Any]]]


def page(code: int, times: int, wanted: Callable[[Request], bool]) -> Rule:
    """Return a rule that answers the first `times` matching requests with a page of a proxy."""
    left = times

    def rule(request: Request) -> Any:
        nonlocal left
        if not left or not wanted(request):
            return None
        left -= 1
        return reply(code, f"<html><h1>{code}</h1>".encode())

    return rule


def said(lines: Lines, event: str) -> list[dict[str, Any]]:
    return [line for line in lines() if line["event"] == event]


@pytest.mark.parametrize("code", [200, 400, 403, 404, 405, 502])
async def test_page_of_a_proxy_in_place_of_an_answer_to_a_binding_is_no_refusal(code: int, lines: Lines) -> None:
    async with cluster() as world:
        world.between.rule = page(code, 2, lambda request: request.path.endswith("/binding"))
        await world.node("n1")
        await world.pod("p")
        await world.until(world.all_placed)
        assert len(world.between.answered) == 2
    assert said(lines, "bind refused") == []
    (line,) = said(lines, "answer not from the API server")
    assert (line["request"], line["status"]) == ("POST /api/v1/namespaces/default/pods/p/binding", code)
    assert line["reason"].startswith(f"a server in front of the API server answered {code}")


@pytest.mark.parametrize("code", [400, 405, 502])
async def test_page_of_a_proxy_in_place_of_an_eviction_spares_no_victim(code: int, lines: Lines) -> None:
    async with cluster() as world:
        await world.pool("gpu", nodeSelector={"matchLabels": {"pool": "gpu"}})
        await world.pool("cpu")
        await world.node("n1", cpu="1", labels={"pool": "gpu"})
        await world.pod("guest", pool="cpu")
        await world.until(world.all_placed)
        world.between.rule = page(code, 3, lambda request: request.path.endswith(("/pods/guest", "/guest/status")))
        await world.pod("owner", pool="gpu")
        await world.until(lambda: going(world, "guest"))
        assert len(world.between.answered) == 3
    assert said(lines, "evict refused") == []
    assert len(said(lines, "answer not from the API server")) >= 1


async def test_page_of_a_proxy_in_place_of_an_answer_to_an_event_loses_no_event(lines: Lines) -> None:
    async with cluster() as world:
        await world.node("n1")
        world.between.rule = page(502, 2, lambda request: request.method == "POST" and "/events" in request.path)
        await world.pod("p")
        await world.until(lambda: scheduled(world))
    assert said(lines, "write refused") == []
    assert len(said(lines, "answer not from the API server")) == 1


def revoking(token: Path, after: int) -> Rule:
    """Return a rule that accepts the token `old` for `after` Bindings, then only `new`, which the file has later."""
    known, seen, refused = "old", 0, 0

    def rule(request: Request) -> Any:
        nonlocal known, seen, refused
        seen += request.path.endswith("/binding")
        if seen > after and known == "old":
            known = "new"
        if request.headers.get("authorization") == f"Bearer {known}":
            return None
        refused += 1
        if refused == 70:
            token.write_text("new")
        return status(401, "Unauthorized", "Unauthorized")

    return rule


async def test_token_that_is_revoked_in_a_burst_of_bindings_costs_no_pod(tmp_path: Path, lines: Lines) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with cluster(source=TokenFile(token)) as world:
        world.between.rule = revoking(token, after=5)
        for number in range(60):
            await world.pod(f"p{number}")
        await world.node("n1", cpu="60")
        await world.until(world.all_placed)
    assert said(lines, "bind refused") == []
    refused = said(lines, "credentials do not work")
    assert [line["reason"] for line in refused] == [f"{token}: the API server answers 401 Unauthorized"]


async def test_credential_plugin_that_hangs_delays_neither_the_lease_nor_a_pod(
    tmp_path: Path, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_credential, "PLUGIN_TIMEOUT_SECONDS", 4.0)
    passed = 0.0
    hangs = tmp_path / "hangs"
    printed = credential(token="t", expirationTimestamp="2030-01-01T13:00:00Z")
    command = program(tmp_path / "login", f'[ -e "{hangs}" ] && touch "{hangs}.now" && sleep 60; echo \'{printed}\'')
    path = write(tmp_path / "config", SERVER, runs(command))
    clock, wall = (lambda: time.monotonic() + passed), (lambda: NOON + passed)
    async with cluster(
        config=Config(), source=KubeconfigCredentials(path, None, clock, None, wall=wall), clock=clock
    ) as world:
        await world.node("n1")
        hangs.touch()
        passed = 3500.0
        await world.until(lambda: exists(tmp_path / "hangs.now"))
        before = await renewed(world)
        await world.pod("p")
        await world.until(world.all_placed)
        await world.until(lambda: renewed_after(world, before))
        assert said_of(lines) == [], "the plugin still runs"
        await world.until(lambda: says(lines))
    assert said_of(lines) == [f"{path}: user 'u': the command {command!r} did not exit within 4 s and was killed"]
    assert said(lines, "lost the lease") == []


async def exists(path: Path) -> bool:
    return path.exists()


async def renewed(world: Cluster) -> str:
    """Return the time of the Lease's last renewal."""
    lease = json.loads(await world.client.get(f"{LEASES}/ai-scheduler"))
    return str(lease["spec"]["renewTime"])


async def renewed_after(world: Cluster, before: str) -> bool:
    return await renewed(world) > before


def said_of(lines: Lines) -> list[str]:
    return [line["reason"] for line in said(lines, "credentials do not work")]


async def says(lines: Lines) -> bool:
    return bool(said_of(lines))


async def test_quiet_daemon_holds_a_connection_for_each_kind_of_objects_and_one_for_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 1.0)
    async with cluster(config=Config()) as world:
        components = world.daemon.components
        assert components is not None
        await world.node("n1", cpu="100")
        for number in range(100):
            await world.pod(f"p{number}")
        await world.until(world.all_placed)
        watches = sum(not reflector.not_served for reflector in components.reflectors)
        few = len(components.reflectors) + 1  # the lease; kinds that are not served are asked for, all at once at most
        assert world.between.most > few
        await world.until(lambda: few_open(world, few))
        assert world.between.most < watches + Config().bind_in_flight + REPORTS_IN_FLIGHT_MAX


async def few_open(world: Cluster, count: int) -> bool:
    return world.between.open <= count


async def test_new_leader_opens_its_watches_again_before_it_decides() -> None:
    async with cluster(config=Config()) as world:
        components = world.daemon.components
        assert components is not None
        served = [reflector for reflector in components.reflectors if not reflector.not_served]
        assert {reflector.resource.kind for reflector in served} > {"Pod", "Node", "Pool", "Job"}
        assert {reflector.resource.kind: reflector.counts.watches for reflector in served} == {
            reflector.resource.kind: 2 for reflector in served
        }
        await world.node("n1")
        await world.pod("p")
        await world.until(world.all_placed)


async def going(world: Cluster, name: str) -> bool:
    pods = [pod for pod in await world.listed("/api/v1/pods") if pod["metadata"]["name"] == name]
    return not pods or "deletionTimestamp" in pods[0]["metadata"]


async def scheduled(world: Cluster) -> bool:
    return bool(await world.notes("Scheduled"))
