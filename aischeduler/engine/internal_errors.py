"""Reports of the scheduler's own exceptions, and pods whose check raised.

The exception of a plugin is reported with its name: that of the plugin whose method, or whose module, is the innermost
on the traceback. Nothing is noted before a plugin is called, so that a call costs nothing.

Invariant: a check reads only. A pod whose check raises is tried by itself later; the step goes on with others.
"""

import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import fields

from aischeduler.engine.profile import Profile
from aischeduler.framework.per_node import NodeByNodeFilter
from aischeduler.framework.plugin import Plugins
from aischeduler.model.actions import ReportInternalError, Step
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodRecord

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster


LAYERS_MAX: Final = 4
"""A plain plugin, its loop over nodes, and around each of them an object that measures it."""


def plugin_of(profile: Profile, error: BaseException) -> str:
    """Return the name of the plugin that raised; empty where none did."""
    found = ""
    objects = dict(_objects(profile))
    files = {file: name for plugin, name in _each(profile) if (file := _file(plugin)) != _file(NodeByNodeFilter)}
    trace = error.__traceback__
    while trace is not None:
        found = _named(trace.tb_frame, objects, files) or found
        trace = trace.tb_next
    return found


def names_of(profile: Profile) -> tuple[str, ...]:
    """Return the names of all plugins, sorted."""
    return tuple(sorted({name for _, name in _each(profile) if name}))


def plugin_objects(plugins: Plugins) -> Iterator[object]:
    """Yield every object of a profile's plugins, and the plugins in their layers; some come twice."""
    for field in fields(plugins):
        value = getattr(plugins, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            layer = part
            for _ in range(LAYERS_MAX):
                if not hasattr(layer, "name"):
                    break
                yield layer
                layer = getattr(layer, "plugin", None)


def _named(frame: FrameType, objects: dict[int, str], files: dict[str, str]) -> str:
    return objects.get(id(frame.f_locals.get("self")), "") or files.get(frame.f_code.co_filename, "")


def _objects(profile: Profile) -> Iterator[tuple[int, str]]:
    return ((id(plugin), name) for plugin, name in _each(profile))


def _each(profile: Profile) -> Iterator[tuple[object, str]]:
    for plugins in (profile.plugins, *profile.others.values()):
        for plugin in plugin_objects(plugins):
            yield plugin, str(getattr(plugin, "name", ""))


def _file(plugin: object) -> str:
    """Return the file of a plugin's module; empty where it has none."""
    return str(getattr(sys.modules.get(type(plugin).__module__), "__file__", "") or "")


FRAMES_MAX: Final = 32
TRACEBACK_MAX: Final = 8000
"""The most frames and characters of a traceback that are reported, the last ones."""
ERROR_MAX: Final = 300
INTERNAL_ERROR: Final = (
    "internal error: the scheduler failed when it tried to schedule this pod. "
    "The log of the scheduler has the traceback. The pod is tried again."
)
"""The message of the pod, the same after each failed attempt, so that there is one event."""
PLUGIN_ERROR: Final = (
    "internal error: the plugin {} failed when the scheduler tried to schedule this pod. "
    "The log of the scheduler has the traceback. The pod is tried again."
)
"""The same where a plugin raised."""


class Doing(NamedTuple):
    """A step: a description in words, the pool in whose loop it runs, and the pod, if any."""

    step: Step
    words: str
    pool: str = ""
    record: PodRecord | None = None
    pod: Pod | None = None


def internal_error(cluster: "Cluster", doing: Doing, error: Exception) -> ReportInternalError:
    """Count an exception and return its report."""
    cluster.counters.internal_errors[doing.step] += 1
    plugin = plugin_of(cluster.profile, error)
    if plugin:
        cluster.counters.plugin_errors[plugin] += 1
    text = "".join(traceback.format_exception(error, limit=-FRAMES_MAX))
    record = doing.record
    return ReportInternalError(
        step=doing.step,
        doing=doing.words,
        pool=doing.pool,
        pod=doing.pod if record is None else record.pod,
        decision="" if record is None else record.decision,
        error="".join(traceback.format_exception_only(error)).strip()[:ERROR_MAX],
        traceback=text[-TRACEBACK_MAX:],
        plugin=plugin,
    )


def error_message(report: ReportInternalError) -> str:
    """Return the message of a pod that an exception costs an attempt."""
    return PLUGIN_ERROR.format(report.plugin) if report.plugin else INTERNAL_ERROR


def judging_failed(cluster: "Cluster", record: PodRecord, words: str, error: Exception) -> None:
    """Have a waiting pod tried separately, after this step, because its check raised.

    Raises the error where it left counts that may be wrong: then the step cannot go on.
    """
    if cluster.nodes.torn:
        raise error
    cluster.say(record.home, internal_error(cluster, Doing(Step.WAKING, words, record.home, record), error))
    cluster.deferred.failed[record.pod.uid] = record


def break_off(cluster: "Cluster", record: PodRecord) -> None:
    """Count a failed attempt of a pod that is in no queue: it waits for its backoff, and no room is kept for it."""
    record.failed = record.broken = True
    record.back_off(cluster.now, cluster.profile.backoff.seconds(record.attempts))
