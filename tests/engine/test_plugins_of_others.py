"""Plugins of others: entry points, plain plugins, and the extension points that the built-in ones do not use."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from aischeduler.config.errors import ConfigError, ProfileError
from aischeduler.config.load import parse_config
from aischeduler.config.plugins import plugin_names
from aischeduler.config.profiles import ProfileConfig, with_names
from aischeduler.engine.internal_errors import PLUGIN_ERROR, plugin_of
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.per_node import NodeByNodeFilter, NodeByNodeScore, PlainNode
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.actions import ReportInternalError
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from tests.build import a_node, a_pod, a_spec
from tests.distributions import install
from tests.engine.session import Session, binds, reports

CODE = '''
class Tiers:
    """A plain plugin: nodes of a tier for the pods of the tier, the larger nodes first."""

    name = "Tiers"
    reads = ("tier",)
    def __init__(self, args):
        self.strict = args.get("strict", True)
        if not isinstance(self.strict, bool):
            raise ValueError("strict must be true or false")
    def filter_node(self, pod, node):
        wanted = pod.mark("tier")
        return "node(s) were of another tier" if self.strict and node.node.labels.get("tier", "") != wanted else None
    def score_node(self, pod, node):
        return min(node.free["cpu"] // 100, 100)

class Shortest:
    name = "Shortest"
    def __init__(self, args): pass
    def rank(self, pod):
        return int(pod.labels.get("minutes", "0"))

class Adviser:
    name = "Adviser"
    def __init__(self, args): pass
    def post_filter(self, pod, pool):
        return f"ask the owner of {pool} for more nodes"

class Broken:
    name = "Broken"
    def __init__(self, args): self.bad = args.get("score")
    def filter_node(self, pod, node):
        return None
    def score_node(self, pod, node):
        return self.bad if self.bad is not None else [][pod.request.amounts["cpu"]]

class Agent:
    name = "Agent"
    def __init__(self, args): pass
    async def bind(self, pod, node, request): return False

class Nothing:
    name = "Nothing"
    def __init__(self, args): pass

class Half:
    name = "Half"
    static = False
    def __init__(self, args): pass
    def filter(self, spec, at): return None

class Scaled:
    name, static, weight, normalize, reverse = "Scaled", False, 1, True, False
    def __init__(self, args): pass
    def score(self, ask, at): return None

class Nameless:
    def __init__(self, args): pass
    def holds(self, pod): return ""

fine = 3
'''
POINTS = ("Tiers", "Shortest", "Adviser", "Broken", "Agent", "Nothing", "Half", "Scaled", "Nameless")


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with an installed distribution, which is on the path."""
    points = {name: name for name in POINTS} | {"Fine": "fine", "Lost": "nowhere:Lost"}
    module = install(tmp_path, monkeypatch, "others", CODE, points)
    yield tmp_path
    sys.modules.pop(module, None)


def profile_of(**profile: Any) -> Profile:
    found = msgspec.convert([profile], tuple[ProfileConfig, ...])
    return with_profiles(default_profile(), with_names(found, SCHEDULER_NAME))


def enabled(name: str, point: str = "multiPoint", **args: Any) -> Profile:
    config = [{"name": name, "args": args}] if args else []
    return profile_of(plugins={point: {"enabled": [{"name": name}]}}, pluginConfig=config)


def test_plain_plugin_filters_by_a_label_of_the_pod_and_scores_nodes(distribution: Path) -> None:
    session = Session(profile=enabled("Tiers"))
    session.see(a_node("gold", cpu="4", labels={"tier": "gold"}), a_node("small", cpu="4"), a_node("large", cpu="9"))
    session.see(a_pod("rich", labels={"tier": "gold"}), a_pod("poor"), a_pod("queen", labels={"tier": "queen"}))
    actions = session.decide()
    assert binds(actions) == {"rich": "gold", "poor": "large"}
    assert "3 node(s) were of another tier" in reports(actions)["queen"]


def test_pod_whose_label_that_a_plugin_reads_changes_is_tried_again(distribution: Path) -> None:
    session = Session(a_node("gold", cpu="4", labels={"tier": "gold"}), a_pod("p"), profile=enabled("Tiers"))
    assert binds(session.decide()) == {}
    session.see(a_pod("p", labels={"tier": "gold"}))
    assert binds(session.decide(1.0)) == {"p": "gold"}


def test_plugin_gets_its_arguments(distribution: Path) -> None:
    session = Session(a_node("n", labels={"tier": "gold"}), a_pod("p"), profile=enabled("Tiers", strict=False))
    assert binds(session.decide()) == {"p": "n"}


def test_plugin_runs_only_at_the_points_that_enable_it(distribution: Path) -> None:
    filters, scores = (enabled("Tiers", point).plugins for point in ("filter", "score"))
    assert ([one.name for one in filters.filters][-1], "Tiers" in [one.name for one in filters.scores]) == (
        "Tiers",
        False,
    )
    assert ([one.name for one in scores.scores][-1], "Tiers" in [one.name for one in scores.filters]) == (
        "Tiers",
        False,
    )


def test_score_of_others_has_the_weight_of_the_profile(distribution: Path) -> None:
    profile = profile_of(plugins={"score": {"enabled": [{"name": "Tiers", "weight": 7}]}})
    assert {one.name: one.weight for one in profile.plugins.scores}["Tiers"] == 7


def test_plugin_sorts_the_queue_in_place_of_priorities(distribution: Path) -> None:
    chosen = {"disabled": [{"name": "PrioritySort"}], "enabled": [{"name": "Shortest"}]}
    session = Session(a_node("n", cpu="1"), profile=profile_of(plugins={"queueSort": chosen}))
    session.see(a_pod("long", cpu="1", labels={"minutes": "90"}, preempts=False))
    session.see(a_pod("high", cpu="1", labels={"minutes": "60"}, preempts=False))
    session.see(a_pod("short", cpu="1", labels={"minutes": "5"}, preempts=False))
    assert binds(session.decide()) == {"short": "n"}


def test_waiting_pod_moves_in_the_queue_when_its_rank_changes(distribution: Path) -> None:
    chosen = {"disabled": [{"name": "PrioritySort"}], "enabled": [{"name": "Shortest"}]}
    session = Session(profile=profile_of(plugins={"queueSort": chosen}))
    session.see(*(a_pod(name, cpu="1", labels={"minutes": at}) for name, at in (("a", "5"), ("b", "9"))))
    session.see(a_pod("b", cpu="1", labels={"minutes": "1"}), a_node("n", cpu="1"))
    assert binds(session.decide()) == {"b": "n"}


def test_profiles_must_sort_the_queues_alike(distribution: Path) -> None:
    chosen = {"disabled": [{"name": "PrioritySort"}], "enabled": [{"name": "Shortest"}]}
    profiles = [{"schedulerName": "a", "plugins": {"queueSort": chosen}}, {"schedulerName": SCHEDULER_NAME}]
    found = msgspec.convert(profiles, tuple[ProfileConfig, ...])
    with pytest.raises(ProfileError, match="must be one for all, not PrioritySort, Shortest"):
        with_profiles(default_profile(), found)


def test_plugin_adds_to_the_reason_of_a_pod_that_fits_nowhere(distribution: Path) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="9"), profile=enabled("Adviser"))
    assert "Adviser: ask the owner of default for more nodes." in reports(session.decide())["p"]
    assert session.decide(400.0) == [], "the reason stays the same"


def test_exception_of_a_plugin_costs_an_attempt_and_names_it(distribution: Path) -> None:
    session = Session(a_node("n"), a_node("m"), a_pod("bad"), profile=enabled("Broken"))
    actions = session.decide()
    assert reports(actions) == {"bad": PLUGIN_ERROR.format("Broken")}
    assert [one.plugin for one in actions if isinstance(one, ReportInternalError)] == ["Broken"]
    assert session.scheduler.counters.plugin_errors == {"Broken": 1}
    session.decide(1.0)
    assert session.scheduler.counters.plugin_errors == {"Broken": 2}, "the pod is tried again"


@pytest.mark.parametrize("score", [-1, 101])
def test_score_that_is_not_allowed_is_an_exception_of_the_plugin(distribution: Path, score: int) -> None:
    session = Session(a_node("n"), a_node("m"), a_pod("bad"), profile=enabled("Broken", score=score))
    (error,) = (one for one in session.decide() if isinstance(one, ReportInternalError))
    assert (error.plugin, f"the score {score} of the node" in error.error) == ("Broken", True)


def test_exception_of_the_engine_names_no_plugin() -> None:
    with pytest.raises(KeyError) as caught:
        Counter[str]().pop("a bug of the engine")
    assert plugin_of(default_profile(), caught.value) == ""


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("Nothing", {}, "profiles[0].plugins: Nothing extends no point"),
        ("Half", {}, "profiles[0].plugins: Half has filter and no reasons"),
        ("Scaled", {}, "profiles[0].plugins: Scaled has a score that is normalised and not static"),
        ("Nameless", {}, "profiles[0].plugins: Nameless has no attribute `name`"),
        ("Fine", {}, ("profiles[0].plugins: the distribution others: OTHERS:fine is nothing that can be called"
         " with arguments")),
        ("Lost", {}, ("profiles[0].plugins: the distribution others cannot be imported: ModuleNotFoundError: No module "
         "named 'nowhere'")),
        ("Tiers", {"strict": 3}, ("profiles[0].pluginConfig[0].args: Tiers refuses its arguments: ValueError: strict "
         "must be true or false")),
    ],
)  # fmt: skip
def test_object_that_is_no_plugin_is_refused(distribution: Path, name: str, args: Any, sentence: str) -> None:
    with pytest.raises(ProfileError) as caught:
        enabled(name, **args)
    module = f"others_{distribution.name.replace('-', '_')}"
    assert str(caught.value).replace(module, "OTHERS") == sentence


def test_plugin_that_does_not_bind_is_refused_at_bind(distribution: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        enabled("Tiers", "bind")
    assert str(caught.value) == "profiles[0].plugins.bind.enabled[0].name: Tiers does not extend the point bind"


@pytest.mark.parametrize("point", ["multiPoint", "bind"])
def test_plugin_that_binds_is_asked_and_default_binder_after_it(distribution: Path, point: str) -> None:
    plugins = enabled("Agent", point).plugins
    assert ([one.name for one in plugins.binds], plugins.default_binds) == (["Agent"], True)


def test_default_binder_can_be_replaced(distribution: Path) -> None:
    chosen = {"disabled": [{"name": "DefaultBinder"}], "enabled": [{"name": "Agent"}]}
    plugins = profile_of(plugins={"bind": chosen}).plugins
    assert ([one.name for one in plugins.binds], plugins.default_binds) == (["Agent"], False)


def test_without_any_plugin_that_binds_a_profile_is_refused(distribution: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        profile_of(plugins={"bind": {"disabled": [{"name": "*"}]}})
    assert str(caught.value) == "profiles[0].plugins.bind: one plugin must bind; DefaultBinder does"


def test_names_of_installed_plugins_may_be_misspelt(distribution: Path) -> None:
    assert set(POINTS) < set(plugin_names())
    with pytest.raises(ConfigError) as caught:
        parse_config("f", b"profiles: [{plugins: {filter: {enabled: [{name: Teirs}]}}}]")
    assert str(caught.value).endswith("there is no plugin 'Teirs'; did you mean Tiers?")


def test_distribution_with_the_name_of_a_built_in_plugin_is_an_error(distribution: Path) -> None:
    points = distribution / "others-1.0.dist-info" / "entry_points.txt"
    points.write_text("[aischeduler.plugins]\nNodePorts = x:Y\n")
    with pytest.raises(ConfigError) as caught:
        parse_config("f", b"profiles: [{}]")
    assert str(caught.value) == (
        "f: profiles: the distribution others has a plugin NodePorts, which is the name of a built-in plugin"
    )
    assert parse_config("f", b"").profiles == (), "a file without profiles reads no entry points"


class Odd:
    """Refuses nodes with an odd number in their name; counts its calls."""

    name, static = "Odd", True

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def filter_node(self, pod: PodSpec, node: PlainNode) -> str | None:
        self.calls[node.node.name] += 1
        return "node(s) were odd" if int(node.node.name[1:]) % 2 else None

    def score_node(self, pod: PodSpec, node: PlainNode) -> int:
        return int(node.node.name[1:])

    def helps(self, pod: PodSpec, node: Node) -> bool:
        return not int(node.name[1:]) % 2


def test_adapter_answers_as_the_plain_plugin_does() -> None:
    session = Session(*(a_node(f"n{number}", cpu="4") for number in range(5)))
    nodes, plugin = session.scheduler.cluster.nodes, Odd()
    rule, score = NodeByNodeFilter(plugin), NodeByNodeScore(plugin)
    at = NodeView(nodes, nodes.rows_of_pool(session.scheduler.cluster.pools.id("default")))
    names = [nodes.names[row] for row in at.rows.tolist()]
    mask = rule.filter(a_spec(), at)
    assert mask is not None
    assert dict(zip(names, mask.tolist(), strict=True)) == {f"n{number}": number % 2 == 0 for number in range(5)}
    assert rule.reasons(a_spec(), at) == {"node(s) were odd": 2}
    assert [rule.helps(a_spec(), a_node(f"n{number}")) for number in (1, 2)] == [False, True]
    scores = score.score(PlacementRequest(a_spec(), PlacementStrategy.SPREAD), at)
    assert scores is not None
    assert dict(zip(names, scores.tolist(), strict=True)) == {f"n{number}": number for number in range(5)}
    assert (rule.static, score.static, score.weight, score.normalize) == (True, True, 1, False)


class Gatekeeper:
    """Holds pods that have no owner label."""

    name = "Gatekeeper"

    def holds(self, pod: Pod) -> str:
        return "" if "owner" in pod.labels else "the pod has no owner"


def test_gate_of_others_lets_a_pod_go_when_the_pod_changes() -> None:

    profile = default_profile()
    gates = (*profile.plugins.gates, Gatekeeper())
    session = Session(a_node("n"), profile=replace(profile, plugins=replace(profile.plugins, gates=gates)))
    session.see(a_pod("p"))
    assert (binds(session.decide()), session.scheduler.why("uid-p")) == ({}, "the pod has no owner")
    session.see(a_pod("p", labels={"owner": "me"}))
    assert binds(session.decide()) == {"p": "n"}
