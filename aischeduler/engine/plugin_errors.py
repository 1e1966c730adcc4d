"""Which plugin raised: the exception of a plugin is reported with its name.

It is the plugin whose method, or whose module, is the innermost on the traceback: nothing is noted before a plugin is
called, so that a call costs nothing.
"""

import sys
from collections.abc import Iterator
from types import FrameType

from msgspec.structs import fields

from aischeduler.engine.profile import Profile
from aischeduler.framework.per_node import NodeByNodeFilter
from aischeduler.framework.plugin import Plugins


def plugin_of(profile: Profile, error: BaseException) -> str:
    """Return the name of the plugin that raised; empty where none did."""
    found = ""
    objects = dict(_objects(profile))
    files = {file: name for one, name in _each(profile) if (file := _file(one)) != _file(NodeByNodeFilter)}
    trace = error.__traceback__
    while trace is not None:
        found = _named(trace.tb_frame, objects, files) or found
        trace = trace.tb_next
    return found


def names_of(profile: Profile) -> tuple[str, ...]:
    """Return the names of all plugins, sorted."""
    return tuple(sorted({name for _, name in _each(profile) if name}))


def plugin_objects(plugins: Plugins) -> Iterator[object]:
    """Yield every object of a profile's plugins, and the plain plugins behind them; some come twice."""
    for field in fields(plugins):
        value = getattr(plugins, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if hasattr(one, "name"):
                yield one
                if hasattr(one, "plugin"):
                    yield one.plugin


def _named(frame: FrameType, objects: dict[int, str], files: dict[str, str]) -> str:
    return objects.get(id(frame.f_locals.get("self")), "") or files.get(frame.f_code.co_filename, "")


def _objects(profile: Profile) -> Iterator[tuple[int, str]]:
    return ((id(one), name) for one, name in _each(profile))


def _each(profile: Profile) -> Iterator[tuple[object, str]]:
    for plugins in (profile.plugins, *profile.others.values()):
        for one in plugin_objects(plugins):
            yield one, str(getattr(one, "name", ""))


def _file(one: object) -> str:
    """Return the file of a plugin's module; empty where it has none."""
    return str(getattr(sys.modules.get(type(one).__module__), "__file__", "") or "")
