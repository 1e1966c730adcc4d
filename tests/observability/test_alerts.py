"""The alerts are silent on a healthy cluster, and each fires for its own reason: promtool evaluates the rules."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from aischeduler.model.actions import Evict, EvictionCause
from aischeduler.model.tenant_queue import CardUse
from aischeduler.observability.metrics import DaemonCollector
from aischeduler.observability.metrics_server import Form, encode
from tests.controlplane.binaries import the_promtool
from tests.daemon.cluster import cluster
from tests.observability.alerts import NAMES, Series, firing, scraped
from tests.observability.world import World, bind, pod, queue_report, summary

MINUTES = 40
"""Longer than the time that any alert looks back and waits, but for the wait of an hour, which looks at amounts."""
LONG_MINUTES = 130
"""Longer than the alerts of tenant queues wait."""
MINUTE_SECONDS = 0.6
"""A minute of the daemon, which sleeps a hundredth of each time here."""

Cause = Callable[[World, int], None]
"""Changes the numbers of a world for a minute."""


@pytest.fixture(scope="session")
def promtool() -> Path:
    return the_promtool()


def nothing(world: World, minute: int) -> None:
    """Let a healthy scheduler bind a pod a minute."""
    world.engine.counters.attempts["gpu", "bound"] += 1  # type: ignore[index]
    world.recorder.record_outcome(bind(f"p{minute}", "gpu", waited_seconds=1.0), "Accepted", 0.01)


def no_leader(world: World, _: int) -> None:
    world.leading = False


def long_waits(world: World, minute: int) -> None:
    world.recorder.record_outcome(bind(f"w{minute}", "gpu", waited_seconds=10_000.0), "Accepted", 0.01)


def nothing_is_tried(world: World, _: int) -> None:
    world.engine.counters.attempts.clear()
    world.engine.queues["gpu"] = {"active": 3}


def conflicts(world: World, _: int) -> None:
    world.engine.conflicting["gpu"] = 2


def queue_is_over_quota(world: World, _: int) -> None:
    world.recorder.record_queues([queue_report("vision", CardUse("H200", 900, 8), over=True)])


def queue_pods_wait(world: World, _: int) -> None:
    world.recorder.record_queues([queue_report("vision", CardUse("H200", 800, 8), pending_pods=2)])


def bindings_fail(world: World, minute: int) -> None:
    for number in range(10):
        world.recorder.record_outcome(bind(f"f{minute}-{number}", "gpu"), "Forbidden", 0.01)


def evictions_fail(world: World, minute: int) -> None:
    victim = Evict(pod(f"v{minute}"), "node", "gpu", "cpu", EvictionCause.RECLAIMED, pod("owner"), "d")
    world.recorder.record_outcome(victim, "Forbidden", 0.01)


def lists_fail(world: World, _: int) -> None:
    world.reflectors["Node"].counts.failures += 2


def reports_are_lost(world: World, _: int) -> None:
    world.reports.dropped += 100


def plugin_fails(world: World, _: int) -> None:
    world.recorder.plugin_errors["Far"] += 1


def one_exception(world: World, minute: int) -> None:
    world.recorder.internal_errors["binder"] += minute == MINUTES // 2


def one_violation(world: World, minute: int) -> None:
    world.engine.counters.violations["I2"] += minute == MINUTES // 2


def one_save(world: World, minute: int) -> None:
    world.engine.counters.net_saves["gpu"] += minute == MINUTES // 2


CAUSES: tuple[tuple[Cause, str], ...] = (
    (no_leader, "AiSchedulerHasNoLeader"),
    (long_waits, "PoolPodsWaitLong"),
    (nothing_is_tried, "NothingIsTriedThoughPodsWait"),
    (conflicts, "PoolsSelectTheSameNodes"),
    (bindings_fail, "BindingsFail"),
    (evictions_fail, "EvictionsFail"),
    (lists_fail, "ClusterIsNotSeen"),
    (reports_are_lost, "ReportsAreLost"),
    (plugin_fails, "PluginFails"),
    (one_exception, "AiSchedulerIsWrong"),
    (one_violation, "AiSchedulerIsWrong"),
    (one_save, "AiSchedulerIsWrong"),
    (queue_is_over_quota, "QueueIsOverQuota"),
    (queue_pods_wait, "QueuePodsWaitLong"),
)
SLOW = (queue_is_over_quota, queue_pods_wait)
"""The causes that have to last for `LONG_MINUTES`."""


def minutes_with(cause: Cause) -> list[Series | None]:
    """Return the scrapes of a scheduler to which something happens every minute."""
    world = World(summary("gpu", nodes=2))
    world.queues = ["vision"]
    world.recorder.expect(("binder",), ("Far",))
    found: list[Series | None] = []
    for minute in range(LONG_MINUTES if cause in SLOW else MINUTES):
        nothing(world, minute)
        cause(world, minute)
        found.append(scraped(world.scrape(Form.TEXT)))
    return found


@pytest.mark.parametrize(("cause", "alert"), CAUSES, ids=[cause.__name__ for cause, _ in CAUSES])
def test_alert_fires_for_its_reason_and_no_other_does(promtool: Path, tmp_path: Path, cause: Cause, alert: str) -> None:
    assert firing(promtool, tmp_path, minutes_with(cause)) == {alert}


def test_scheduler_that_is_not_scraped_is_down(promtool: Path, tmp_path: Path) -> None:
    scrapes = [*minutes_with(nothing), *[None] * 10]
    assert firing(promtool, tmp_path, scrapes) == {"AiSchedulerDown"}


def test_each_alert_has_a_reason_here() -> None:
    assert {alert for _, alert in CAUSES} | {"AiSchedulerDown"} == set(NAMES)


async def test_no_alert_fires_on_a_healthy_cluster_without_the_definitions_of_gangs(
    promtool: Path, tmp_path: Path
) -> None:
    """A kind that is not served is asked for again and again; each time counted as a failed list, for ever."""
    async with cluster() as world:
        await world.node("n", cpu="64")
        assert world.daemon.components is not None
        recorder = world.daemon._telemetry.recorder
        collector = DaemonCollector(world.daemon.sources(world.daemon.components), recorder)
        found: list[Series | None] = []
        for minute in range(MINUTES):
            await world.pod(f"p{minute}")
            await world.until(world.all_placed)
            collector.take()
            found.append(scraped(encode(recorder.registry, Form.TEXT)))
            await asyncio.sleep(MINUTE_SECONDS)
        unserved = [reflector for reflector in world.daemon.components.reflectors if reflector.not_served]
    assert {reflector.resource.kind for reflector in unserved} >= {"JobSet"}
    assert await asyncio.to_thread(firing, promtool, tmp_path, found) == set()
