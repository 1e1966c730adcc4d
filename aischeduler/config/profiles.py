"""The profiles of the configuration, in the form of the `profiles` of KubeSchedulerConfiguration v1.

Invariants:
- Every profile has a scheduler name of its own; without one, it has that of the file.
- Names of plugins and their arguments are checked when the file is read; an error names the path.

Source: KubeSchedulerConfiguration v1 of kube-scheduler 1.36, its defaults and its validation.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from aischeduler.config.entry_points import PluginError, plugin_names
from aischeduler.config.plugin_args import INT32_MAX, PluginArgs
from aischeduler.config.plugin_table import KNOWN, MULTI_POINT, POINTS
from aischeduler.config.section import OptionalName, Section, whole_number
from aischeduler.config.spelling import nearest, quoted
from aischeduler.config.struct_errors import sentence

PROFILES_MAX: Final = 16
WEIGHT_MAX: Final = 1_000_000
"""The largest weight of a score; sums of scores stay far below the largest number."""
PLUGINS_MAX: Final = 256
ALL: Final = "*"
ARGS_VERSION: Final = "kubescheduler.config.k8s.io/v1"


class ProfileError(ValueError):
    """A profile that cannot be used; the message names the path."""


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
    return tuple(msgspec.structs.replace(one, scheduler_name=one.scheduler_name or scheduler_name) for one in profiles)


def arguments(profile: ProfileConfig, path: str) -> dict[str, PluginArgs | dict[str, Any]]:
    """Return the arguments by plugin, those of others as they stand; raises ProfileError."""
    found: dict[str, PluginArgs | dict[str, Any]] = {}
    for index, one in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        if one.name in found:
            raise ProfileError(f"{where}.name: {quoted(one.name)} appears twice")
        found[one.name] = _arguments(one, f"{where}.args")
    return found


def _arguments(one: PluginConfig, path: str) -> PluginArgs | dict[str, Any]:
    plugin, args = KNOWN.get(one.name), dict(one.args)
    if plugin is None:
        return args
    for key, expected in (("apiVersion", ARGS_VERSION), ("kind", f"{one.name}Args")):
        if args.pop(key, expected) != expected:
            raise ProfileError(f"{path}.{key} must be {expected}")
    if plugin.args is None:
        raise ProfileError(f"{path.removesuffix('.args')}: {one.name} takes no arguments")
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
        for index, one in enumerate(chosen.enabled):
            yield f"{path}.plugins.{point}.enabled[{index}].name", one.name
        for index, other in enumerate(chosen.disabled):
            if other.name != ALL:
                yield f"{path}.plugins.{point}.disabled[{index}].name", other.name
    for index, config in enumerate(profile.plugin_config):
        yield f"{path}.pluginConfig[{index}].name", config.name
