"""The log of exceptions of plugins: one that fails for every pod does not fill the log."""

import pytest

from aischeduler.model.actions import ReportInternalError, Step
from tests.build import a_pod
from tests.kube.executor_world import World


def failed(pod: str, plugin: str) -> ReportInternalError:
    return ReportInternalError(
        Step.ATTEMPT, "trying a pod", "default", a_pod(pod), "d-1", "KeyError: 'a'", "...", plugin
    )


@pytest.mark.expects_errors("internal error")
async def test_exception_of_a_plugin_is_logged_once_a_minute_and_names_it() -> None:
    world = World()
    async with world.running() as executor:
        executor.perform([failed("a", "Far"), failed("b", "Far"), failed("c", "Near"), failed("d", "Far")])
        world.waits.now += 60.0
        executor.perform([failed("e", "Far")])
    lines = [(line["pod"], line["plugin"], line["left_out"]) for line in world.logged() if "plugin" in line]
    assert lines == [("a", "Far", 0), ("c", "Near", 0), ("e", "Far", 2)]


@pytest.mark.expects_errors("internal error")
async def test_every_other_exception_is_logged() -> None:
    world = World()
    async with world.running() as executor:
        executor.perform([failed("a", ""), failed("b", "")])
    assert [line["pod"] for line in world.logged() if line.get("step") == Step.ATTEMPT] == ["a", "b"]
