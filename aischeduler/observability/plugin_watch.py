"""The time that plugins of others take, and their exceptions: metrics, and log lines for one that is slow or fails.

Invariants:
- Plugins of Ai-Scheduler itself are called as without this: only those of others are measured.
- The engine calls a plugin of others through a `MeasuredPlugin`; the plugin itself stays as it is, and its results and
  exceptions pass unchanged.
- A slow plugin, and one that keeps failing, is logged at most once a minute each.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace
from structlog.typing import FilteringBoundLogger

from aischeduler.engine.profile import Profile
from aischeduler.framework.per_node import NodeByNodeFilter, NodeByNodeScore
from aischeduler.framework.plugin import Plugins
from aischeduler.observability.metrics import MetricsRecorder

METHODS: Final = (
    *("holds", "rank", "filter", "filter_node", "named", "reasons", "helps", "applies", "counts", "prefilter"),
    *("post_filter", "score", "score_node", "prefers", "scored", "prescore"),
    *("reserve", "release", "permit", "post_bind", "make_part", "allocates", "choose", "bound"),
    *("accounts_of", "refuses"),
    *("unit_of", "gang_of", "form", "spare"),
)
"""The methods for which the scheduler waits."""
AWAITED: Final = ("pre_bind", "bind")
"""The methods for which one Binding waits."""
FACTS: Final = ("by_amounts", "ignores_any", "ignores")
"""What `isinstance` with a protocol of the framework looks for beside the methods: from Python 3.12 on, it asks no
`__getattr__`."""
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


class MeasuredPlugin:
    """A plugin whose methods are measured; everything else is that of the `plugin`."""

    def __init__(self, plugin: Any, watch: "PluginWatch", *, counted: bool) -> None:
        self.plugin, self._watch = plugin, watch
        name = str(plugin.name)
        for method in filter(partial(hasattr, plugin), METHODS):
            call = _Call(name, method, counted=counted)
            setattr(self, method, partial(self._measured, call, getattr(plugin, method)))
        for method in filter(partial(hasattr, plugin), AWAITED):
            call = _Call(name, method, SLOW_AWAITED_SECONDS)
            setattr(self, method, partial(self._awaited, call, getattr(plugin, method)))
        for fact in filter(partial(hasattr, plugin), FACTS):
            setattr(self, fact, getattr(plugin, fact))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plugin, name)

    def _measured(self, what: _Call, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began, error = self._watch.clock(), ""
        try:
            return call(*args, **kwargs)
        except Exception as raised:
            error = repr(raised)
            raise
        finally:
            self._watch.note(what, began, error)

    async def _awaited(self, what: _Call, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        began, error = self._watch.clock(), ""
        try:
            return await call(*args, **kwargs)
        except BaseException as raised:
            error = repr(raised)
            raise
        finally:
            self._watch.note(what, began, error)


class PluginWatch:
    """Measures plugins of others. `clock` returns seconds and never goes back."""

    def __init__(self, recorder: MetricsRecorder, clock: Callable[[], float], log: FilteringBoundLogger) -> None:
        self.clock = clock
        self._recorder, self._log = recorder, log
        self._slow: Counter[str] = Counter()
        self._failed: dict[str, deque[float]] = {}
        """Plugin -> when its calls raised within the last minute, the last calls of many."""
        self._logged: dict[tuple[str, str], float] = {}
        """Line and plugin -> when it was logged last."""

    def measured(self, profile: Profile) -> Profile:
        """Return the profile with its plugins of others measured; each object has one proxy, wherever it is called."""
        known: dict[int, Any] = {}

        def of_a_profile(plugins: Plugins) -> Plugins:
            fields = {
                name: tuple(proxy(part) for part in value) if isinstance(value, tuple) else proxy(value)
                for name, value in asdict(plugins).items()
            }
            return replace(plugins, **fields)

        def proxy(plugin: Any) -> Any:
            if id(plugin) not in known:
                known[id(plugin)] = self._measured(plugin, proxy)
            return known[id(plugin)]

        others = {name: of_a_profile(plugins) for name, plugins in profile.others.items()}
        return replace(profile, plugins=of_a_profile(profile.plugins), others=others)

    def _measured(self, plugin: Any, proxy: Callable[[Any], Any]) -> Any:
        if isinstance(plugin, NodeByNodeFilter | NodeByNodeScore):  # the calls of the plain plugin are counted
            return MeasuredPlugin(type(plugin)(proxy(plugin.plugin)), self, counted=False)
        of_others = hasattr(plugin, "name") and not type(plugin).__module__.startswith(OWN)
        return MeasuredPlugin(plugin, self, counted=True) if of_others else plugin

    def note(self, what: _Call, began: float, error: str) -> None:
        """Record a call that ended now; `error` is the exception that it raised, or empty."""
        name, seconds = what.plugin, self.clock() - began
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
        times, now = self._failed.setdefault(what.plugin, deque(maxlen=FAILURES_KEPT)), self.clock()
        times.append(now)
        while times[0] < now - LOG_SECONDS:
            times.popleft()
        if len(times) >= FAILURES_MIN and self._is_due("plugin keeps failing", what.plugin):
            self._log.warning(
                "plugin keeps failing", plugin=what.plugin, method=what.method, failures=len(times), reason=error
            )

    def _is_due(self, line: str, name: str) -> bool:
        """Return whether a line about a plugin may be logged, and note that it is."""
        now = self.clock()
        if now - self._logged.get((line, name), float("-inf")) < LOG_SECONDS:
            return False
        self._logged[line, name] = now
        return True
