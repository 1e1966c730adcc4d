"""The profiles of the configuration: which plugins run where, and the sentence for each way to get them wrong."""

from collections.abc import Iterator

import pytest

from aischeduler.config.errors import ConfigError, ProfileError
from aischeduler.config.load import parse_config
from aischeduler.config.plugins import POINTS, TABLE
from aischeduler.config.profiles import PointPlugins, plugins_by_point, with_names


def by_point(plugins: str) -> PointPlugins:
    (profile,) = parse_config("f", f"profiles: [{{plugins: {{{plugins}}}}}]".encode()).profiles
    return plugins_by_point(profile, "profiles[0]")


def complaint(text: str) -> str:
    with pytest.raises((ConfigError, ProfileError)) as caught:
        read(text)
    return str(caught.value).removeprefix("f: ")


def read(text: str) -> None:
    for index, profile in enumerate(parse_config("f", text.encode()).profiles):
        plugins_by_point(profile, f"profiles[{index}]")


def test_default_plugins_are_those_of_kube_scheduler_in_its_order_with_its_weights() -> None:
    found = by_point("")
    own = {plugin.name for plugin in TABLE if plugin.own}
    assert [name for name in found.by_point["filter"] if name not in own] == [
        "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
        "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread",
        "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures",
    ]  # fmt: skip
    assert {name: weight for name, weight in found.weights.items() if name not in own} == {
        "TaintToleration": 3, "NodeAffinity": 2, "NodeResourcesFit": 1, "PodTopologySpread": 2, "InterPodAffinity": 2,
        "DynamicResources": 2, "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1,
    }  # fmt: skip


def test_star_disables_all_default_plugins_of_a_point_and_of_no_other() -> None:
    found = by_point("score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}")
    assert (found.by_point["score"], found.weights) == (("NodeResourcesFit",), {"NodeResourcesFit": 5})
    assert found.by_point["filter"] == by_point("").by_point["filter"]


def test_plugin_that_is_enabled_again_without_a_weight_has_the_weight_1() -> None:
    assert by_point("multiPoint: {enabled: [{name: NodeAffinity}]}").weights["NodeAffinity"] == 1
    assert by_point("multiPoint: {enabled: [{name: NodeAffinity, weight: 7}]}").weights["NodeAffinity"] == 7
    assert by_point("score: {enabled: [{name: TaintToleration}]}").weights["TaintToleration"] == 1


def test_own_score_that_is_enabled_again_without_a_weight_keeps_its_weight() -> None:
    assert by_point("score: {enabled: [{name: GpuType}]}").weights["GpuType"] == 4000


def test_weight_at_the_point_counts_before_that_of_multi_point() -> None:
    everywhere, there = (f"{{enabled: [{{name: ImageLocality, weight: {weight}}}]}}" for weight in (3, 9))
    found = by_point(f"multiPoint: {everywhere}, score: {there}")
    assert found.weights["ImageLocality"] == 9


def test_plugin_that_a_point_names_again_comes_first_there() -> None:
    found = by_point("filter: {enabled: [{name: NodePorts}, {name: NodeAffinity}]}").by_point["filter"]
    assert found[:3] == ("NodePorts", "NodeAffinity", "NodeUnschedulable")
    assert len(found) == len(set(found))


def test_plugin_is_disabled_at_one_point_only() -> None:
    found = by_point("score: {disabled: [{name: PodTopologySpread}]}").by_point
    assert ("PodTopologySpread" in found["score"], "PodTopologySpread" in found["filter"]) == (False, True)


def test_plugin_that_multi_point_disables_runs_nowhere() -> None:
    found = by_point("multiPoint: {disabled: [{name: NodeAffinity}, {name: DefaultPreemption}]}")
    assert {"NodeAffinity", "DefaultPreemption"}.isdisjoint(found.names)


def test_order_of_multi_point_is_kept_where_all_are_enabled_anew() -> None:
    found = by_point(
        "multiPoint: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}, {name: PrioritySort}, "
        "{name: NodePorts}, {name: NodeName}]}"
    )
    assert {point: names for point, names in found.by_point.items() if names} == {
        "queueSort": ("PrioritySort",),
        "preFilter": ("NodePorts",),
        "filter": ("NodePorts", "NodeName"),
        "bind": ("DefaultBinder",),
    }


def test_profile_without_a_name_has_that_of_the_file() -> None:
    config = parse_config("f", b"{schedulerName: night, profiles: [{}]}")
    assert [profile.scheduler_name for profile in with_names(config.profiles, config.scheduler_name)] == ["night"]
    assert config.scheduler_names == ("night",)


def test_own_name_comes_first_and_exists_without_a_profile() -> None:
    config = parse_config("f", b"profiles: [{schedulerName: batch}, {schedulerName: ai-scheduler}]")
    assert config.scheduler_names == ("ai-scheduler", "batch")
    assert parse_config("f", b"profiles: [{schedulerName: batch}]").scheduler_names == ("ai-scheduler", "batch")


def wrong_fields() -> Iterator[tuple[str, str]]:
    yield "profiles: {}", "profiles must be a list of at most 16 profiles of kube-scheduler's form, not a mapping"
    yield "profiles: [3]", "profiles[0] must be a mapping, not 3"
    yield "profiles: [{schedulerNme: x}]", "'profiles[0].schedulerNme' is not a field; did you mean schedulerName?"
    yield "profiles: [{1: 2}]", "profiles[0] has a key that is not a string"
    yield (
        "profiles: [{schedulerName: 'A B'}]",
        (
            "profiles[0].schedulerName must be a name of lower-case letters, digits, '-' and '.', "
            "at most 253 characters, not 'A B'"
        ),
    )
    yield (
        "profiles: [{schedulerName: a}, {}]",
        "profiles[1].schedulerName is missing; only a file with one profile may leave it out",
    )
    yield (
        "profiles: [{schedulerName: a}, {schedulerName: a}]",
        "profiles[1].schedulerName: 'a' is that of profiles[0] too",
    )
    yield (
        "profiles: [{percentageOfNodesToScore: 101}]",
        "profiles[0].percentageOfNodesToScore must be a whole number from 0 to 100, not 101",
    )


def wrong_plugins() -> Iterator[tuple[str, str]]:
    plugins = "profiles[0].plugins"
    yield "profiles: [{plugins: {scre: {}}}]", f"'{plugins}.scre' is not a field; did you mean score?"
    yield (
        "profiles: [{plugins: {score: {enabled: [{nam: x}]}}}]",
        f"'{plugins}.score.enabled[0].nam' is not a field; did you mean name?",
    )
    for key in ("enabled", "disabled"):
        yield (
            f"profiles: [{{plugins: {{score: {{{key}: [{{name: NodeAfinity}}]}}}}}}]",
            f"{plugins}.score.{key}[0].name: there is no plugin 'NodeAfinity'; did you mean NodeAffinity?",
        )
    yield (
        "profiles: [{pluginConfig: [{name: EBSLimits}]}]",
        "profiles[0].pluginConfig[0].name: there is no plugin 'EBSLimits'",
    )
    yield (
        "profiles: [{pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]}]",
        "profiles[0].pluginConfig[1].name: 'NodeAffinity' appears twice",
    )
    yield (
        "profiles: [{plugins: {score: {enabled: [{name: NodePorts}]}}}]",
        f"{plugins}.score.enabled[0].name: NodePorts does not extend the point score",
    )
    yield (
        "profiles: [{plugins: {score: {enabled: [{name: GpuType, weight: 1000001}]}}}]",
        f"{plugins}.score.enabled[0].weight must be a whole number from 0 to 1000000, not 1000001",
    )
    for point in ("filter", "multiPoint"):
        yield (
            f"profiles: [{{plugins: {{{point}: {{enabled: [{{name: NodePorts}}, {{name: NodePorts}}]}}}}}}]",
            f"{plugins}.{point}.enabled: {'a plugin' if point == 'filter' else 'NodePorts'} appears twice",
        )
    yield (
        "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]",
        f"{plugins}.queueSort: exactly one plugin must sort the queue, not 0",
    )
    yield (
        "profiles: [{plugins: {bind: {disabled: [{name: DefaultBinder}]}}}]",
        f"{plugins}.bind: one plugin must bind; DefaultBinder does",
    )
    yield (
        "profiles: [{plugins: {preFilter: {disabled: [{name: NodePorts}]}}}]",
        f"{plugins}.preFilter: NodePorts is disabled here and enabled at filter, which needs it; disable it at filter",
    )


@pytest.mark.parametrize(("text", "sentence"), [*wrong_fields(), *wrong_plugins()])
def test_wrong_profile_is_named_with_its_path(text: str, sentence: str) -> None:
    assert complaint(text) == sentence


def test_point_of_every_plugin_of_the_table_exists() -> None:
    assert {point for plugin in TABLE for point in plugin.points} <= set(POINTS)
    assert all(bool(plugin.weight) == ("score" in plugin.points) for plugin in TABLE)
