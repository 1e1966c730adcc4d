"""The time that plugins of others take, and their exceptions: metrics, and log lines for one that is slow or fails.

Invariants:
- Plugins of Ai-Scheduler itself are called as without this: only those of others are measured.
- A plugin is called as without this, and its results and exceptions pass unchanged.
- A slow plugin, and one that keeps failing, is logged at most once a minute each.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from aischeduler.engine.internal_errors import plugin_objects
from aischeduler.engine.profile import Profile
from aischeduler.framework.per_node import NodeByNodeFilter, NodeByNodeScore
from aischeduler.observability.metrics import MetricsRecorder

METHODS: Final = (
    *("holds", "rank", "filter", "filter_node", "reasons", "helps", "applies", "counts", "prefilter"),
    *("post_filter", "score", "score_node", "prefers", "scored", "prescore"),
    *("reserve", "release", "permit", "post_bind", "make_part", "allocates", "choose", "bound"),
    *("accounts_of", "refuses"),
    *("unit_of", "gang_of", "form", "spare"),
)
"""The methods for which the scheduler waits."""
AWAITED: Final = ("pre_bind", "bind")
"""The methods for which one Binding waits."""
SLOW_SECONDS: Final = 0.05
"""A call that takes longer holds up every pool."""
SLOW_AWAITED_SECONDS: Final = 5.0
"""A call that takes longer holds up one Binding, and a place among those in flight."""
FAILURES_MIN: Final = 5
"""How many calls must raise within a minute for a plugin to keep failing."""
FAILURES_KEPT: Final = 1000
LOG_SECONDS: Final = 60.0
OWN: Final = "aischeduler."


class _Call(NamedTuple):
    """What is measured: a method, and when it is slow. The loop over nodes of a plain plugin is not `counted` again."""

    plugin: str
    method: str
    slow_seconds: float = SLOW_SECONDS
    counted: bool = True


class PluginWatch:
    """Measures plugins of others."""

    def __init__(self, recorder: MetricsRecorder, clock: Callable[[], float], log: FilteringBoundLogger) -> None:
        self._recorder, self._clock, self._log = recorder, clock, log
        self._slow: Counter[str] = Counter()
        self._failed: dict[str, deque[float]] = {}
        """Plugin -> when its calls raised within the last minute, the last calls of many."""
        self._logged: dict[tuple[str, str], float] = {}
        """Line and plugin -> when it was logged last."""

    def watch(self, profile: Profile) -> None:
        """Measure the plugins of a profile from now on, as far as they let their methods be replaced."""
        for plugins in (profile.plugins, *profile.others.values()):
            for one in {id(one): one for one in plugin_objects(plugins)}.values():
                loops = isinstance(one, NodeByNodeFilter | NodeByNodeScore)
                if loops or not type(one).__module__.startswith(OWN):
                    self._watch(str(getattr(one, "name", "")), one, counted=not loops)

    def _watch(self, name: str, one: object, *, counted: bool) -> None:
        try:
            for method in METHODS:
                if hasattr(one, method):
                    call = _Call(name, method, counted=counted)
                    setattr(one, method, self._measured(call, getattr(one, method)))
            for method in AWAITED:
                if hasattr(one, method):
                    setattr(one, method, self._awaited(_Call(name, method, SLOW_AWAITED_SECONDS), getattr(one, method)))
        except AttributeError as error:  # it has slots, or is frozen
            self._log.warning("plugin not measured", plugin=name, reason=str(error))

    def _measured(self, what: _Call, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Any:
            began, error = self._clock(), ""
            try:
                return call(*args, **kwargs)
            except Exception as raised:
                error = repr(raised)
                raise
            finally:
                self._note(what, self._clock() - began, error)

        return measured

    def _awaited(self, what: _Call, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            began, error = self._clock(), ""
            try:
                return await call(*args, **kwargs)
            except BaseException as raised:
                error = repr(raised)
                raise
            finally:
                self._note(what, self._clock() - began, error)

        return awaited

    def _note(self, what: _Call, seconds: float, error: str) -> None:
        name = what.plugin
        if what.counted:
            self._count(name, seconds)
            if error:
                self._note_failure(what, error)
        if seconds <= what.slow_seconds:
            return
        self._slow[name] += 1
        if self._is_due("plugin slow", name):
            slow, took = self._slow.pop(name), round(seconds, 3)
            self._log.warning("plugin slow", plugin=name, method=what.method, seconds=took, slow_calls=slow)

    def _count(self, name: str, seconds: float) -> None:
        recorder = self._recorder
        recorder.plugin_calls[name] += 1
        recorder.plugin_seconds[name] = recorder.plugin_seconds.get(name, 0.0) + seconds

    def _note_failure(self, what: _Call, error: str) -> None:
        times, now = self._failed.setdefault(what.plugin, deque(maxlen=FAILURES_KEPT)), self._clock()
        times.append(now)
        while times[0] < now - LOG_SECONDS:
            times.popleft()
        if len(times) >= FAILURES_MIN and self._is_due("plugin keeps failing", what.plugin):
            self._log.warning(
                "plugin keeps failing", plugin=what.plugin, method=what.method, failures=len(times), reason=error
            )

    def _is_due(self, line: str, name: str) -> bool:
        """Return whether a line about a plugin may be logged, and note that it is."""
        now = self._clock()
        if now - self._logged.get((line, name), float("-inf")) < LOG_SECONDS:
            return False
        self._logged[line, name] = now
        return True
