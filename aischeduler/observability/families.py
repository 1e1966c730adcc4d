"""Builds metrics of each kind from rows of labels and values.

Law: rows may be a generator; a family is built without asking for them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.samples import Sample

from aischeduler.observability.distribution import Distribution
from aischeduler.observability.exposition import Family

PREFIX: Final = "ai_scheduler_"

Labels = dict[str, str]
Row = tuple[Labels, float]


def gauge(name: str, text: str, rows: Iterable[Row]) -> Family:
    """Return a metric that goes up and down."""
    name = PREFIX + name
    return Family(name, text, "gauge", (Sample(name, labels, value) for labels, value in rows))


def counter(name: str, text: str, rows: Iterable[Row]) -> Family:
    """Return a metric that only grows; its lines end in `_total`."""
    name = PREFIX + name
    return Family(name, text, "counter", (Sample(f"{name}_total", labels, value) for labels, value in rows))


def info(name: str, text: str, labels: Labels) -> Family:
    """Return a metric that tells by its labels; its line ends in `_info`."""
    name = PREFIX + name
    return Family(name, text, "info", (Sample(f"{name}_info", labels, 1),))


def histogram(name: str, text: str, series: Iterable[tuple[Labels, Distribution]]) -> Family:
    """Return a metric of how often each size occurred."""
    name = PREFIX + name
    return Family(name, text, "histogram", _lines(name, series))


def by(label: str, values: Mapping[str, float]) -> Iterator[Row]:
    """Yield a row for each value of the one label, sorted."""
    return (({label: key}, value) for key, value in sorted(values.items()))


def _lines(name: str, series: Iterable[tuple[Labels, Distribution]]) -> Iterator[Sample]:
    for labels, distribution in series:
        yield from (Sample(*line) for line in distribution.lines(name, labels))
