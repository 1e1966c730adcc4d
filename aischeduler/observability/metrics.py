"""The metrics of `/metrics`: histograms, the engine's numbers at one moment, and the counts of the shell.

Invariants:
- `take` copies all numbers at one moment, in the event loop; `collect` makes samples of them, in any thread.
- Units are base units (cores, bytes, seconds); the names of counters end in `_total`.
- Labels are bounded: pools by `PoolLabels`, resources by what nodes have, everything else by closed sets.
- The series of errors exist from the start, with 0: a series that begins with 1 is no increase, and no alert sees it.
- `make reference` writes docs/reference/metrics.md from the help texts; a test compares.
- Recording changes no event and no action.
- Every series is bounded by the labels of pools and of tenant queues; a deleted one has none from the next scrape on.
- The gauges of a tenant queue are those of its newest report, so only a scheduler that decides has them.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from platform import python_version
from typing import Any, Final, Protocol, assert_never

from msgspec import Struct
from prometheus_client import CollectorRegistry, Histogram, Info, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from aischeduler import __version__
from aischeduler.engine.counters import Counters, Result
from aischeduler.engine.scheduler import Scheduler
from aischeduler.engine.self_check import NAMES
from aischeduler.model.actions import Bind, Evict, EvictionCause, ReportQueue, Step
from aischeduler.model.card_shares import CARD, counted
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import CARD_TYPES_MAX, GPU, OTHER_TYPES, PoolSummary, gpus
from aischeduler.model.tenant_queue import CARDS_MAX
from aischeduler.model.unsupported_constraints import ConstraintKind

PREFIX: Final = "ai_scheduler_"
ACCEPTED: Final = "Accepted"
EVICTED: Final = "Evicted"
"""Outcome of a Binding that the API server accepted."""
OVER_QUOTA: Final = "OverQuota"
"""The condition of a tenant queue whose pods use more than its quota."""
POOLS_MAX: Final = 1000
"""Pools, and tenant queues, that have a label of their own."""
OTHER: Final = "other"
"""Label that all further ones share."""
ATTEMPT_SECONDS: Final = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
WRITE_SECONDS: Final = (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WAIT_SECONDS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
VICTIMS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class PoolLabels:
    """The label of each pool or tenant queue: its name for the first `limit` of them, `other` for the rest.

    Each keeps its label as long as it exists.
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
    """A histogram that records many equal values at the cost of one.

    It writes what `observe` writes, which has no number of times: 512 attempts of one call would cost 0.5 ms, not 1 us.
    """

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
        self.queue_labels = PoolLabels()
        self.queues: dict[str, ReportQueue] = {}
        """The newest report of each tenant queue."""
        self.queue_reclaims: Counter[str] = Counter()
        """Pods of each tenant queue that were evicted for inference of others."""
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
        victims = Counter(
            (eviction.pool, eviction.decision) for eviction in evictions if eviction.beneficiary is not None
        )
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
                if action.cause is EvictionCause.QUEUE_RECLAIMED and outcome == EVICTED:
                    self.record_reclaims(action.queue, 1)
            case _:
                assert_never(action)

    def record_queues(self, reports: Iterable[ReportQueue]) -> None:
        """Note the newest status of tenant queues."""
        self.queues.update((report.name, report) for report in reports)

    def record_reclaims(self, queue: str, pods: int) -> None:
        """Record that so many pods of a tenant queue are evicted for inference of other queues."""
        self.queue_reclaims[queue] += pods

    def keep(self, pools: Iterable[str], queues: Iterable[str] = ()) -> None:
        """Remove the series of all but these pools and tenant queues."""
        labels = self.labels.keep(pools)
        for series in (self._attempts, self._waits, self._victims, self._binds):
            series.keep(labels)
        kept = frozenset(queues)
        self.queue_labels.keep(sorted(kept))
        for values in (self.queues, self.queue_reclaims):
            for name in values.keys() - kept:
                del values[name]

    def _histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> _Series:
        return _Series(_Histogram(PREFIX + name, text, labels, buckets=buckets, registry=self.registry))


KINDS: Final = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
QUEUES: Final = ("active", "backoff", "parked", "nominated", "held", "gated")
SWITCHES: Final = ("preemption", "borrowing", "sharing")
RESOURCES_MAX: Final = 32
"""Resources with series: the five of every pool, then others that some node has, by name."""
_ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS, GPU)
_WATCH_COUNTS: Final = (
    ("watch_events", "events", "Lines of watches that were read"),
    ("lists", "lists", "Lists begun, the first one included"),
    ("watches", "watches", "Watches begun"),
    ("list_watch_failures", "failures", "Lists and watches that failed"),
    ("old_events", "old_events", "Watch events that were older than the known object, and dropped"),
    ("older_lists", "older_lists", "Lists that were older than the known objects"),
    ("unreadable_objects", "unreadable_objects", "Objects that could not be read"),
    ("unreadable_lines", "unreadable_lines", "Lines of watches that could not be read"),
    ("unknown_events", "unknown_events", "Lines of watches of an unknown type"),
    ("recreated_objects", "recreated", "Objects that were created again under their name with another uid"),
    ("missed_deletions", "found_gone", "Objects that a list showed to be deleted before the watch did"),
)
"""Counters of each reflector: the metric, the attribute of its counts, and the meaning."""

Row = tuple[tuple[str, ...], float]
"""The values of the labels, and the value."""
Counts = Mapping[tuple[str, Any], int]
"""Counts by pool and a member of a closed set of texts."""
Pools = Mapping[str, list[str]]
"""Every label, and the pools that share it."""


class WatchedKind(Protocol):
    """The reflector of a kind (`kube.watch.reflector.Reflector`); `_WATCH_COUNTS` names the attributes of `counts`."""

    @property
    def counts(self) -> object:
        """The counters of lists and watches."""

    @property
    def watch_open_seconds(self) -> float:
        """How long its watch has been open."""

    @property
    def watch_idle_seconds(self) -> float:
        """How long ago its watch last received a byte."""

    def __len__(self) -> int: ...


class Sources(Struct, frozen=True):
    """The parts of the daemon that have numbers.

    `reports` returns counts of events and statuses by outcome; `reflectors` go by kind, `backlogs` by name;
    `oldest_binding` returns the age in seconds of the oldest Binding without an outcome; `queues` returns the names of
    the tenant queues.
    """

    engine: Scheduler
    reports: Callable[[], Mapping[str, int]]
    reflectors: Mapping[str, WatchedKind]
    leads: Callable[[], bool]
    backlogs: Mapping[str, Callable[[], int]]
    oldest_binding: Callable[[], float]
    queues: Callable[[], Iterable[str]] = tuple


class Family(Struct, frozen=True):
    """One metric without its prefix: its meaning, the names of its labels, and its rows, which may be a generator."""

    kind: type[GaugeMetricFamily | CounterMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    rows: Iterable[Row]


class DaemonCollector(Collector):
    """Collects the numbers of the daemon; it registers itself, build info and process metrics with the recorder."""

    def __init__(self, sources: Sources, recorder: MetricsRecorder) -> None:
        self._sources = sources
        self._recorder = recorder
        self._taken: list[Family] = []
        build = Info(f"{PREFIX}build", "The version that runs", registry=recorder.registry)
        build.info({"version": __version__, "python": python_version()})
        ProcessCollector(registry=recorder.registry)
        recorder.registry.register(self)

    def take(self) -> None:
        """Copy all numbers as they are now."""
        engine = self._sources.engine
        names = engine.pools()
        tenants = tuple(self._sources.queues())
        self._recorder.keep(names, tenants)
        pools = _by_label(self._recorder.labels, names)
        self._taken = [
            *_summed(pools, engine.summary()),
            *_queues(pools, engine),
            *_decisions(pools, engine.counters),
            *_tenant_queues(_by_label(self._recorder.queue_labels, tenants), self._recorder),
            self._internal_errors(),
            *self._plugins(),
            *self._shell(),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the metrics that the last `take` copied."""
        for family in self._taken:
            metric = family.kind(PREFIX + family.name, family.text, labels=family.labels)
            for labels, value in family.rows:
                metric.add_metric(labels, value)
            yield metric

    def _internal_errors(self) -> Family:
        counters = self._sources.engine.counters
        errors = {str(step): counters.internal_errors[step] for step in Step} | dict(self._recorder.internal_errors)
        return _counter("internal_errors", "Exceptions of the scheduler itself, by step", ("step",), _by(errors))

    def _plugins(self) -> Iterator[Family]:
        recorder = self._recorder
        errors = self._sources.engine.counters.plugin_errors + recorder.plugin_errors
        yield _counter("plugin_errors", "Exceptions of plugins", ("plugin",), _by(errors))
        calls = recorder.plugin_calls
        yield _counter("plugin_calls", "Calls of plugins of others", ("plugin",), _by(calls))
        seconds = recorder.plugin_seconds
        yield _counter("plugin_seconds", "Seconds in calls of plugins of others", ("plugin",), _by(seconds))

    def _shell(self) -> Iterator[Family]:
        sources = self._sources
        yield _gauge("leader", "1 for the leader, 0 for a standby", (), [((), float(sources.leads()))])
        yield _counter("reports", "Events and statuses, by their outcome", ("outcome",), _by(sources.reports()))
        backlogs = {name: length() for name, length in sources.backlogs.items()}
        yield _gauge("backlog", "Work that waits inside the daemon", ("of",), _by(backlogs))
        age = sources.oldest_binding()
        yield _gauge("oldest_binding_seconds", "Age of the oldest Binding without an outcome", (), [((), age)])
        for name, number, text in (
            ("watched_objects", len, "Known objects"),
            (
                "watch_open_seconds",
                attrgetter("watch_open_seconds"),
                "How long the watch has been open; 0 while it is not",
            ),
            ("watch_silent_seconds", attrgetter("watch_idle_seconds"), "How long ago the watch last received a byte"),
        ):
            numbers = {kind: number(reflector) for kind, reflector in sources.reflectors.items()}
            yield _gauge(name, text, ("kind",), _by(numbers))
        for name, attribute, text in _WATCH_COUNTS:
            counts = {kind: getattr(reflector.counts, attribute) for kind, reflector in sources.reflectors.items()}
            yield _counter(name, text, ("kind",), _by(counts))


def _gauge(name: str, text: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(GaugeMetricFamily, name, text, labels, rows)


def _counter(name: str, text: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Family:
    return Family(CounterMetricFamily, name, text, labels, rows)


def _by_label(labels: PoolLabels, names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(labels.of(name), []).append(name)
    return found


def _summed(pools: Pools, summaries: Iterable[PoolSummary]) -> Iterator[Family]:
    """Yield the metrics of the summaries; pools that share a label are summed up."""
    known = {pool.name: pool for pool in summaries}
    groups = [(label, [known[name] for name in names if name in known]) for label, names in pools.items()]
    has = {name for pool in known.values() for name, amount in pool.capacity.items() if amount}
    resources = (*_ALWAYS, *sorted(has.difference(_ALWAYS)))[:RESOURCES_MAX]
    text = "What a pool has, uses, lends, borrows and waits for: cores, bytes, devices, pods"
    yield _gauge("pool_resource", text, ("pool", "resource", "kind"), _amounts(groups, resources))
    text = "GPUs of the pool by GPU type: in all, and what pods ask for"
    yield _gauge("pool_cards", text, ("pool", "type", "kind"), _cards(groups))
    nodes = (((label,), sum(pool.nodes for pool in group)) for label, group in groups)
    yield _gauge("pool_nodes", "Nodes of the pool", ("pool",), nodes)
    switches = (
        ((label, switch), sum(getattr(pool, switch) for pool in group))
        for label, group in groups
        for switch in SWITCHES
    )
    text = "1 where the pool's preemption, borrowing or sharing is on"
    yield _gauge("pool_switch_on", text, ("pool", "switch"), switches)


def _cards(groups: Iterable[tuple[str, list[PoolSummary]]]) -> list[Row]:
    """Return two rows for each label of a pool and each type: as many as a status has, for pools that share a label."""
    found: Counter[tuple[str, str, str]] = Counter()
    for label, group in groups:
        counts: dict[str, tuple[int, int]] = {}
        for card in (card for pool in group for card in pool.cards):
            before = counts.get(card.type, (0, 0))
            counts[card.type] = (before[0] + card.total, before[1] + card.used_hundredths)
        named = sorted(counts, key=lambda kind: (kind == OTHER_TYPES, -counts[kind][0], kind))[: CARD_TYPES_MAX - 1]
        for kind, (total, used) in counts.items():
            name = kind if kind in named or len(counts) <= CARD_TYPES_MAX else OTHER_TYPES
            found[label, name, "total"] += total * CARD
            found[label, name, "used"] += used
    return [(names, hundredths / CARD) for names, hundredths in sorted(found.items())]


def _amounts(groups: Iterable[tuple[str, list[PoolSummary]]], resources: Iterable[str]) -> Iterator[Row]:
    for label, group in groups:
        for resource in resources:
            scale = 1000 if resource == CPU else CARD if resource in (GPU, NVIDIA_GPU) else 1
            for kind in KINDS:
                of_pools = [getattr(pool, kind) for pool in group]
                amount = sum(map(gpus, of_pools)) if resource == GPU else counted(resource, *of_pools)
                yield (label, resource, kind), amount / scale


def _queues(pools: Pools, engine: Scheduler) -> Iterator[Family]:
    waiting = {(pool, queue): count for pool, counts in engine.waiting().items() for queue, count in counts.items()}
    text = "Waiting pods, by the part of the queue"
    yield _gauge("pending_pods", text, ("pool", "queue"), _of(pools, QUEUES, waiting))
    text = "Pods held for a constraint: a claim that is not supported, or that allows no node"
    yield _gauge("held_pods", text, ("pool", "constraint"), _of(pools, ConstraintKind, engine.held()))
    text = "Nodes that the pool and another pool select"
    yield _gauge("pool_conflict_nodes", text, ("pool",), _each(pools, engine.conflicts()))
    text = "Pods of the pool home on nodes of the pool lender"
    yield _gauge("loans", text, ("lender", "home"), _loans(pools, engine.loans()))


def _decisions(pools: Pools, counters: Counters) -> Iterator[Family]:
    reasons = sorted({str(reason) for _, reason in counters.borrow_refusals})
    for name, text, label, values, counts in (
        ("scheduling_attempts", "Attempts, by their result", "result", Result, counters.attempts),
        ("borrow_refusals", "Refusals of lenders, by home pool", "reason", reasons, counters.borrow_refusals),
        ("evictions", "Evictions decided, by the pool of the node", "cause", EvictionCause, counters.evictions),
    ):
        yield _counter(name, text, ("pool", label), _of(pools, values, counts))
    yield _counter(
        "borrow_attempts", "Searches for a lender, by home pool", ("pool",), _each(pools, counters.borrow_attempts)
    )
    text = "Pods that only the retry after five minutes placed"
    yield _counter("net_saves", text, ("pool",), _each(pools, counters.net_saves))
    violations = dict.fromkeys(NAMES, 0) | dict(counters.violations)
    yield _counter("invariant_violations", "Broken invariants", ("invariant",), _by(violations))


def _tenant_queues(queues: Pools, recorder: MetricsRecorder) -> Iterator[Family]:
    """Yield the metrics of tenant queues; queues that share a label are summed up."""
    told = recorder.queues
    groups = [(label, [told[name] for name in names if name in told]) for label, names in queues.items()]
    groups = [(label, group) for label, group in groups if group]
    text = "Cards of the queue by name: what its pods use, and its quota"
    yield _gauge("queue_cards", text, ("queue", "card", "kind"), _queue_cards(groups))
    waiting = [((label,), sum(report.summary.pending_pods for report in group)) for label, group in groups]
    yield _gauge("queue_pending_pods", "Pods of the queue that wait", ("queue",), waiting)
    over = [((label,), float(any(map(_is_over, group)))) for label, group in groups]
    yield _gauge("queue_over_quota", "1 where pods of the queue use more than its quota", ("queue",), over)
    text = "Pods of the queue evicted for inference of other queues"
    yield _counter("queue_reclaims", text, ("queue",), _each(queues, recorder.queue_reclaims))


def _is_over(report: ReportQueue) -> bool:
    return any(condition.type == OVER_QUOTA and condition.status for condition in report.conditions)


def _queue_cards(groups: Iterable[tuple[str, list[ReportQueue]]]) -> list[Row]:
    """Return a row for each label of a queue and each card, and one for its quota; a queue has `CARDS_MAX` cards."""
    found: Counter[tuple[str, ...]] = Counter()
    for label, group in groups:
        cards = [card for report in group for card in report.summary.cards]
        named = sorted({(card.quota is None, card.card) for card in cards})[:CARDS_MAX]
        names = {name for _, name in named}
        for card in cards:
            name = card.card if card.card in names else OTHER_TYPES
            found[label, name, "used"] += card.used_hundredths
            if card.quota is not None:
                found[label, name, "quota"] += card.quota * CARD
    return [(names, hundredths / CARD) for names, hundredths in sorted(found.items())]


def _by(values: Mapping[str, float]) -> list[Row]:
    """Return a row for each value of the one label, sorted."""
    return [((key,), value) for key, value in sorted(values.items())]


def _of(pools: Pools, values: Iterable[str], counts: Counts) -> Iterator[Row]:
    """Return a row for each pool and each value of a second label; the counts are copied now."""
    values, counts = tuple(values), dict(counts)
    return (
        ((label, value), sum(counts.get((name, value), 0) for name in names))
        for label, names in pools.items()
        for value in values
    )


def _each(pools: Pools, counts: Mapping[str, int]) -> Iterator[Row]:
    """Return a row for each pool; the counts are copied now."""
    counts = dict(counts)
    return (((label,), sum(counts.get(name, 0) for name in names)) for label, names in pools.items())


def _loans(pools: Pools, loans: Mapping[tuple[str, str], int]) -> list[Row]:
    """Return a row for each lender that lends to a home pool."""
    label_of = {name: label for label, names in pools.items() for name in names}
    counts: Counter[tuple[str, str]] = Counter()
    for (lender, home), count in loans.items():
        if lender in label_of and home in label_of:
            counts[label_of[lender], label_of[home]] += count
    return sorted(counts.items())
