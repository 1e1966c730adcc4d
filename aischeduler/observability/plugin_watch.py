"""The time that plugins of others take, and their exceptions: metrics, and a log line for a plugin that is slow.

Invariants:
- Plugins of Ai-Scheduler itself are called as without this: only those of others are measured.
- A plugin is called as without this, and its results and exceptions pass unchanged.
- A slow plugin is logged at most once a minute.
"""

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from aischeduler.engine.plugin_errors import plugin_objects
from aischeduler.engine.profile import Profile
from aischeduler.observability.metrics_recorder import MetricsRecorder

METHODS: Final = (
    *("holds", "rank", "filter", "filter_node", "reasons", "helps", "applies", "counts", "prefilter"),
    *("post_filter", "score", "score_node", "reserve", "release", "permit", "post_bind"),
)
"""The methods that are measured: those that the scheduler waits for."""
SLOW_SECONDS: Final = 0.05
"""A call that takes longer holds up every pool."""
LOG_SECONDS: Final = 60.0
OWN: Final = "aischeduler."


class PluginWatch:
    """Measures plugins of others."""

    def __init__(self, recorder: MetricsRecorder, clock: Callable[[], float], log: FilteringBoundLogger) -> None:
        self._recorder, self._clock, self._log = recorder, clock, log
        self._slow: Counter[str] = Counter()
        self._logged: dict[str, float] = {}

    def watch(self, profile: Profile) -> None:
        """Measure the plugins of a profile from now on."""
        for plugins in (profile.plugins, *profile.others.values()):
            found = {id(one): one for one in plugin_objects(plugins) if not type(one).__module__.startswith(OWN)}
            for one in found.values():
                name = str(getattr(one, "name", ""))
                for method in METHODS:
                    if hasattr(one, method):
                        setattr(one, method, self._measured(name, method, getattr(one, method)))

    def _measured(self, name: str, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            try:
                return call(*args, **kwargs)
            finally:
                self._note(name, method, self._clock() - began)

        return measured

    def _note(self, name: str, method: str, seconds: float) -> None:
        recorder = self._recorder
        recorder.plugin_calls[name] += 1
        recorder.plugin_seconds[name] = recorder.plugin_seconds.get(name, 0.0) + seconds
        if seconds <= SLOW_SECONDS:
            return
        self._slow[name] += 1
        now = self._clock()
        if now - self._logged.get(name, float("-inf")) >= LOG_SECONDS:
            self._logged[name] = now
            slow = self._slow.pop(name)
            self._log.warning("plugin slow", plugin=name, method=method, seconds=round(seconds, 3), slow_calls=slow)
