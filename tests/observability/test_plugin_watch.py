"""The watch of plugins of others: their time is measured, and a slow one is logged at most once a minute."""

from typing import Any, cast

import pytest
import structlog
from msgspec.structs import replace
from structlog.testing import capture_logs

from aischeduler.engine.internal_errors import plugin_of
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.framework.per_node import NodeByNodeFilter, PlainNode
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.observability.metrics import MetricsRecorder, PoolLabels
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

    async def pre_bind(self, pod: Pod, node: str) -> None:
        self._clock.now += self.seconds
        if pod.name == "bad":
            raise ValueError("bad")


def watched(far: Far, clock: Clock) -> tuple[Profile, MetricsRecorder]:
    found, recorder = default_profile(), MetricsRecorder(PoolLabels())
    plugins = replace(
        found.plugins,
        gates=(*found.plugins.gates, far),
        filters=(*found.plugins.filters[:-1], NodeByNodeFilter(far), found.plugins.filters[-1]),
    )
    profile = replace(found, plugins=replace(plugins, pre_binds=(far,)))
    return PluginWatch(recorder, clock, structlog.get_logger()).measured(profile), recorder


def measured_far(profile: Profile) -> Far:
    """Return the plugin as the daemon calls it."""
    return cast("Far", profile.plugins.gates[-1])


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
    far = measured_far(watched(Far(clock, 0.2), clock)[0])
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
    far = measured_far(watched(Far(clock, 0.05), clock)[0])
    with capture_logs() as lines:
        far.filter_node(a_pod("p").spec, PlainNode(a_node("n"), {}))
    assert lines == []


def test_exception_of_a_watched_plugin_passes_unchanged() -> None:
    clock = Clock()
    profile, recorder = watched(Far(clock, 0.0), clock)
    far = measured_far(profile)
    with pytest.raises(ValueError, match="bad"):
        far.holds(a_pod("bad"))
    assert recorder.plugin_calls == {"Far": 1}


def fails(far: Far, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ValueError, match="bad"):
            far.holds(a_pod("bad"))


def test_plugin_that_keeps_failing_is_logged_once_a_minute_with_the_number_of_failures() -> None:
    clock = Clock()
    far = measured_far(watched(Far(clock, 0.0), clock)[0])
    with capture_logs() as lines:
        fails(far, 6)
        clock.now += 60.0
        fails(far, 1)
    assert [(line["event"], line["plugin"], line["method"], line["failures"], line["reason"]) for line in lines] == [
        ("plugin keeps failing", "Far", "holds", 5, "ValueError('bad')"),
        ("plugin keeps failing", "Far", "holds", 7, "ValueError('bad')"),
    ]


def test_plugin_that_fails_for_few_pods_among_many_keeps_failing() -> None:
    clock = Clock()
    far = measured_far(watched(Far(clock, 0.0), clock)[0])
    with capture_logs() as lines:
        for _ in range(5):
            fails(far, 1)
            far.holds(a_pod("good"))
            clock.now += 10.0
    assert [line["event"] for line in lines] == ["plugin keeps failing"]


def test_plugin_that_fails_now_and_then_does_not_keep_failing() -> None:
    clock = Clock()
    far = measured_far(watched(Far(clock, 0.0), clock)[0])
    with capture_logs() as lines:
        for _ in range(10):
            fails(far, 1)
            clock.now += 16.0
    assert lines == []


async def test_method_that_is_awaited_is_slow_after_seconds_and_its_exceptions_are_noted() -> None:
    clock = Clock()
    plugin = Far(clock, 5.0)
    profile, recorder = watched(plugin, clock)
    far = measured_far(profile)
    with capture_logs() as lines:
        await far.pre_bind(a_pod("p"), "n")
        assert lines == [], "it holds up no pool"
        plugin.seconds = 6.0
        for _ in range(5):
            with pytest.raises(ValueError, match="bad"):
                await far.pre_bind(a_pod("bad"), "n")
    assert [(line["event"], line["method"]) for line in lines] == [
        ("plugin slow", "pre_bind"),
        ("plugin keeps failing", "pre_bind"),
    ]
    assert (recorder.plugin_calls["Far"], recorder.plugin_seconds["Far"]) == (6, 35.0)


def test_loop_over_nodes_of_a_plain_plugin_is_slow_where_no_call_is() -> None:
    clock = Clock()
    profile, recorder = watched(Far(clock, 0.01), clock)
    with capture_logs() as lines:
        session = Session(*(a_node(f"n{number}") for number in range(20)), profile=profile)
        session.see(a_pod("p"))
        session.decide()
    slow = [(line["plugin"], line["method"], line["seconds"]) for line in lines if line["event"] == "plugin slow"]
    assert slow == [("Far", "filter", pytest.approx(0.2))]
    assert recorder.plugin_seconds["Far"] == pytest.approx(0.2), "the loop is not counted again"


class Frozen:
    """A gate without room for other methods."""

    __slots__ = ()
    name = "Frozen"

    def holds(self, pod: Pod) -> str:
        return ""


def test_plugin_with_slots_is_measured_too() -> None:
    clock, found, recorder = Clock(), default_profile(), MetricsRecorder(PoolLabels())
    profile = replace(found, plugins=replace(found.plugins, gates=(Frozen(),)))
    measured = PluginWatch(recorder, clock, structlog.get_logger()).measured(profile)
    assert binds(Session(a_node("n"), a_pod("p"), profile=measured).decide()) == {"p": "n"}
    assert recorder.plugin_calls["Frozen"] >= 1


def test_plugin_in_two_profiles_has_one_proxy() -> None:
    found = default_profile()
    plugins = replace(found.plugins, gates=(Frozen(),))
    profile = replace(found, plugins=plugins, others={"night": plugins})
    measured = PluginWatch(MetricsRecorder(PoolLabels()), Clock(), structlog.get_logger()).measured(profile)
    assert measured.plugins.gates[0] is measured.others["night"].gates[0]


class Other:
    """A gate of another name, after the one that raises."""

    name = "Other"

    def holds(self, pod: Pod) -> str:
        return ""


def test_exception_of_a_measured_plugin_names_the_plugin() -> None:
    class Broken:
        name = "Broken"

        def filter_node(self, pod: PodSpec, node: PlainNode) -> str | None:
            raise ValueError("bad")

    found = default_profile()
    plugins = replace(found.plugins, filters=(NodeByNodeFilter(Broken()),), gates=(Other(),), pre_binds=(Other(),))
    recorder = MetricsRecorder(PoolLabels())
    profile = PluginWatch(recorder, Clock(), structlog.get_logger()).measured(replace(found, plugins=plugins))
    with pytest.raises(ValueError, match="bad") as caught:
        cast("Any", profile.plugins.filters[0]).plugin.plugin.filter_node(a_pod("p").spec, PlainNode(a_node("n"), {}))
    assert plugin_of(profile, caught.value) == "Broken"
