"""The daemon lets the engine judge itself and tells of what is broken, with the state that it is in."""

from collections.abc import Callable
from typing import Any

from tests.daemon.cluster import cluster


async def test_broken_invariant_is_logged_with_a_digest_of_the_state(
    lines: Callable[[], list[dict[str, Any]]],
) -> None:
    async with cluster() as world:
        await world.node("n")
        await world.pod("p")
        await world.until(world.all_placed)
        scheduler = world.daemon.scheduler
        scheduler._cluster.nodes.used[0, 0] += 1
        scheduler._self_check.checked_at = float("-inf")

        async def told() -> bool:
            return any(line["event"] == "invariant violated" for line in lines())

        await world.until(told)
        (line,) = [line for line in lines() if line["event"] == "invariant violated"]
        assert (line["level"], line["invariant"], line["pods"], line["nodes"]) == ("error", "I2", 1, 1)
        assert line["digest"] == scheduler.digest()["digest"]
        assert "n: uses" in line["reason"]
        assert scheduler.tally.violations == {"I2": 1}
