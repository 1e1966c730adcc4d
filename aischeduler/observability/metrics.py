"""What `/metrics` tells: the engine's numbers at the moment of the scrape, and what the shell counted.

Laws:
- Units are base units (cores, bytes, seconds); the names of counters end in `_total`.
- Labels are bounded: pools by `PoolLabels`, resources by what nodes have, everything else by closed sets.
- All numbers are taken at one moment; lines are made from them one piece after the other.
- docs/metrics.md describes every name; a test compares.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from platform import python_version
from typing import Any, Final

from prometheus_client.process_collector import ProcessCollector

from aischeduler import __version__
from aischeduler.engine.tally import Result
from aischeduler.model.actions import EvictionCause, Step
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, PoolSummary
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.observability.exposition import Family
from aischeduler.observability.families import Row, by, counter, gauge, histogram, info
from aischeduler.observability.sources import Sources

KINDS: Final = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
QUEUES: Final = ("active", "backoff", "parked", "nominated", "held", "gated")
SWITCHES: Final = ("preemption", "borrowing", "sharing")
RESOURCES_MAX: Final = 32
"""Resources that are told: the five of every pool, then others that some node has, by name."""
_ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS, GPU)
_HEARD: Final = (
    ("watch_events", attrgetter("events"), "Lines of watches that were read"),
    ("lists", attrgetter("lists"), "Lists begun, the first one included"),
    ("watches", attrgetter("watches"), "Watches begun"),
    ("list_watch_failures", attrgetter("failures"), "Lists and watches that failed"),
    ("old_events", attrgetter("old_events"), "Words about an object older than what was known, and dropped"),
    ("older_lists", attrgetter("older_lists"), "Lists that were older than what was known"),
    ("unreadable_objects", attrgetter("unreadable_objects"), "Objects that could not be read"),
    ("unreadable_lines", attrgetter("unreadable_lines"), "Lines of watches that could not be read"),
    ("unknown_events", attrgetter("unknown_events"), "Lines of watches of an unknown type"),
    ("recreated_objects", attrgetter("recreated"), "Objects that came back under their name with another uid"),
    ("missed_deletions", attrgetter("found_gone"), "Objects that a list showed to be gone before the watch did"),
)
"""What is told of each reflector: the metric, its number among the counts, and what it means."""

Counts = Mapping[tuple[str, Any], int]
"""How often something happened, by pool and a member of a closed set of texts."""
Pools = Mapping[str, list[str]]
"""Every label, and the pools that it stands for."""


class Metrics:
    """Collects all families at one moment."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._process = ProcessCollector(registry=None)

    def collect(self) -> list[Family]:
        """Take all numbers now; the lines of a family are made when they are asked for."""
        meter, engine = self._sources.meter, self._sources.engine
        names = engine.pools()
        meter.keep(meter.labels.keep(names))
        pools: dict[str, list[str]] = {}
        for name in names:
            pools.setdefault(meter.labels.of(name), []).append(name)
        families = (
            *_summed(pools, engine.summary()),
            *self._queues(pools),
            *self._decisions(pools),
            *self._measured(),
            *self._shell(),
        )
        return [*families, *self._program()]

    def _queues(self, pools: Pools) -> Iterable[Family]:
        engine = self._sources.engine
        waiting = {(pool, queue): n for pool, counts in engine.waiting().items() for queue, n in counts.items()}
        yield gauge("pending_pods", "Waiting pods, by the part of the queue", _of(pools, "queue", QUEUES, waiting))
        held, text = engine.held(), "Pods held for a hard constraint that is not supported, by its kind"
        yield gauge("held_pods", text, _of(pools, "constraint", ConstraintKind, held))
        yield gauge("pool_conflict_nodes", "Nodes that the pool and another select", _each(pools, engine.conflicts()))
        loans = engine.loans()
        yield gauge("loans", "Pods on nodes of another pool than their own", _loans(pools, loans))

    def _decisions(self, pools: Pools) -> Iterable[Family]:
        tally = self._sources.engine.tally
        attempts, evictions, refusals = dict(tally.attempts), dict(tally.evictions), dict(tally.borrow_refusals)
        reasons = sorted({str(reason) for _, reason in refusals})
        yield counter("scheduling_attempts", "Attempts, by their result", _of(pools, "result", Result, attempts))
        yield counter("borrow_attempts", "Attempts to borrow, by home pool", _each(pools, tally.borrow_attempts))
        yield counter("borrow_refusals", "Refusals of lenders, by home pool", _of(pools, "reason", reasons, refusals))
        yield counter(
            "evictions", "Evictions decided, by the pool of the node", _of(pools, "cause", EvictionCause, evictions)
        )
        yield counter("net_saves", "Pods placed only because the net woke them", _each(pools, tally.net_saves))
        violations = {str(invariant): count for invariant, count in tally.violations.items()}
        yield counter("invariant_violations", "Broken invariants", by("invariant", violations))
        errors = {str(step): tally.internal_errors[step] for step in Step} | dict(self._sources.meter.internal_errors)
        yield counter("internal_errors", "Exceptions of the scheduler itself, by step", by("step", errors))

    def _measured(self) -> Iterable[Family]:
        meter = self._sources.meter
        for name, text, series in (
            ("scheduling_attempt_duration_seconds", "How long an attempt took", meter.attempt_seconds),
            ("queue_wait_seconds", "How long bound pods had waited, by home pool", meter.wait_seconds),
            ("preemption_victims", "Pods evicted for one pod", meter.victims),
        ):
            yield histogram(name, text, [({"pool": label}, sizes) for label, sizes in sorted(series.items())])
        binds = [
            ({"pool": label, "outcome": outcome}, sizes)
            for (label, outcome), sizes in sorted(meter.bind_seconds.items())
        ]
        yield histogram("bind_duration_seconds", "How long Bindings took, from decision to answer", binds)
        evictions = [({"outcome": outcome}, sizes) for outcome, sizes in sorted(meter.eviction_seconds.items())]
        yield histogram("eviction_duration_seconds", "How long evictions took, from decision to answer", evictions)

    def _shell(self) -> Iterable[Family]:
        sources = self._sources
        reports = sources.reports
        written = {"written": reports.written, "dropped": reports.dropped, "refused": reports.refused}
        yield gauge("leader", "1 where this scheduler schedules, 0 where it stands by", (({}, float(sources.leads())),))
        yield counter("reports", "Events and statuses for users, by what became of them", by("outcome", written))
        backlogs = {name: length() for name, length in sources.waiting.backlogs.items()}
        yield gauge("backlog", "What waits inside the daemon", by("of", backlogs))
        age: tuple[Row, ...] = (({}, sources.waiting.oldest_binding()),)
        yield gauge("oldest_binding_seconds", "Age of the oldest Binding without an outcome", age)
        objects = {kind: len(reflector) for kind, reflector in sources.reflectors.items()}
        yield gauge("watched_objects", "Objects that are known", by("kind", objects))
        opened = {kind: reflector.open_seconds for kind, reflector in sources.reflectors.items()}
        yield gauge("watch_open_seconds", "How long the watch has been open; 0 while it is not", by("kind", opened))
        silent = {kind: reflector.silent_seconds for kind, reflector in sources.reflectors.items()}
        yield gauge("watch_silent_seconds", "How long ago the watch last brought a byte", by("kind", silent))
        for name, number, text in _HEARD:
            counts = {kind: number(reflector.counts) for kind, reflector in sources.reflectors.items()}
            yield counter(name, text, by("kind", counts))

    def _program(self) -> Iterable[Family]:
        yield info("build", "The version that runs", {"version": __version__, "python": python_version()})
        for metric in self._process.collect():
            yield Family(metric.name, metric.documentation, metric.type, metric.samples)


def _summed(pools: Pools, summaries: Iterable[PoolSummary]) -> Iterable[Family]:
    """Yield what the summaries tell; pools that share a label are summed up."""
    known = {pool.name: pool for pool in summaries}
    groups = [(label, [known[name] for name in names if name in known]) for label, names in pools.items()]
    has = {name for pool in known.values() for name, amount in pool.capacity.items() if amount}
    resources = (*_ALWAYS, *sorted(has.difference(_ALWAYS)))[:RESOURCES_MAX]
    text = "What a pool has, uses, lends, borrows and waits for: cores, bytes, devices, pods"
    yield gauge("pool_resource", text, _amounts(groups, resources))
    nodes = (({"pool": label}, sum(pool.nodes for pool in group)) for label, group in groups)
    yield gauge("pool_nodes", "Nodes of the pool", nodes)
    switches = (
        ({"pool": label, "switch": switch}, sum(getattr(pool, switch) for pool in group))
        for label, group in groups
        for switch in SWITCHES
    )
    yield gauge("pool_switch_on", "1 where the pool's preemption, borrowing or sharing is on", switches)


def _amounts(groups: Iterable[tuple[str, list[PoolSummary]]], resources: Iterable[str]) -> Iterator[Row]:
    for label, group in groups:
        for resource in resources:
            scale = 1000 if resource == CPU else 1
            for kind in KINDS:
                amount = sum(getattr(pool, kind).get(resource, 0) for pool in group)
                yield {"pool": label, "resource": resource, "kind": kind}, amount / scale


def _of(pools: Pools, second: str, values: Iterable[str], counts: Counts) -> Iterator[Row]:
    """Yield a row for each pool and each of the values of a second label."""
    values = tuple(values)
    return (
        ({"pool": label, second: value}, sum(counts.get((name, value), 0) for name in names))
        for label, names in pools.items()
        for value in values
    )


def _each(pools: Pools, counts: Mapping[str, int]) -> Iterator[Row]:
    """Yield a row for each pool."""
    counts = dict(counts)
    return (({"pool": label}, sum(counts.get(name, 0) for name in names)) for label, names in pools.items())


def _loans(pools: Pools, loans: Mapping[tuple[str, str], int]) -> Iterator[Row]:
    """Yield a row for each lender that lends to a home pool."""
    label_of = {name: label for label, names in pools.items() for name in names}
    counts: Counter[tuple[str, str]] = Counter()
    for (lender, home), count in loans.items():
        if lender in label_of and home in label_of:
            counts[label_of[lender], label_of[home]] += count
    return (({"lender": lender, "home": home}, count) for (lender, home), count in sorted(counts.items()))
