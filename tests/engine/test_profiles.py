"""Profiles: which plugins judge a pod, by its scheduler name or by its home pool."""

from typing import Any

import msgspec
import pytest
import yaml

from aischeduler.config.errors import ProfileError
from aischeduler.config.profiles import ProfileConfig, with_names
from aischeduler.engine.journal import JournaledScheduler, replay
from aischeduler.engine.plugin_registry import BUILT_IN, ENGINE
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.engine.scheduler import Scheduler
from aischeduler.framework.plugin import Delayed, Plugins, Vetoed
from aischeduler.model.actions import Bind
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.node import NO_SCHEDULE, Taint
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, conditions, reports
from tests.gangs import a_gang, member

TAINTS = "schedulerName: blind, plugins: {filter: {disabled: [{name: TaintToleration}]}}"
"""A profile whose pods may go to tainted nodes."""
CALM = "schedulerName: calm, plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}"
"""A profile whose pods evict nobody."""


def profile_of(*texts: str) -> Profile:
    documents: list[Any] = [yaml.safe_load(f"{{{text}}}") for text in texts]
    profiles = msgspec.convert(documents, tuple[ProfileConfig, ...])
    return with_profiles(default_profile(), with_names(profiles, SCHEDULER_NAME))


def tainted() -> Session:
    session = Session(profile=profile_of(TAINTS))
    session.see(a_pool("a", labels={"pool": "a"}))
    session.see(a_node("n", cpu="4", labels={"pool": "a"}, taints=(Taint("k", "v", NO_SCHEDULE),)))
    return session


def test_pod_of_a_name_without_a_profile_belongs_to_another_scheduler() -> None:
    session = tainted()
    session.see(a_pod("foreign", pool="a", scheduler_name="deaf"))
    assert (session.decide(), session.scheduler.waiting()["a"]) == ([], {})


def test_equal_pods_of_two_profiles_are_two_classes() -> None:
    session = tainted()
    pods = [a_pod(f"{name}-{number}", pool="a", scheduler_name=name)
            for number in range(3) for name in ("blind", "ai-scheduler")]  # fmt: skip
    session.see(*pods)
    assert set(binds(session.decide())) == {"blind-0", "blind-1", "blind-2"}


def test_score_has_the_weight_of_the_profile() -> None:
    scores = "{disabled: [{name: '*'}], enabled: [{name: NodeAffinity, weight: 9}]}"
    profile = profile_of(f"schedulerName: full, plugins: {{score: {scores}}}", "schedulerName: ai-scheduler")
    assert [(one.name, one.weight) for one in profile.others["full"].scores] == [("NodeAffinity", 9)]
    assert {one.name: one.weight for one in profile.plugins.scores}["NodeAffinity"] == 2


def test_own_profile_that_a_pool_names_judges_pods_of_another_name() -> None:
    session = tainted()
    session.see(replace(a_pool("a", labels={"pool": "a"}), profile=SCHEDULER_NAME))
    session.see(a_pod("blind", pool="a", scheduler_name="blind"))
    assert "untolerated taint" in reports(session.decide())["blind"]


def test_waiting_pods_of_the_default_pool_take_the_profile_that_it_names_later() -> None:
    session = Session(profile=profile_of(TAINTS))
    session.see(a_node("n", cpu="4", taints=(Taint("k", "v", NO_SCHEDULE),)), a_pod("p"))
    assert binds(session.decide()) == {}
    session.see(replace(a_pool("default"), profile="blind"))
    assert binds(session.decide(1.0)) == {"p": "n"}


def test_waiting_pods_lose_the_profile_of_a_pool_that_is_gone() -> None:
    session = Session(profile=profile_of(TAINTS))
    session.see(replace(a_pool("b", labels={"pool": "b"}), profile="blind"))
    session.see(a_node("n", cpu="4", taints=(Taint("k", "v", NO_SCHEDULE),)), a_pod("p", pool="b", cpu="8"))
    session.decide()
    session.tell(gone(Pool, "b"))
    assert "1 node(s) had untolerated taint(s)" in reports(session.decide(1.0))["p"]


def test_bound_pod_changes_its_profile_without_moving() -> None:
    session = tainted()
    session.see(a_pod("own", pool="a", node="n"))
    session.see(replace(a_pool("a", labels={"pool": "a"}), profile="blind"))
    session.see(a_pod("own", pool="a", node="n"))
    (record,) = session.scheduler.cluster.records.values()
    assert (record.pod.spec.profile, record.counted == record.pod.spec) == ("blind", True)


def test_unknown_profile_is_reported_and_the_pods_keep_their_own() -> None:
    session = tainted()
    session.see(replace(a_pool("a", labels={"pool": "a"}), profile="blnd"))
    session.see(a_pod("own", pool="a"), a_pod("blind", pool="a", scheduler_name="blind"))
    session.decide()
    assert binds(session.said) == {"blind": "n"}
    found = conditions(session.said, "a")
    assert found["Accepted"] == (
        False,
        (
            "spec.profile: the scheduler has no profile blnd (did you mean blind?); its pods keep the profile of their "
            "schedulerName, and the rest of the spec is in force."
        ),
    )
    assert found["Ready"] == (True, "The Pool takes part in scheduling.")


class Door:
    """A rule that holds, reserves and vetoes, and notes the pods of which it is asked."""

    name = "Door"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def holds(self, pod: Pod) -> str:
        return "the door is shut" if pod.name == "held" else ""

    def reserve(self, pod: Pod, node: str) -> None:
        self.asked.append(f"reserve {pod.name}")

    def release(self, pod: Pod, node: str) -> None:
        self.asked.append(f"release {pod.name}")

    def permit(self, pod: Pod, node: str, waited_seconds: float) -> Delayed | Vetoed | None:
        return Vetoed("no entry")


def test_gates_reservations_and_permits_are_those_of_the_profile() -> None:
    profile, door = profile_of(TAINTS), Door()
    plugins: Plugins = profile.others["blind"]
    mine = replace(plugins, gates=(door,), reserves=(door,), permits=(door,))
    session = Session(profile=replace(profile, others={"blind": mine}))
    session.see(a_node("n", cpu="9"))
    session.see(*(a_pod(f"{name}", scheduler_name="blind") for name in ("held", "sent")), a_pod("own"))
    actions = session.decide()
    assert binds(actions) == {"own": "n"}
    assert session.scheduler.why("uid-held") == "the door is shut"
    assert reports(actions)["sent"] == "Door does not permit the node n: no entry"
    assert door.asked == ["reserve sent", "release sent"]


def test_journal_replays_with_the_profiles_of_its_header() -> None:
    lines: list[bytes] = []
    scheduler = JournaledScheduler(profile_of(TAINTS), "run", lines.append)
    scheduler.observe(Seen(a_node("n", cpu="4", taints=(Taint("k", "v", NO_SCHEDULE),))), 1.0)
    scheduler.observe(Seen(a_pod("p", scheduler_name="blind")), 1.0)
    assert [one.node for one in scheduler.decide("default", 1.0, 8) if isinstance(one, Bind)] == ["n"]
    assert replay(lines) is None
    header = msgspec.json.decode(lines[0]) | {"profiles": []}
    assert replay([msgspec.json.encode(header), *lines[1:]]) is not None, "without the profile the pod is foreign"


def test_header_of_an_older_journal_has_no_profiles() -> None:
    lines: list[bytes] = []
    JournaledScheduler(default_profile(), "run", lines.append)
    header = msgspec.json.decode(lines[0])
    assert header.pop("profiles") == []
    assert replay([msgspec.json.encode(header)]) is None


def test_plugin_that_does_not_exist_here_is_refused_where_it_is_enabled() -> None:
    with pytest.raises(ProfileError) as caught:
        profile_of("plugins: {filter: {enabled: [{name: DynamicResources}]}}")
    where = "profiles[0].plugins.filter.enabled[0].name"
    assert str(caught.value) == f"{where}: Ai-Scheduler does not have kube-scheduler's DynamicResources"


def test_default_constraints_of_the_profile_keep_pods_of_a_service_waiting() -> None:
    rule = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}"
    args = f"{{defaultingType: List, defaultConstraints: [{rule}]}}"
    profile = profile_of(f"schedulerName: even, pluginConfig: [{{name: PodTopologySpread, args: {args}}}]")
    session = Session(profile=profile)
    session.tell(Seen(PodSet("Service", "default", "web", label_selector("selector", {"app": "web"}, ()))))
    session.see(a_node("n1", cpu="9", labels={"zone": "a"}), a_node("n2", cpu="0", labels={"zone": "b"}))
    session.see(*(a_pod(f"own-{number}", labels={"app": "web"}) for number in (1, 2)))
    assert len(binds(session.decide())) == 2
    session.see(a_pod("even", labels={"app": "web"}, scheduler_name="even"))
    assert "topology spread constraints" in reports(session.decide())["even"]


ADDED = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [%s]}]}"


def test_node_affinity_of_the_profile_counts_for_all_its_pods() -> None:
    term = ADDED % "{key: disk, operator: In, values: [ssd]}"
    session = Session(
        profile=profile_of(f"pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {{{term}}}}}}}]")
    )
    session.see(a_node("hdd", labels={"disk": "hdd"}), a_node("ssd", cpu="1", labels={"disk": "ssd"}))
    session.see(a_pod("one"), a_pod("two"))
    said = session.decide()
    assert list(binds(said).values()) == ["ssd"]
    assert "1 node(s) didn't match scheduler-enforced node affinity" in next(iter(reports(said).values()))


def test_added_affinity_that_cannot_be_is_refused_with_its_path() -> None:
    term = ADDED % "{key: disk, operator: Gt, values: [ssd]}"
    with pytest.raises(ProfileError) as caught:
        profile_of(f"pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {{{term}}}}}}}]")
    path = "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    said = f"{path}.nodeSelectorTerms[0].matchExpressions[0].values: Gt takes exactly one integer"
    assert str(caught.value) == said


def names_of(plugins: Plugins) -> list[list[str]]:
    return [
        [one.name for one in plugins.filters],
        [one.name for one in plugins.scores],
        [one.name for one in plugins.cross_row],
        [one.name for one in plugins.cross_scores],
    ]


def test_default_profile_is_that_of_an_empty_profile() -> None:
    assert names_of(default_profile().plugins) == names_of(profile_of("").plugins)


def test_plugin_is_either_an_object_or_a_part_of_the_engine() -> None:
    assert not BUILT_IN.keys() & ENGINE.keys()


def test_pod_without_gang_plugin_starts_alone() -> None:
    text = "schedulerName: loose, plugins: {multiPoint: {disabled: [{name: Gangs}]}}"
    session = Session(a_node("n", cpu="9"), profile=profile_of(text))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(replace(member(a_pod("loose"), gang), scheduler_name="loose"), member(a_pod("own"), gang))
    assert binds(session.decide()) == {"loose": "n"}


def test_scoring_strategy_is_that_of_the_profile() -> None:
    args = "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu}]}}"
    full = f"schedulerName: full, pluginConfig: [{{name: NodeResourcesFit, args: {args}}}]"
    session = Session(a_node("empty", cpu="8"), a_node("used", cpu="8"), profile=profile_of(full))
    session.see(a_pod("there", cpu="4", node="used", scheduler_name="other"))
    session.see(a_pod("packs", cpu="1", scheduler_name="full"), a_pod("spreads", cpu="1"))
    assert binds(session.decide()) == {"packs": "used", "spreads": "empty"}


def test_resources_are_ignored_for_the_pods_of_the_profile_alone() -> None:
    """The oracle of a session counts every request, so this engine is a plain one."""
    lax = "schedulerName: lax, pluginConfig: [{name: NodeResourcesFit, args: {ignoredResourceGroups: [example.com]}}]"
    scheduler, device = Scheduler(profile_of(lax), "run"), {"example.com/device": "1"}

    def bound(now: float, *events: Event) -> set[str]:
        found: set[str] = set()
        for event in events:
            scheduler.observe(event, now)
        while pools := scheduler.ready(now):
            for pool in pools:
                found |= {one.pod.name for one in scheduler.decide(pool, now, 8) if isinstance(one, Bind)}
        return found

    pods = a_pod("lax", extended=device, scheduler_name="lax"), a_pod("own", extended=device)
    assert bound(0.0, Seen(a_node("n", cpu="8")), *map(Seen, pods)) == {"lax"}
    assert "Insufficient example.com/device" in scheduler.why("uid-own")
    assert bound(2.0, Seen(replace(a_pool("default"), profile="lax"))) == {"own"}
    third = Seen(a_pod("third", extended=device))
    own = Seen(replace(a_pool("default"), profile=SCHEDULER_NAME))
    assert bound(4.0, third, own) == set(), "the request counts again, as it was read"


def test_arguments_of_inter_pod_affinity_and_of_the_balance_are_those_of_the_profile() -> None:
    profile = profile_of(
        "pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 7}}, "
        "{name: NodeResourcesBalancedAllocation, args: {resources: [{name: nvidia.com/gpu}, {name: cpu}]}}]"
    )
    found: tuple[Any, ...] = (*profile.plugins.scores, *profile.plugins.cross_scores)
    rules = {one.name: one for one in found}
    assert rules["InterPodAffinity"]._hard_weight == 7
    assert rules["NodeResourcesBalancedAllocation"]._resources == ("nvidia.com/gpu", "cpu")


def test_added_affinity_by_another_field_than_the_name_is_refused_with_its_path() -> None:
    term = "{nodeSelectorTerms: [{matchFields: [{key: name, operator: In, values: [a]}]}]}"
    added = f"{{requiredDuringSchedulingIgnoredDuringExecution: {term}}}"
    with pytest.raises(ProfileError) as caught:
        profile_of(f"pluginConfig: [{{name: NodeAffinity, args: {{addedAffinity: {added}}}}}]")
    assert str(caught.value) == (
        "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution."
        "nodeSelectorTerms[0].matchFields[0]: must be metadata.name with In or NotIn"
    )
