"""The daemon logs the violations that the engine's self-check finds, with the state of the engine."""

from collections.abc import Callable
from typing import Any

import pytest

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.cycle import warn_pod
from aischeduler.model.actions import Action, Step
from aischeduler.state.pod_records import PodRecord
from tests.daemon.cluster import cluster


@pytest.mark.expects_errors("invariant violated")
async def test_broken_invariant_is_logged_with_a_digest_of_the_state(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    async with cluster() as world:
        await world.node("n")
        await world.pod("p")
        await world.until(world.all_placed)
        scheduler = world.daemon.scheduler

        async def settled() -> bool:
            return scheduler.assumed() == 0

        await world.until(settled)  # the digest has the states of pods
        scheduler.cluster.nodes.used[0, 0] += 1
        scheduler._self_check.checked_at = float("-inf")

        async def told() -> bool:
            return any(line["event"] == "invariant violated" for line in lines())

        await world.until(told)
        (line,) = [line for line in lines() if line["event"] == "invariant violated"]
        assert (line["level"], line["invariant"], line["pods"], line["nodes"]) == ("error", "I2", 1, 1)
        assert line["digest"] == scheduler.digest()["digest"]
        assert "n: uses" in line["reason"]
        assert scheduler.counters.violations == {"I2": 1}


@pytest.mark.expects_errors("internal error")
async def test_exception_of_the_engine_is_logged_with_its_traceback_and_delays_no_other_pod(
    lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = True

    def warn_or_fail(cluster: Cluster, record: PodRecord, actions: list[Action]) -> None:
        if broken and record.pod.name == "bad":
            raise ZeroDivisionError("a bug")
        warn_pod(cluster, record, actions)

    monkeypatch.setattr("aischeduler.engine.scheduler.warn_pod", warn_or_fail)
    async with cluster() as world:
        await world.node("n")
        await world.pod("bad")
        await world.pod("good")

        async def good_is_placed_and_bad_is_told() -> bool:
            told = any(line["event"] == "internal error" for line in lines())
            return told and await world.placed() == {"bad": "", "good": "n"}

        await world.until(good_is_placed_and_bad_is_told)
        line = next(line for line in lines() if line["event"] == "internal error")
        assert (line["level"], line["step"], line["pool"], line["pod"]) == ("error", "attempt", "default", "bad")
        assert (line["reason"], "in warn_or_fail" in line["exception"]) == ("ZeroDivisionError: a bug", True)
        assert world.daemon.scheduler.counters.internal_errors[Step.ATTEMPT] >= 1
        broken = False
        await world.until(world.all_placed)
