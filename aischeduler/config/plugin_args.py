"""The arguments of plugins (`pluginConfig[].args` of a profile): fields, defaults and bounds of kube-scheduler.

Invariants:
- A value is frozen and hashable, and `X()` has the defaults of kube-scheduler 1.36.
- What kube-scheduler refuses is refused; a value from a file is never dropped.

Source: KubeSchedulerConfiguration v1, its defaults and its validation.
"""

from itertools import pairwise
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from aischeduler.config.section import SUBDOMAIN, Boolean, LabelKey, Section, whole_number

INT32_MAX: Final = 2**31 - 1
ITEMS_MAX: Final = 256

_LABEL_KEY_FORM: Final = "a name such as cpu or example.com/device"
Key = Annotated[LabelKey, Meta(description=_LABEL_KEY_FORM)]
Percent = Annotated[int, whole_number(0, 100)]
Weight = Annotated[int, whole_number(0, 100)]
ResourceGroup = Annotated[
    str, Meta(pattern=rf"\A({SUBDOMAIN})\Z", max_length=253, description="a prefix such as example.com")
]
ResourceName = Annotated[str, Meta(min_length=1, max_length=317, description="the name of a resource such as cpu")]
LabelText = Annotated[str, Meta(max_length=63, description="a text of at most 63 characters")]


class ResourceWeight(Section, frozen=True):
    """A resource that a score counts, and its weight, 1 to 100; 0 means 1."""

    name: ResourceName
    weight: Weight = 1

    def __post_init__(self) -> None:
        """Take 0 for 1, as kube-scheduler does."""
        if not self.weight:
            msgspec.structs.force_setattr(self, "weight", 1)


CPU_AND_MEMORY: Final = (ResourceWeight(name="cpu"), ResourceWeight(name="memory"))
ResourceWeights = Annotated[
    tuple[ResourceWeight, ...],
    Meta(max_length=ITEMS_MAX, description="a list of resources such as {name: cpu, weight: 1}"),
]


class ShapePoint(Section, frozen=True):
    """The score, 0 to 10, at a utilisation in percent."""

    utilization: Percent
    score: Annotated[int, whole_number(0, 10)]


Shape = Annotated[
    tuple[ShapePoint, ...],
    Meta(max_length=ITEMS_MAX, description="a list of points such as {utilization: 0, score: 10}"),
]


class CapacityRatio(Section, frozen=True):
    """The scores by utilisation; between two points they lie on a line."""

    shape: Shape = ()

    def __post_init__(self) -> None:
        """Refuse a shape without points, or whose points are not in order; raises ValueError."""
        _check_shape(self.shape)


ScoringType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class ScoringStrategy(Section, frozen=True):
    """How free or used resources become a score."""

    type: ScoringType
    resources: ResourceWeights = CPU_AND_MEMORY
    requested_to_capacity_ratio: Annotated[CapacityRatio | None, Meta(description="a mapping with the key shape")] = (
        None
    )

    def __post_init__(self) -> None:
        """Refuse a shape beside another type, and a type without its shape; raises ValueError."""
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", CPU_AND_MEMORY)
        by_ratio = self.type == "RequestedToCapacityRatio"
        if by_ratio and self.requested_to_capacity_ratio is None:
            raise ValueError("requestedToCapacityRatio: is missing; the type RequestedToCapacityRatio needs it")
        if not by_ratio and self.requested_to_capacity_ratio is not None:
            raise ValueError("requestedToCapacityRatio: only the type RequestedToCapacityRatio takes it")


class NodeResourcesFitArgs(Section, frozen=True):
    """Which extended resources the filter ignores, and how nodes are scored.

    Without a strategy the Pool decides: LeastAllocated where it spreads, which is kube-scheduler's default.
    """

    ignored_resources: Annotated[
        tuple[Key, ...], Meta(max_length=ITEMS_MAX, description="a list of resources such as example.com/device")
    ] = ()
    ignored_resource_groups: Annotated[
        tuple[ResourceGroup, ...],
        Meta(max_length=ITEMS_MAX, description="a list of prefixes of resources such as example.com"),
    ] = ()
    scoring_strategy: Annotated[ScoringStrategy | None, Meta(description="a mapping such as type: MostAllocated")] = (
        None
    )


class NodeResourcesBalancedAllocationArgs(Section, frozen=True):
    """The resources whose use is to be balanced."""

    resources: ResourceWeights = CPU_AND_MEMORY

    def __post_init__(self) -> None:
        """Refuse a resource that is there twice, and weights other than 1; raises ValueError."""
        if not self.resources:
            msgspec.structs.force_setattr(self, "resources", CPU_AND_MEMORY)
        seen: set[str] = set()
        for index, resource in enumerate(self.resources):
            if resource.weight != 1:
                raise ValueError(f"resources[{index}].weight: must be 1, not {resource.weight}")
            if resource.name in seen:
                raise ValueError(f"resources[{index}].name: {resource.name!a} appears twice")
            seen.add(resource.name)


class InterPodAffinityArgs(Section, frozen=True):
    """The weight of required affinity of pods on nodes in the score, and whether their preferred terms count."""

    hard_pod_affinity_weight: Weight = 1
    ignore_preferred_terms_of_existing_pods: Boolean = False


class NodeExpression(Section, frozen=True):
    """One comparison of a label or a field of nodes."""

    key: Annotated[str, Meta(max_length=317, description="the key of a label")]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[tuple[LabelText, ...], Meta(max_length=ITEMS_MAX, description="a list of texts")] = ()


Expressions = Annotated[
    tuple[NodeExpression, ...],
    Meta(max_length=ITEMS_MAX, description="a list such as [{key: disk, operator: In, values: [ssd]}]"),
]


class NodeTerm(Section, frozen=True):
    """Expressions that all have to match; a term without any matches no node."""

    match_expressions: Expressions = ()
    match_fields: Expressions = ()


class RequiredNodes(Section, frozen=True):
    """Terms of which one has to match."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Meta(max_length=ITEMS_MAX, description="a list of terms")]


class PreferredNodes(Section, frozen=True):
    """A term, and the weight of its nodes."""

    weight: Weight
    preference: NodeTerm


class AddedAffinity(Section, frozen=True):
    """Node affinity that counts for every pod of the profile, beside its own."""

    required_during_scheduling_ignored_during_execution: Annotated[
        RequiredNodes | None, Meta(description="a mapping with the key nodeSelectorTerms")
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Meta(max_length=ITEMS_MAX, description="a list of terms with weights")
    ] = ()


class NodeAffinityArgs(Section, frozen=True):
    """Node affinity for every pod of the profile."""

    added_affinity: Annotated[AddedAffinity | None, Meta(description="a mapping as nodeAffinity of a pod")] = None


class DefaultConstraint(Section, frozen=True):
    """A spread constraint for pods that have none; its selector is that of the pod's owner."""

    max_skew: Annotated[int, whole_number(1, INT32_MAX)]
    topology_key: Annotated[LabelKey, Meta(description="the key of a label of nodes")]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, whole_number(1, INT32_MAX)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"
    match_label_keys: Annotated[tuple[Key, ...], Meta(max_length=ITEMS_MAX, description="a list of label keys")] = ()
    label_selector: Annotated[dict[str, object] | None, Meta(description="absent")] = None

    def __post_init__(self) -> None:
        """Refuse a selector; raises ValueError."""
        if self.label_selector is not None:
            raise ValueError("labelSelector: must be absent: the selector is that of the pod's owner")


class PodTopologySpreadArgs(Section, frozen=True):
    """The spread constraints of pods that have none: kube-scheduler's own (System), or the list."""

    default_constraints: Annotated[
        tuple[DefaultConstraint, ...], Meta(max_length=ITEMS_MAX, description="a list of spread constraints")
    ] = ()
    defaulting_type: Literal["System", "List"] = "System"

    def __post_init__(self) -> None:
        """Refuse constraints beside those of the system, and two of one key and kind; raises ValueError."""
        if self.default_constraints and self.defaulting_type == "System":
            raise ValueError("defaultingType: must be List where defaultConstraints are given")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(self.default_constraints):
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ValueError(f"defaultConstraints[{index}]: {' '.join(pair)} appears twice")
            seen.add(pair)


class VolumeBindingArgs(Section, frozen=True):
    """How long the binding of volumes may take."""

    bind_timeout_seconds: Annotated[int, whole_number(0, INT32_MAX, of="of seconds ")] = 600
    shape: Annotated[Shape | None, Meta(description="absent")] = None

    def __post_init__(self) -> None:
        """Refuse a shape: kube-scheduler takes one only with a feature gate that is off; raises ValueError."""
        if self.shape is not None:
            raise ValueError("shape: needs the feature gate StorageCapacityScoring, which is off in kube-scheduler")


class DefaultPreemptionArgs(Section, frozen=True):
    """How many nodes kube-scheduler looks at for victims. Ai-Scheduler looks at all: the values change nothing."""

    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Annotated[int, whole_number(0, INT32_MAX)] = 100

    def __post_init__(self) -> None:
        """Refuse two zeros; raises ValueError."""
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesAbsolute: must not be 0 where minCandidateNodesPercentage is 0")


PluginArgs = (
    NodeResourcesFitArgs
    | NodeResourcesBalancedAllocationArgs
    | InterPodAffinityArgs
    | NodeAffinityArgs
    | PodTopologySpreadArgs
    | VolumeBindingArgs
    | DefaultPreemptionArgs
)


def _check_shape(shape: tuple[ShapePoint, ...]) -> None:
    """Refuse a shape without points, or whose points are not in order of utilisation; raises ValueError."""
    if not shape:
        raise ValueError("shape: must have at least one point")
    for index, (before, after) in enumerate(pairwise(shape), 1):
        if before.utilization >= after.utilization:
            raise ValueError(f"shape[{index}].utilization: {after.utilization} is not more than the one before")
