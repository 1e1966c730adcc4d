"""Which plugins of a profile run at which extension point, in which order, and with which weight.

Invariants:
- The result is that of kube-scheduler 1.36: the profile changes the default plugins, then `multiPoint` spreads to the
  points. At a point come first the plugins that it names itself and `multiPoint` has too, then those of `multiPoint`,
  then all others.
- A profile that kube-scheduler refuses is refused.

Source: mergePlugins and expandMultiPointPlugins of kube-scheduler.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from aischeduler.config.plugin_table import KNOWN, MULTI_POINT, POINTS, PREPARES, TABLE
from aischeduler.config.profiles import ALL, PluginSet, ProfileConfig, ProfileError

Weighted = tuple[tuple[str, int], ...]
"""Plugins in order, each with its weight in the file, 0 where it has none."""
DEFAULT: Final[Weighted] = tuple((one.name, one.weight) for one in TABLE)
HasPoint = Callable[[str, str], bool]
"""Whether a plugin extends a point."""


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
    names = (one.name for chosen in sets for one in chosen.enabled if one.name not in KNOWN)
    return tuple(dict.fromkeys(names))


def plugins_by_point(profile: ProfileConfig, path: str, extends: HasPoint = has_point) -> PointPlugins:
    """Return what runs at each point; raises ProfileError."""
    everywhere = _merged(DEFAULT, profile.plugins.at(MULTI_POINT))
    by_point: dict[str, tuple[str, ...]] = {}
    for point in POINTS:
        chosen = profile.plugins.at(point)
        where = f"{path}.plugins.{point}.enabled"
        for index, one in enumerate(chosen.enabled):
            if not extends(one.name, point):
                raise ProfileError(f"{where}[{index}].name: {one.name} does not extend the point {point}")
        if len({one.name for one in chosen.enabled}) < len(chosen.enabled):
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
    disabled = {one.name for one in chosen.disabled}
    again = {one.name: index for index, one in enumerate(chosen.enabled)}
    kept = [] if ALL in disabled else [(name, weight) for name, weight in default if name not in disabled]
    changed = [(name, chosen.enabled[again[name]].weight if name in again else weight) for name, weight in kept]
    replacing = {again[name] for name, _ in kept if name in again}
    more = [(one.name, one.weight) for index, one in enumerate(chosen.enabled) if index not in replacing]
    return (*changed, *more)


def _spread(point: str, everywhere: Weighted, chosen: PluginSet, extends: HasPoint) -> tuple[str, ...]:
    """Return the plugins of one point, with those of `multiPoint`."""
    own = [one.name for one in chosen.enabled]
    disabled = {one.name for one in chosen.disabled}
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
    given = {**dict(everywhere), **{one.name: one.weight for one in chosen.enabled}}
    return {name: given[name] or (KNOWN[name].weight if name in KNOWN and KNOWN[name].own else 1) for name in names}
