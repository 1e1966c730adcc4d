"""The plugin registry: makes the plugins of a profile from their names and arguments.

Invariants:
- A plugin runs at the points at which the profile enables it, in the order of `config.profiles`.
- Each profile has plugins of its own: an argument or a weight of one profile is not seen by another.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from aischeduler.config.errors import PluginError, ProfileError
from aischeduler.config.plugin_args import (
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeExpression,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeTerm,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)
from aischeduler.config.plugins import KNOWN, MULTI_POINT, POINTS, load_factory
from aischeduler.config.profiles import PointPlugins, ProfileConfig, arguments, named_plugins, plugins_by_point
from aischeduler.framework.per_node import NodeByNodeFilter, NodeByNodeScore
from aischeduler.framework.plugin import Plugins
from aischeduler.model.scoring import ResourceWeight, ScoringStrategy, ShapePoint, StrategyType
from aischeduler.model.selectors import (
    NAME_FIELD,
    NodeSelectorTerm,
    Operator,
    PreferredSchedulingTerm,
    Requirement,
    SelectorError,
    readable_requirement,
)
from aischeduler.model.topology_spread import DefaultConstraint
from aischeduler.plugins.device_share import DeviceShare
from aischeduler.plugins.elastic_places import ElasticPlaces
from aischeduler.plugins.gangs import Gangs
from aischeduler.plugins.gpu_type import GpuType
from aischeduler.plugins.image_locality import ImageLocality
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from aischeduler.plugins.machine_group import MachineGroup
from aischeduler.plugins.node_affinity import NodeAffinity, NodeAffinityNames
from aischeduler.plugins.node_declared_features import NodeDeclaredFeatures
from aischeduler.plugins.node_fragmentation import NodeFragmentation
from aischeduler.plugins.node_ports import NodePorts
from aischeduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from aischeduler.plugins.node_unschedulable import NodeUnschedulable
from aischeduler.plugins.node_volume_limits import NodeVolumeLimits
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from aischeduler.plugins.scheduling_gates import SchedulingGates
from aischeduler.plugins.taint_toleration import TaintToleration
from aischeduler.plugins.volume_binding import VolumeBinding
from aischeduler.plugins.volume_restrictions import VolumeRestrictions
from aischeduler.plugins.volume_zone import VolumeZone

_REQUIRED: Final = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"


class CardSettings(NamedTuple):
    """What the configuration says of GPUs: the names of the resources, and the labels that have the types."""

    resources: tuple[str, ...]
    type_labels: tuple[str, ...]


def _fit(args: NodeResourcesFitArgs, cards: CardSettings) -> NodeResourcesFit:
    given, strategy = args.scoring_strategy, None
    if given is not None:
        ratio = given.requested_to_capacity_ratio
        points = ratio.shape if ratio is not None else ()
        strategy = ScoringStrategy(
            StrategyType(given.type),
            tuple(ResourceWeight(resource.name, resource.weight) for resource in given.resources),
            tuple(ShapePoint(point.utilization, point.score) for point in points),
        )
    ignored = frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups)
    return NodeResourcesFit(cards.resources, strategy, *ignored)


def _node_affinity(args: NodeAffinityArgs) -> NodeAffinity:
    """Return the plugin with the added terms. Raises SelectorError for an expression that cannot be."""
    added = args.added_affinity
    if added is None:
        return NodeAffinity()
    required, preferred = (
        added.required_during_scheduling_ignored_during_execution,
        added.preferred_during_scheduling_ignored_during_execution,
    )
    terms = required.node_selector_terms if required is not None else ()
    hard = tuple(_term(f"{_REQUIRED}.nodeSelectorTerms[{index}]", term) for index, term in enumerate(terms))
    soft = (
        PreferredSchedulingTerm(
            preferred_term.weight, _term(f"{_PREFERRED}[{index}].preference", preferred_term.preference)
        )
        for index, preferred_term in enumerate(preferred)
    )
    return NodeAffinity(hard if required is not None else None, tuple(soft))


def _term(path: str, term: NodeTerm) -> NodeSelectorTerm:
    def read(field: str, parts: tuple[NodeExpression, ...]) -> tuple[Requirement, ...]:
        return tuple(
            readable_requirement(f"{path}.{field}[{index}]", requirement.key, requirement.operator, requirement.values)
            for index, requirement in enumerate(parts)
        )

    for index, requirement in enumerate(term.match_fields):
        if requirement.key != NAME_FIELD or requirement.operator not in (Operator.IN, Operator.NOT_IN):
            raise SelectorError(f"{path}.matchFields[{index}]: must be {NAME_FIELD} with In or NotIn")
    return NodeSelectorTerm(read("matchExpressions", term.match_expressions), read("matchFields", term.match_fields))


def _names(args: NodeResourcesBalancedAllocationArgs) -> tuple[str, ...]:
    return tuple(resource.name for resource in args.resources)


def _inter_pod_affinity(args: InterPodAffinityArgs) -> InterPodAffinity:
    ignores = args.ignore_preferred_terms_of_existing_pods
    return InterPodAffinity(args.hard_pod_affinity_weight, ignores_preferences=ignores)


def _pod_topology_spread(args: PodTopologySpreadArgs) -> PodTopologySpread:
    if args.defaulting_type == "System":
        return PodTopologySpread()
    return PodTopologySpread(
        tuple(
            DefaultConstraint(
                constraint.topology_key,
                constraint.max_skew,
                hard=constraint.when_unsatisfiable == "DoNotSchedule",
                min_domains=constraint.min_domains or 1,
                honors_affinity=constraint.node_affinity_policy == "Honor",
                honors_taints=constraint.node_taints_policy == "Honor",
            )
            for constraint in args.default_constraints
        )
    )


Objects = tuple[object, ...]
"""The objects of one plugin; each has the methods of one or more protocols of `framework.plugin`."""
Factory = Callable[[Any, CardSettings], Objects]
"""Makes a plugin from its arguments, which are its `KnownPlugin.args`; None where it takes none."""

BUILT_IN: Final[Mapping[str, Factory]] = {
    "SchedulingGates": lambda _, __: (SchedulingGates(),),
    "NodeUnschedulable": lambda _, __: (NodeUnschedulable(),),
    "TaintToleration": lambda _, __: (TaintToleration(),),
    "NodeAffinity": lambda args, _: (NodeAffinityNames(), _node_affinity(args or NodeAffinityArgs())),
    "MachineGroup": lambda _, __: (MachineGroup(),),
    "GpuType": lambda _, cards: (GpuType(cards.type_labels),),
    "DeviceShare": lambda _, __: (DeviceShare(),),
    "NodePorts": lambda _, __: (NodePorts(),),
    "NodeFragmentation": lambda _, cards: (NodeFragmentation(cards.resources),),
    "ElasticPlaces": lambda _, __: (ElasticPlaces(),),
    "NodeResourcesFit": lambda args, cards: (_fit(args or NodeResourcesFitArgs(), cards),),
    "VolumeRestrictions": lambda _, __: (VolumeRestrictions(),),
    "NodeVolumeLimits": lambda _, __: (NodeVolumeLimits(),),
    "VolumeBinding": lambda args, _: (VolumeBinding((args or VolumeBindingArgs()).bind_timeout_seconds),),
    "VolumeZone": lambda _, __: (VolumeZone(),),
    "PodTopologySpread": lambda args, _: (_pod_topology_spread(args or PodTopologySpreadArgs()),),
    "InterPodAffinity": lambda args, _: (_inter_pod_affinity(args or InterPodAffinityArgs()),),
    "NodeResourcesBalancedAllocation": lambda args, _: (
        NodeResourcesBalancedAllocation(_names(args or NodeResourcesBalancedAllocationArgs())),
    ),
    "ImageLocality": lambda _, __: (ImageLocality(),),
    "NodeDeclaredFeatures": lambda _, __: (NodeDeclaredFeatures(),),
    "Gangs": lambda _, __: (Gangs(),),
}
ENGINE: Final[Mapping[str, str]] = {
    "PrioritySort": "the order of the queues",
    "NodeName": "a pod that has a node is never scheduled; always on",
    "DefaultPreemption": "preemption and taking back lent room; it looks at all nodes",
    "DefaultBinder": "the Binding; asked after all other plugins that bind",
}
"""The plugins that the engine is itself, with what they are here."""
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "preEnqueue": ("holds", "unit_of", "refuses"),
    "preFilter": ("prefilter",),
    "filter": ("filter", "prefilter"),
    "preScore": ("prescore",),
    "score": ("score", "prescore"),
    "reserve": ("reserve", "choose"),
    "permit": ("permit",),
    "postFilter": ("post_filter",),
    "queueSort": ("rank",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}
"""Point -> the methods of which a plugin has one that extends it."""
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "filter": ("static", "reasons", "helps"),
    "prefilter": ("applies", "counts"),
    "prescore": ("weight", "prefers", "scored"),
    "score": ("static", "weight", "normalize", "reverse"),
    "reserve": ("release",),
    "choose": ("part", "for_claims", "make_part", "allocates", "bound"),
    "refuses": ("accounts_of",),
    "unit_of": ("gang_of", "form", "spare"),
}
"""Method -> what a plugin with it needs too; see the protocols."""


class _Source(Struct, frozen=True):
    """The profile whose plugins are made, and its path in the file."""

    config: ProfileConfig
    path: str
    cards: CardSettings


def make_plugins(config: ProfileConfig, path: str, cards: CardSettings) -> Plugins:
    """Return the plugins of a profile; `path` names it in errors. Raises ProfileError."""
    source = _Source(config, path, cards)
    args = arguments(config, path)
    made: dict[str, Objects] = {name: _made_by_others(source, name, args) for name in named_plugins(config)}

    def extends(name: str, point: str) -> bool:
        if name in KNOWN:
            return point in KNOWN[name].points
        return any(_extends(plugin, point) for plugin in made[name])

    chosen = plugins_by_point(config, path, extends)
    _refuse_missing(source)
    for name in chosen.names:
        if name in BUILT_IN:
            try:
                made[name] = BUILT_IN[name](args.get(name), cards)
            except SelectorError as error:
                raise ProfileError(f"{_args_path(source, name)}.{error}") from error
    return _assembled(source, chosen, made)


def _assembled(source: _Source, chosen: PointPlugins, made: Mapping[str, Objects]) -> Plugins:
    """Put the objects into their places."""

    def having(point: str, method: str) -> Iterator[Any]:
        return (plugin for name in chosen.by_point[point] for plugin in made.get(name, ()) if hasattr(plugin, method))

    for name, weight in chosen.weights.items():
        for plugin in made.get(name, ()):
            if hasattr(plugin, "weight") and weight != plugin.weight:
                _set_weight(source, name, plugin, weight)
    filters = sorted(having("filter", "filter"), key=lambda plugin: not isinstance(plugin, NodeAffinityNames))
    units = tuple(having("preEnqueue", "unit_of"))
    if len(units) > 1:
        names = ", ".join(unit.name for unit in units)
        raise ProfileError(f"{source.path}.plugins.preEnqueue: one plugin only may form units, not {names}")
    return Plugins(
        gates=tuple(having("preEnqueue", "holds")),
        filters=tuple(filters),
        scores=tuple(having("score", "score")),
        cross_row=tuple(having("filter", "prefilter")),
        cross_scores=tuple(having("score", "prescore")),
        reserves=tuple(having("reserve", "reserve")),
        allocators=tuple(having("reserve", "choose")),
        quotas=tuple(having("preEnqueue", "refuses")),
        permits=tuple(having("permit", "permit")),
        units=units[0] if units else None,
        volume_seconds=next((float(plugin.volume_seconds) for plugin in having("preBind", "volume_seconds")), None),
        post_filters=tuple(having("postFilter", "post_filter")),
        queue_sort=next(having("queueSort", "rank"), None),
        pre_binds=tuple(having("preBind", "pre_bind")),
        post_binds=tuple(having("postBind", "post_bind")),
        binds=tuple(having("bind", "bind")),
        default_binds="DefaultBinder" in chosen.by_point["bind"],
        reads=tuple(
            sorted({key for objects in made.values() for plugin in objects for key in getattr(plugin, "reads", ())})
        ),
        preempts="DefaultPreemption" in chosen.by_point["postFilter"],
    )


def _set_weight(source: _Source, name: str, plugin: Any, weight: int) -> None:
    try:
        plugin.weight = weight
    except AttributeError as error:
        raise ProfileError(f"{source.path}: the weight of {name} cannot be set: {error}") from error


def _extends(plugin: object, point: str) -> bool:
    return any(hasattr(plugin, method) for method in _METHODS.get(point, ()))


def _made_by_others(source: _Source, name: str, args: Mapping[str, Any]) -> Objects:
    """Make a plugin of others; raises ProfileError with the path of its arguments, or of the profile."""
    where = _args_path(source, name)
    try:
        plugin: Any = load_factory(name)(dict(args.get(name, {})))
    except PluginError as error:
        raise ProfileError(f"{source.path}.plugins: {error}") from error
    except Exception as error:  # whatever the constructor of foreign code raises
        raise ProfileError(f"{where}: {name} refuses its arguments: {type(error).__name__}: {error}") from error
    if wrong := _wrong(plugin):
        raise ProfileError(f"{source.path}.plugins: {name} {wrong}")
    plain: list[object] = [NodeByNodeFilter(plugin)] if hasattr(plugin, "filter_node") else []
    return (*plain, *([NodeByNodeScore(plugin)] if hasattr(plugin, "score_node") else []), plugin)


def _wrong(plugin: Any) -> str:
    """Return why an object is no plugin; empty where it is one."""
    if not isinstance(getattr(plugin, "name", None), str):
        return "has no attribute `name`"
    for method, needed in _NEEDS.items():
        missing = [attribute for attribute in needed if hasattr(plugin, method) and not hasattr(plugin, attribute)]
        if missing:
            return f"has {method} and no {missing[0]}"
    scores = hasattr(plugin, "score") or hasattr(plugin, "score_node")
    if scores and getattr(plugin, "normalize", False) and not getattr(plugin, "static", False):
        return "has a score that is normalised and not static"
    methods = ("filter_node", "score_node", *(method for methods in _METHODS.values() for method in methods))
    return "" if any(hasattr(plugin, method) for method in methods) else "extends no point"


def _args_path(source: _Source, name: str) -> str:
    """Return the path of the arguments of a plugin, or of the plugins where it has none."""
    configs = source.config.plugin_config
    number = next((index for index, config in enumerate(configs) if config.name == name), None)
    return f"{source.path}.plugins" if number is None else f"{source.path}.pluginConfig[{number}].args"


def _refuse_missing(source: _Source) -> None:
    """Refuse plugins of kube-scheduler that are named and do not exist here."""
    for point in (MULTI_POINT, *POINTS):
        for index, enabled in enumerate(source.config.plugins.at(point).enabled):
            if enabled.name in KNOWN and enabled.name not in BUILT_IN and enabled.name not in ENGINE:
                where = f"{source.path}.plugins.{point}.enabled[{index}].name"
                raise ProfileError(f"{where}: Ai-Scheduler does not have kube-scheduler's {enabled.name}")
