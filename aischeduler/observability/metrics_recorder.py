"""Records what only the shell can measure: durations of attempts, Bindings and evictions, waits, victims, exceptions.

Invariants:
- Recording changes no event and no action.
- Every series is bounded by the labels of pools; a deleted pool has no series from the next scrape on.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Final, assert_never

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics

from aischeduler.model.actions import Bind, Evict

PREFIX: Final = "ai_scheduler_"
ACCEPTED: Final = "Accepted"
"""Outcome of a Binding that the API server accepted."""
POOLS_MAX: Final = 1000
"""Pools with series of their own."""
OTHER: Final = "other"
"""Label that all further pools share."""
ATTEMPT_SECONDS: Final = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
WRITE_SECONDS: Final = (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WAIT_SECONDS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
VICTIMS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class PoolLabels:
    """The label of each pool: its name for the first `limit` pools, `other` for the rest.

    A pool keeps its label as long as it exists.
    """

    def __init__(self, limit: int = POOLS_MAX) -> None:
        self._limit = limit
        self._own: set[str] = set()

    def of(self, pool: str) -> str:
        """Return the label of a pool."""
        if pool in self._own:
            return pool
        if len(self._own) >= self._limit:
            return OTHER
        self._own.add(pool)
        return pool

    def keep(self, pools: Iterable[str]) -> frozenset[str]:
        """Free the labels of all but these pools; return the labels in use."""
        pools = tuple(pools)
        self._own.intersection_update(pools)
        return frozenset(self.of(pool) for pool in pools)


class _Histogram(Histogram):
    """A histogram that records many equal values at the cost of one, and finds their bucket by bisection."""

    def record(self, value: float, times: int = 1) -> None:
        """Record a value that occurred so many times."""
        self._sum.inc(value * times)
        self._buckets[bisect_left(self._upper_bounds, value)].inc(times)


class _Series:
    """The series of one histogram by the values of its labels; a lookup costs one dict access."""

    def __init__(self, histogram: _Histogram) -> None:
        self._histogram = histogram
        self._children: dict[tuple[str, ...], _Histogram] = {}

    def of(self, *labels: str) -> _Histogram:
        """Return the series with these values of the labels."""
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._histogram.labels(*labels)
        return child

    def keep(self, first_labels: frozenset[str]) -> None:
        """Remove the series whose first label has none of these values."""
        for labels in [labels for labels in self._children if labels[0] not in first_labels]:
            del self._children[labels]
            self._histogram.remove(*labels)


class MetricsRecorder:
    """Histograms in `registry`, and the counts of internal errors by the part of the program where they occurred."""

    def __init__(self, labels: PoolLabels) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.labels = labels
        self.registry = CollectorRegistry()
        self.internal_errors: Counter[str] = Counter()
        self.plugin_calls: Counter[str] = Counter()
        self.plugin_seconds: dict[str, float] = {}
        """Calls of plugins of others, and the time in them, by plugin."""
        self.plugin_errors: Counter[str] = Counter()
        """Exceptions of plugins in the shell, by plugin."""
        self._attempts = self._histogram(
            "scheduling_attempt_duration_seconds", "How long an attempt took", ("pool",), ATTEMPT_SECONDS
        )
        self._waits = self._histogram(
            "queue_wait_seconds", "How long bound pods had waited, by home pool", ("pool",), WAIT_SECONDS
        )
        self._victims = self._histogram("preemption_victims", "Pods evicted for one pod", ("pool",), VICTIMS)
        self._binds = self._histogram(
            "bind_duration_seconds",
            "How long Bindings took, from decision to answer",
            ("pool", "outcome"),
            WRITE_SECONDS,
        )
        self._evictions = self._histogram(
            "eviction_duration_seconds",
            "How long evictions took, from decision to answer",
            ("outcome",),
            WRITE_SECONDS,
        )

    def expect(self, parts: Iterable[str], plugins: Iterable[str]) -> None:
        """Give these parts of the program, and these plugins, series of errors with 0: alerts see the first error."""
        self.internal_errors.update(dict.fromkeys(parts, 0))
        self.plugin_errors.update(dict.fromkeys(plugins, 0))

    def record_attempts(self, pool: str, attempts: int, seconds: float) -> None:
        """Record attempts of a pool that took so long together.

        `attempts` is below 0 for a pool that was deleted during the call: its counters were dropped.
        """
        if attempts > 0:
            self._attempts.of(self.labels.of(pool)).record(seconds / attempts, attempts)

    def record_victims(self, evictions: Iterable[Evict]) -> None:
        """Record how many pods are evicted for one pod; pods that are evicted for no pod do not count."""
        victims = Counter((one.pool, one.decision) for one in evictions if one.beneficiary is not None)
        for (pool, _), count in victims.items():
            self._victims.of(self.labels.of(pool)).record(count)

    def record_outcome(self, action: Bind | Evict, outcome: str, seconds: float) -> None:
        """Record the outcome of a Binding or an eviction, in one word, and how long it took."""
        match action:
            case Bind(pool=pool, home_pool=home, waited_seconds=waited):
                self._binds.of(self.labels.of(pool), outcome).record(seconds)
                if outcome == ACCEPTED:
                    self._waits.of(self.labels.of(home)).record(waited)
            case Evict():
                self._evictions.of(outcome).record(seconds)
            case _:
                assert_never(action)

    def keep(self, pools: Iterable[str]) -> None:
        """Remove the series of all but these pools."""
        labels = self.labels.keep(pools)
        for series in (self._attempts, self._waits, self._victims, self._binds):
            series.keep(labels)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> _Series:
        return _Series(_Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry))
