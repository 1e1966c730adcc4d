"""Plugins of others, which installed distributions name as entry points of the group `aischeduler.plugins`.

Invariant: a distribution is imported only when a profile names its plugin.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from aischeduler.config.plugin_table import KNOWN

GROUP: Final = "aischeduler.plugins"


class PluginError(ValueError):
    """A plugin that cannot be used; the message says why."""


def plugin_names() -> tuple[str, ...]:
    """Return the names of all plugins of others, sorted; raises PluginError where a name is taken."""
    found = entry_points(group=GROUP)
    for one in sorted(found, key=lambda point: (point.name, point.value)):
        if one.name in KNOWN:
            raise PluginError(f"{_origin(one)} has a plugin {one.name}, which is the name of a built-in plugin")
        if len({other.value for other in found if other.name == one.name}) > 1:
            raise PluginError(f"several distributions have a plugin {one.name}; one of them is {_origin(one)}")
    return tuple(sorted({one.name for one in found}))


def load_factory(name: str) -> Callable[[dict[str, Any]], object]:
    """Import the plugin of this name; raises PluginError."""
    one = next(iter(entry_points(group=GROUP, name=name)), None)
    if one is None:
        raise PluginError(f"no installed distribution has a plugin {name}")
    try:
        factory = one.load()
    except Exception as error:  # whatever the import of foreign code raises
        raise PluginError(f"{_origin(one)} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise PluginError(f"{_origin(one)}: {one.value} is nothing that can be called with arguments")
    return cast(Callable[[dict[str, Any]], object], factory)


def _origin(one: EntryPoint) -> str:
    return f"the distribution {one.dist.name if one.dist is not None else one.value}"
