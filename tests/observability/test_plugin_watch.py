"""The watch of plugins of others: their time is measured, and a slow one is logged at most once a minute."""

from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.framework.per_node import NodeByNodeFilter, PlainNode
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.observability.metrics_recorder import MetricsRecorder, PoolLabels
from aischeduler.observability.plugin_watch import PluginWatch
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds


class Clock:
    """A clock that the plugin moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Far:
    """A plain filter and a gate that take as long as they are told."""

    name = "Far"

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self.seconds = clock, seconds

    def filter_node(self, pod: PodSpec, node: PlainNode) -> str | None:
        self._clock.now += self.seconds
        return None

    def holds(self, pod: Pod) -> str:
        if pod.name == "bad":
            raise ValueError("bad")
        return ""


def watched(far: Far, clock: Clock) -> tuple[Profile, MetricsRecorder]:
    found, recorder = default_profile(), MetricsRecorder(PoolLabels())
    plugins = replace(
        found.plugins,
        gates=(*found.plugins.gates, far),
        filters=(*found.plugins.filters[:-1], NodeByNodeFilter(far), found.plugins.filters[-1]),
    )
    profile = replace(found, plugins=plugins)
    PluginWatch(recorder, clock, structlog.get_logger()).watch(profile)
    return profile, recorder


def test_calls_and_time_of_a_plugin_are_counted_and_those_of_the_built_in_ones_are_not() -> None:
    clock = Clock()
    profile, recorder = watched(Far(clock, 0.01), clock)
    session = Session(*(a_node(f"n{number}") for number in range(3)), profile=profile)
    session.see(a_pod("p"))
    assert len(binds(session.decide())) == 1
    assert set(recorder.plugin_calls) == {"Far"}
    assert recorder.plugin_calls["Far"] >= 4, "one gate and three nodes"
    assert recorder.plugin_seconds["Far"] == pytest.approx(0.01 * (recorder.plugin_calls["Far"] - 1), rel=0.5)


def test_slow_plugin_is_logged_once_a_minute_with_the_number_of_slow_calls() -> None:
    clock = Clock()
    far = Far(clock, 0.2)
    watched(far, clock)
    node = PlainNode(a_node("n"), {})
    with capture_logs() as lines:
        for _ in range(3):
            far.filter_node(a_pod("p").spec, node)
        clock.now += 60.0
        far.filter_node(a_pod("p").spec, node)
    assert [(line["event"], line["plugin"], line["method"], line["slow_calls"]) for line in lines] == [
        ("plugin slow", "Far", "filter_node", 1),
        ("plugin slow", "Far", "filter_node", 3),
    ]


def test_fast_plugin_is_not_logged() -> None:
    clock = Clock()
    far = Far(clock, 0.05)
    watched(far, clock)
    with capture_logs() as lines:
        far.filter_node(a_pod("p").spec, PlainNode(a_node("n"), {}))
    assert lines == []


def test_exception_of_a_watched_plugin_passes_unchanged() -> None:
    clock = Clock()
    far = Far(clock, 0.0)
    _, recorder = watched(far, clock)
    with pytest.raises(ValueError, match="bad"):
        far.holds(a_pod("bad"))
    assert recorder.plugin_calls == {"Far": 1}
