"""The arguments of plugins: kube-scheduler's defaults, and the sentence for each way to get them wrong."""

import msgspec
import pytest
import yaml

from aischeduler.config.errors import ConfigError
from aischeduler.config.load import parse_config
from aischeduler.config.plugin_args import (
    CPU_AND_MEMORY,
    AddedAffinity,
    DefaultConstraint,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeExpression,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeTerm,
    PluginArgs,
    PodTopologySpreadArgs,
    RequiredNodes,
    ResourceWeight,
    ShapePoint,
    VolumeBindingArgs,
)
from aischeduler.config.plugins import TABLE
from aischeduler.config.profiles import arguments

ARGS = "profiles[0].pluginConfig[0].args"


def profile_text(name: str, args: str) -> bytes:
    return f"profiles: [{{pluginConfig: [{{name: {name}, args: {{{args}}}}}]}}]".encode()


def read(name: str, args: str) -> PluginArgs:
    (profile,) = parse_config("f", profile_text(name, args)).profiles
    found = arguments(profile, "profiles[0]")[name]
    assert not isinstance(found, dict)
    return found


def complaint(name: str, args: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config("f", profile_text(name, args))
    return str(caught.value).removeprefix("f: ")


def test_defaults_are_those_of_kube_scheduler() -> None:
    defaults = {
        plugin.name: msgspec.json.decode(msgspec.json.encode(plugin.args()))
        for plugin in TABLE
        if plugin.args is not None
    }
    cpu_and_memory = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    assert defaults == {
        "NodeAffinity": {"addedAffinity": None},
        "NodeResourcesFit": {"ignoredResources": [], "ignoredResourceGroups": [], "scoringStrategy": None},
        "VolumeBinding": {"bindTimeoutSeconds": 600, "shape": None},
        "PodTopologySpread": {"defaultConstraints": [], "defaultingType": "System"},
        "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
        "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
        "NodeResourcesBalancedAllocation": {"resources": cpu_and_memory},
    }


def test_fit_takes_a_shape_and_what_it_ignores() -> None:
    args = read(
        "NodeResourcesFit",
        "apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs, ignoredResources: [example.com/a],"
        "ignoredResourceGroups: [example.com], scoringStrategy: {type: RequestedToCapacityRatio, resources: "
        "[{name: nvidia.com/gpu, weight: 3}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, "
        "{utilization: 100, score: 10}]}}",
    )
    assert isinstance(args, NodeResourcesFitArgs)
    strategy = args.scoring_strategy
    assert strategy is not None
    assert strategy.requested_to_capacity_ratio is not None
    assert (args.ignored_resources, args.ignored_resource_groups) == (("example.com/a",), ("example.com",))
    assert strategy.resources == (ResourceWeight(name="nvidia.com/gpu", weight=3),)
    points = (ShapePoint(utilization=0, score=0), ShapePoint(utilization=100, score=10))
    assert strategy.requested_to_capacity_ratio.shape == points
    assert hash(args) == hash(msgspec.convert(msgspec.to_builtins(args), NodeResourcesFitArgs))


@pytest.mark.parametrize("resources", ["", ", resources: []"])
def test_strategy_without_resources_counts_cpu_and_memory(resources: str) -> None:
    args = read("NodeResourcesFit", f"scoringStrategy: {{type: MostAllocated{resources}}}")
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.scoring_strategy is not None
    assert args.scoring_strategy.resources == CPU_AND_MEMORY


def test_weight_of_0_is_1() -> None:
    args = read("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 0}, {name: example.com/a}]")
    assert isinstance(args, NodeResourcesBalancedAllocationArgs)
    assert [(resource.name, resource.weight) for resource in args.resources] == [("cpu", 1), ("example.com/a", 1)]


def test_every_other_argument_is_read() -> None:
    term = NodeTerm(match_expressions=(NodeExpression(key="disk", operator="In", values=("ssd",)),))
    terms = RequiredNodes(node_selector_terms=(term,))
    assert read(
        "NodeAffinity",
        "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}",
    ) == NodeAffinityArgs(added_affinity=AddedAffinity(required_during_scheduling_ignored_during_execution=terms))
    assert read(
        "InterPodAffinity", "hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true"
    ) == InterPodAffinityArgs(hard_pod_affinity_weight=0, ignore_preferred_terms_of_existing_pods=True)
    constraint = DefaultConstraint(max_skew=2, topology_key="zone", when_unsatisfiable="ScheduleAnyway")
    assert read(
        "PodTopologySpread",
        "defaultingType: List, defaultConstraints: "
        "[{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
    ) == PodTopologySpreadArgs(default_constraints=(constraint,), defaulting_type="List")
    assert read("VolumeBinding", "bindTimeoutSeconds: 0") == VolumeBindingArgs(bind_timeout_seconds=0)
    assert read(
        "DefaultPreemption", "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 5"
    ) == DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=5)


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("NodeResourcesFit", "scoringStrategy: {type: LeastAlocated}",
         (f"{ARGS}.scoringStrategy.type: 'LeastAlocated' is not LeastAllocated, MostAllocated or "
         "RequestedToCapacityRatio; did you mean LeastAllocated?")),
        ("NodeResourcesFit", "scoringStrategy: {resources: []}", f"{ARGS}.scoringStrategy.type is missing"),
        ("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio}",
         f"{ARGS}.scoringStrategy.requestedToCapacityRatio: is missing; the type RequestedToCapacityRatio needs it"),
        ("NodeResourcesFit", ("scoringStrategy: {type: MostAllocated, requestedToCapacityRatio: "
         "{shape: [{utilization: 0, score: 1}]}}"),
         f"{ARGS}.scoringStrategy.requestedToCapacityRatio: only the type RequestedToCapacityRatio takes it"),
        ("NodeResourcesFit", "scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: []}}",
         f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape: must have at least one point"),
        ("NodeResourcesFit", ("scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
         "[{utilization: 5, score: 1}, {utilization: 5, score: 2}]}}"),
         f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: 5 is not more than the one before"),
        ("NodeResourcesFit", ("scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
         "[{utilization: 5, score: 11}]}}"),
         f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape[0].score must be a whole number from 0 to 10, not 11"),
        ("NodeResourcesFit", "scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}",
         f"{ARGS}.scoringStrategy.resources[0].weight must be a whole number from 0 to 100, not 101"),
        ("NodeResourcesFit", "ignoredResourceGroups: [a/b]",
         f"{ARGS}.ignoredResourceGroups[0] must be a prefix such as example.com, not 'a/b'"),
        ("NodeResourcesFit", "ignoredResource: []",
         f"'{ARGS}.ignoredResource' is not a field; did you mean ignoredResources?"),
        ("NodeResourcesBalancedAllocation", "resources: [{name: cpu, weight: 2}]",
         f"{ARGS}.resources[0].weight: must be 1, not 2"),
        ("NodeResourcesBalancedAllocation", "resources: [{name: cpu}, {name: cpu}]",
         f"{ARGS}.resources[1].name: 'cpu' appears twice"),
        ("InterPodAffinity", "hardPodAffinityWeight: 101",
         f"{ARGS}.hardPodAffinityWeight must be a whole number from 0 to 100, not 101"),
        ("NodeAffinity", "addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1}]}",
         f"{ARGS}.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference is missing"),
        ("PodTopologySpread", "defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]",
         f"{ARGS}.defaultingType: must be List where defaultConstraints are given"),
        ("PodTopologySpread", ("defaultingType: List, defaultConstraints: [{maxSkew: 0, topologyKey: z, "
         "whenUnsatisfiable: DoNotSchedule}]"),
         f"{ARGS}.defaultConstraints[0].maxSkew must be a whole number from 1 to 2147483647, not 0"),
        ("PodTopologySpread", ("defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, "
         "whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]"),
         f"{ARGS}.defaultConstraints[0].labelSelector: must be absent: the selector is that of the pod's owner"),
        ("PodTopologySpread", "defaultingType: List, defaultConstraints: [" + ", ".join(
            2 * ["{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}"]) + "]",
         f"{ARGS}.defaultConstraints[1]: z DoNotSchedule appears twice"),
        ("VolumeBinding", "bindTimeoutSeconds: -1",
         f"{ARGS}.bindTimeoutSeconds must be a whole number of seconds from 0 to 2147483647, not -1"),
        ("VolumeBinding", "shape: []",
         f"{ARGS}.shape: needs the feature gate StorageCapacityScoring, which is off in kube-scheduler"),
        ("DefaultPreemption", "minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0",
         f"{ARGS}.minCandidateNodesAbsolute: must not be 0 where minCandidateNodesPercentage is 0"),
        ("NodePorts", "a: 1", "profiles[0].pluginConfig[0]: NodePorts takes no arguments"),
        ("NodeAffinity", "kind: NodeResourcesFitArgs", f"{ARGS}.kind must be NodeAffinityArgs"),
        ("NodeAffinity", "apiVersion: v1beta1", f"{ARGS}.apiVersion must be kubescheduler.config.k8s.io/v1"),
    ],
)  # fmt: skip
def test_wrong_argument_is_named_with_its_path(name: str, args: str, sentence: str) -> None:
    assert complaint(name, args) == sentence
    assert yaml.safe_load(profile_text(name, args)), "the text is YAML"
