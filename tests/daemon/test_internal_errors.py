"""An injected exception at each place that handles outcomes costs one piece of work, and no pod its node."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aischeduler.daemon import configured_profile
from aischeduler.daemon.process import PARTS
from aischeduler.engine import bindings, permits
from aischeduler.kube import executor
from aischeduler.kube.report import report_queue, reporter
from aischeduler.kube.write import binder, evictor
from aischeduler.kube.write.work_queue import WorkQueue
from aischeduler.observability.metrics import MetricsRecorder
from aischeduler.state.scheduling_queue import Backoff
from tests.daemon.cluster import PODS as PATH
from tests.daemon.cluster import Cluster, cluster
from tests.invariants.state import check
from tests.seeds import random

ROOT = Path(__file__).resolve().parents[2]
SHARE = 0.4
BUGS_MAX = 8
PODS = 24
TIME_SCALE = 0.01
"""One pod may meet every exception; each costs the pod a wait until it is read, and a backoff that doubles."""
PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "outcome of a Binding": ((executor.Executor, "_bound"),),
    "outcome of an eviction": ((executor.Executor, "_evicted"),),
    "action": ((executor.Executor, "_perform"),),
    "read of a pod": ((executor.Executor, "_settle"), (binder.Binder, "_bind")),
    "line of a binding": ((executor.Executor, "_log_bind"),),
    "turn of reports": ((executor.Executor, "_decisions_sent"),),
    "binding": ((binder.Binder, "_bind"),),
    "request of a binding": ((binder, "binding"),),
    "answer to a binding": ((binder, "read_bind_answer"),),
    "binding not sent": ((binder.Binder, "_why_stale"),),
    "binding in doubt": ((binder.Binder, "_put_in_doubt"), (binder.Binder, "_bind")),
    "eviction": ((evictor.Evictor, "_evict"),),
    "request of an eviction": ((evictor.Evictor, "_send"),),
    "report": ((reporter.Reporter, "_send"),),
    "answer to a report": ((reporter.Reporter, "_try"),),
    "turn of a report": ((reporter.Reporter, "_begin_next"),),
    "bound pod told": ((reporter.Reporter, "report_scheduled"),),
    "waiting pod told": ((reporter.Reporter, "report_waiting"),),
    "queue of reports": ((report_queue.PendingReports, "next"),),
    "measure": ((MetricsRecorder, "record_outcome"),),
    "work": ((WorkQueue, "take"),),
}
"""The functions that fail; a read of a pod and a Binding in doubt occur only after another exception."""
EVICTIONS = ("outcome of an eviction", "eviction", "request of an eviction")


class Saboteur:
    """Makes the first call of one function fail, and later calls at random."""

    def __init__(self, place: str, bugs_max: int) -> None:
        self._chance = random(f"bugs in {place}")
        self._bugs_max = bugs_max
        self.bugs = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*arguments: Any, **named: Any) -> Any:
            if not self.bugs or (self.bugs < self._bugs_max and self._chance.random() < SHARE):
                self.bugs += 1
                raise RuntimeError("a bug")
            return function(*arguments, **named)

        return failing


async def is_bound(world: Cluster) -> bool:
    placed = await world.placed()
    return all(placed[name] for name in placed if name != "waits")


async def is_going(world: Cluster, name: str) -> bool:
    return any(
        pod["metadata"]["name"] == name and "deletionTimestamp" in pod["metadata"] for pod in await world.listed(PATH)
    )


@pytest.mark.expects_errors("job failed")
@pytest.mark.parametrize("place", PLACES)
async def test_bug_costs_no_pod_its_node_and_the_daemon_lives(
    place: str, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    for module in (permits, bindings):
        monkeypatch.setattr(module, "SETTLE_SECONDS", module.SETTLE_SECONDS * TIME_SCALE)
    shorter = lambda first, most: Backoff(first * TIME_SCALE, most * TIME_SCALE)  # noqa: E731
    monkeypatch.setattr(configured_profile, "Backoff", shorter)
    saboteurs = []
    for owner, name in PLACES[place]:
        most = 2 if place in EVICTIONS else BUGS_MAX
        saboteurs.append(Saboteur(f"{place}: {name}", most))
        monkeypatch.setattr(owner, name, saboteurs[-1].wrap(getattr(owner, name)))

    async def eviction_has_ended() -> bool:
        return await is_going(world, "guest") or any(line["event"] == "evict refused" for line in lines())

    async with cluster() as world:
        await world.pool("gpu", nodeSelector={"matchLabels": {"pool": "gpu"}})
        await world.pool("cpu")
        await world.node("g", cpu="1", labels={"pool": "gpu"})
        await world.pod("guest", pool="cpu")
        await world.until(lambda: is_bound(world))
        await world.runs("guest")
        await world.node("n", cpu="64")
        await world.pod("waits", cpu="100")
        for number in range(PODS):
            await world.pod(f"p{number}")
        await world.until(lambda: is_bound(world))
        await world.pod("owner", pool="gpu")
        await world.until(eviction_has_ended)
        await world.delete(f"{PATH}/guest", gracePeriodSeconds=0)
        await world.until(lambda: is_bound(world))
        engine = world.daemon.scheduler
        await world.until(lambda: nothing_assumed(world))
        assert check(engine.cluster) == ()
        counted = sum(world.daemon._telemetry.recorder.internal_errors.values())
        assert all(saboteur.bugs for saboteur in saboteurs)
        assert counted >= 1
        await world.pod("after")
        await world.until(lambda: is_bound(world))


async def nothing_assumed(world: Cluster) -> bool:
    return world.daemon.scheduler.assumed() == 0


def reported_parts() -> set[str]:
    """Return every constant name with which a module of the daemon or of its writers reports an exception."""
    found: set[str] = set()
    for package in ("kube", "daemon"):
        for path in sorted((ROOT / "aischeduler" / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("on_internal_error", "_on_failure")):
                    found |= {str(node.args[0].value)} if isinstance(node.args[0], ast.Constant) else set()
    return found


def test_every_part_that_reports_exceptions_is_known() -> None:
    assert {"binder", "standby", "search for work"} <= reported_parts() <= set(PARTS)


async def test_series_of_errors_exist_before_the_first_error() -> None:
    """A series that begins with 1 is no increase for Prometheus, so that the first error raised no alert."""
    async with cluster() as world:
        await world.node("n", cpu="1")
        await world.pod("p")
        await world.until(lambda: is_bound(world))
        recorder = world.daemon._telemetry.recorder
        expected = {"binder", "perform Bind", "watch events", "lease renewal", "pool"}
        assert {part: recorder.internal_errors[part] for part in recorder.internal_errors if part in expected} == (
            dict.fromkeys(expected, 0)
        )
        assert recorder.plugin_errors["NodeResourcesFit"] == 0
        assert "NodeResourcesFit" in recorder.plugin_errors
        assert set(recorder.internal_errors.values()) == {0}
