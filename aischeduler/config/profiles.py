"""The profiles of the configuration, in the form of the `profiles` of KubeSchedulerConfiguration v1, and what they run.

Invariants:
- Every profile has a scheduler name of its own; without one, it has that of the file.
- Names of plugins and their arguments are checked when the file is read; an error names the path.
- What runs at which point, in which order and with which weight is as in kube-scheduler 1.36: the profile changes the
  default plugins, then `multiPoint` spreads to the points. At a point come first the plugins that it names itself and
  `multiPoint` has too, then those of `multiPoint`, then all others. A profile that kube-scheduler refuses is refused.

Source: KubeSchedulerConfiguration v1 of kube-scheduler 1.36, its defaults and its validation; its mergePlugins and
expandMultiPointPlugins.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from aischeduler.config.errors import PluginError, ProfileError, sentence
from aischeduler.config.plugin_args import INT32_MAX, PluginArgs
from aischeduler.config.plugins import KNOWN, MULTI_POINT, POINTS, PREPARES, TABLE, plugin_names
from aischeduler.config.section import OptionalName, Section, whole_number
from aischeduler.model.user_text import nearest, quoted

PROFILES_MAX: Final = 16
WEIGHT_MAX: Final = 1_000_000
"""The largest weight of a score; sums of scores stay far below the largest number."""
PLUGINS_MAX: Final = 256
ALL: Final = "*"
ARGS_VERSION: Final = "kubescheduler.config.k8s.io/v1"


class EnabledPlugin(Section, frozen=True):
    """A plugin that is enabled; with the weight 0, the score has that of kube-scheduler, which is 1."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="the name of a plugin")]
    weight: Annotated[int, whole_number(0, WEIGHT_MAX)] = 0


class DisabledPlugin(Section, frozen=True):
    """A plugin that is disabled; `*` means all that are enabled by default."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="the name of a plugin, or *")]
    weight: Annotated[int, Meta(ge=0, le=INT32_MAX, description="absent")] = 0


class PluginSet(Section, frozen=True):
    """The plugins that one extension point has beside the default ones, and those that it has not."""

    enabled: Annotated[
        tuple[EnabledPlugin, ...], Meta(max_length=PLUGINS_MAX, description="a list such as [{name: NodeAffinity}]")
    ] = ()
    disabled: Annotated[
        tuple[DisabledPlugin, ...], Meta(max_length=PLUGINS_MAX, description="a list such as [{name: '*'}]")
    ] = ()


NO_PLUGINS: Final = PluginSet()
PointSet = Annotated[PluginSet, Meta(description="a mapping with the keys enabled and disabled")]


class PointSets(Section, frozen=True):
    """The plugins by extension point; `multi_point` is about all points at once."""

    multi_point: PointSet = NO_PLUGINS
    pre_enqueue: PointSet = NO_PLUGINS
    queue_sort: PointSet = NO_PLUGINS
    pre_filter: PointSet = NO_PLUGINS
    filter: PointSet = NO_PLUGINS
    post_filter: PointSet = NO_PLUGINS
    pre_score: PointSet = NO_PLUGINS
    score: PointSet = NO_PLUGINS
    reserve: PointSet = NO_PLUGINS
    permit: PointSet = NO_PLUGINS
    pre_bind: PointSet = NO_PLUGINS
    bind: PointSet = NO_PLUGINS
    post_bind: PointSet = NO_PLUGINS

    def at(self, point: str) -> PluginSet:
        """Return the plugins of a point, by its name in the file."""
        found: PluginSet = getattr(self, _ATTRIBUTES[point])
        return found


class PluginConfig(Section, frozen=True):
    """The arguments of one plugin."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="the name of a plugin")]
    args: Annotated[dict[str, Any], Meta(description="a mapping")] = {}  # noqa: RUF012 - msgspec copies it


class ProfileConfig(Section, frozen=True):
    """The plugins of the pods of one scheduler name; empty means `schedulerName` of the file."""

    scheduler_name: OptionalName = ""
    percentage_of_nodes_to_score: Annotated[
        Annotated[int, whole_number(0, 100)] | None, Meta(description="a whole number from 0 to 100")
    ] = None
    plugins: Annotated[PointSets, Meta(description="a mapping by extension point")] = PointSets()
    plugin_config: Annotated[
        tuple[PluginConfig, ...],
        Meta(max_length=PLUGINS_MAX, description="a list such as [{name: NodeAffinity, args: {}}]"),
    ] = ()


Profiles = Annotated[
    tuple[ProfileConfig, ...],
    Meta(max_length=PROFILES_MAX, description=f"a list of at most {PROFILES_MAX} profiles of kube-scheduler's form"),
]
_ATTRIBUTES: Final = {field.encode_name: field.name for field in msgspec.structs.fields(PointSets)}
assert set(_ATTRIBUTES) == {MULTI_POINT, *POINTS}


def check_profiles(profiles: tuple[ProfileConfig, ...]) -> None:
    """Raise ProfileError for a wrong name of a scheduler or a plugin, and for wrong arguments."""
    if not profiles:
        return
    try:
        known = (*KNOWN, *plugin_names())
    except PluginError as error:
        raise ProfileError(f"profiles: {error}") from error
    names: dict[str, int] = {}
    for index, profile in enumerate(profiles):
        path, name = f"profiles[{index}]", profile.scheduler_name
        if not name and len(profiles) > 1:
            raise ProfileError(f"{path}.schedulerName is missing; only a file with one profile may leave it out")
        if name in names:
            raise ProfileError(f"{path}.schedulerName: {quoted(name)} is that of profiles[{names[name]}] too")
        names[name] = index
        _check_names(profile, path, known)
        arguments(profile, path)


def with_names(profiles: tuple[ProfileConfig, ...], scheduler_name: str) -> tuple[ProfileConfig, ...]:
    """Return the profiles with their names, in the order of the file."""
    return tuple(
        msgspec.structs.replace(profile, scheduler_name=profile.scheduler_name or scheduler_name)
        for profile in profiles
    )


def arguments(profile: ProfileConfig, path: str) -> dict[str, PluginArgs | dict[str, Any]]:
    """Return the arguments by plugin, those of others as they stand; raises ProfileError."""
    found: dict[str, PluginArgs | dict[str, Any]] = {}
    for index, plugin in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        if plugin.name in found:
            raise ProfileError(f"{where}.name: {quoted(plugin.name)} appears twice")
        found[plugin.name] = _arguments(plugin, f"{where}.args")
    return found


def _arguments(config: PluginConfig, path: str) -> PluginArgs | dict[str, Any]:
    plugin, args = KNOWN.get(config.name), dict(config.args)
    if plugin is None:
        return args
    for key, expected in (("apiVersion", ARGS_VERSION), ("kind", f"{config.name}Args")):
        if args.pop(key, expected) != expected:
            raise ProfileError(f"{path}.{key} must be {expected}")
    if plugin.args is None:
        raise ProfileError(f"{path.removesuffix('.args')}: {config.name} takes no arguments")
    try:
        return msgspec.convert(args, plugin.args)
    except msgspec.ValidationError as error:
        raise ProfileError(sentence(error, plugin.args, args, path)) from error


def _check_names(profile: ProfileConfig, path: str, known: tuple[str, ...]) -> None:
    """Raise ProfileError for the first plugin that does not exist."""
    for where, name in _named(profile, path):
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            raise ProfileError(f"{where}: there is no plugin {quoted(name)}{hint}")


def _named(profile: ProfileConfig, path: str) -> Iterator[tuple[str, str]]:
    """Yield every name of a plugin with its path."""
    for point in (MULTI_POINT, *POINTS):
        chosen = profile.plugins.at(point)
        for index, plugin in enumerate(chosen.enabled):
            yield f"{path}.plugins.{point}.enabled[{index}].name", plugin.name
        for index, other in enumerate(chosen.disabled):
            if other.name != ALL:
                yield f"{path}.plugins.{point}.disabled[{index}].name", other.name
    for index, config in enumerate(profile.plugin_config):
        yield f"{path}.pluginConfig[{index}].name", config.name


Weighted = tuple[tuple[str, int], ...]
"""Plugins in order, each with its weight in the file, 0 where it has none."""
DEFAULT: Final[Weighted] = tuple((plugin.name, plugin.weight) for plugin in TABLE)
HasPoint = Callable[[str, str], bool]


class PointPlugins(Struct, frozen=True):
    """The names of the plugins by point, in order, and the weights of those that score."""

    by_point: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The plugins of all points, each once, in the order of the points."""
        return tuple(dict.fromkeys(name for names in self.by_point.values() for name in names))


def has_point(name: str, point: str) -> bool:
    """Return whether a plugin of the table extends a point."""
    return name in KNOWN and point in KNOWN[name].points


def named_plugins(profile: ProfileConfig) -> tuple[str, ...]:
    """Return the plugins that a profile enables and that are in no table, each once."""
    sets = (profile.plugins.at(point) for point in (MULTI_POINT, *POINTS))
    names = (plugin.name for chosen in sets for plugin in chosen.enabled if plugin.name not in KNOWN)
    return tuple(dict.fromkeys(names))


def plugins_by_point(profile: ProfileConfig, path: str, extends: HasPoint = has_point) -> PointPlugins:
    """Return what runs at each point; raises ProfileError."""
    everywhere = _merged(DEFAULT, profile.plugins.at(MULTI_POINT))
    by_point: dict[str, tuple[str, ...]] = {}
    for point in POINTS:
        chosen = profile.plugins.at(point)
        where = f"{path}.plugins.{point}.enabled"
        for index, plugin in enumerate(chosen.enabled):
            if not extends(plugin.name, point):
                raise ProfileError(f"{where}[{index}].name: {plugin.name} does not extend the point {point}")
        if len({plugin.name for plugin in chosen.enabled}) < len(chosen.enabled):
            raise ProfileError(f"{where}: a plugin appears twice")
        by_point[point] = _spread(point, everywhere, chosen, extends)
    names = [name for name, _ in everywhere]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ProfileError(f"{path}.plugins.multiPoint.enabled: {twice} appears twice")
    _check(by_point, path, extends)
    return PointPlugins(by_point, _weights(by_point["score"], profile.plugins.score, everywhere))


def _merged(default: Weighted, chosen: PluginSet) -> Weighted:
    """Return the default plugins as a profile changes them: some disabled, some with another weight, some more."""
    disabled = {plugin.name for plugin in chosen.disabled}
    again = {plugin.name: index for index, plugin in enumerate(chosen.enabled)}
    kept = [] if ALL in disabled else [(name, weight) for name, weight in default if name not in disabled]
    changed = [(name, chosen.enabled[again[name]].weight if name in again else weight) for name, weight in kept]
    replacing = {again[name] for name, _ in kept if name in again}
    more = [(plugin.name, plugin.weight) for index, plugin in enumerate(chosen.enabled) if index not in replacing]
    return (*changed, *more)


def _spread(point: str, everywhere: Weighted, chosen: PluginSet, extends: HasPoint) -> tuple[str, ...]:
    """Return the plugins of one point, with those of `multiPoint`."""
    own = [plugin.name for plugin in chosen.enabled]
    disabled = {plugin.name for plugin in chosen.disabled}
    if ALL in disabled:
        return tuple(own)
    spread = [name for name, _ in everywhere if extends(name, point) and name not in disabled]
    first = [name for name in own if name in spread]
    return (*first, *(name for name in spread if name not in own), *(name for name in own if name not in spread))


def _check(by_point: Mapping[str, tuple[str, ...]], path: str, extends: HasPoint) -> None:
    """Refuse what kube-scheduler refuses, and a step that is not prepared."""
    if len(by_point["queueSort"]) != 1:
        count = len(by_point["queueSort"])
        raise ProfileError(f"{path}.plugins.queueSort: exactly one plugin must sort the queue, not {count}")
    if not by_point["bind"]:
        raise ProfileError(f"{path}.plugins.bind: one plugin must bind; DefaultBinder does")
    for before, point in PREPARES.items():
        for name in by_point[point]:
            if extends(name, before) and name not in by_point[before]:
                raise ProfileError(
                    f"{path}.plugins.{before}: {name} is disabled here and enabled at {point}, which needs it; "
                    f"disable it at {point}"
                )


def _weights(names: tuple[str, ...], chosen: PluginSet, everywhere: Weighted) -> dict[str, int]:
    """Return the weights: that at the point, else that of `multiPoint`; without one 1, as in kube-scheduler.

    Ai-Scheduler's own scores keep their weight then: with 1 they would decide nothing.
    """
    given = {**dict(everywhere), **{plugin.name: plugin.weight for plugin in chosen.enabled}}
    return {name: given[name] or (KNOWN[name].weight if name in KNOWN and KNOWN[name].own else 1) for name in names}
