"""Writes metrics as text, a piece at a time, so that nobody waits long for the event loop.

Laws:
- The text is prometheus-client's; a piece holds at most `PIECE_SAMPLES` lines, and others may run between two pieces.
- A family's samples are taken from an iterator, so that they need not exist all at once.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final

from prometheus_client import exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

PIECE_SAMPLES: Final = 50
"""Lines written before others may run: one to two milliseconds."""
_END: Final = b"# EOF\n"
_OPENMETRICS: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without the suffix of its kind, what it means, and its samples.

    `kind` is counter, gauge, histogram or info.
    """

    name: str
    text: str
    kind: str
    samples: Iterable[Sample]


class Form(Enum):
    """How metrics are written; the value is the content type."""

    TEXT = exposition.CONTENT_TYPE_PLAIN_0_0_4
    OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST


def form_of(accept: str) -> Form:
    """Return OpenMetrics where the Accept header asks for it, else Prometheus' text."""
    asked = _OPENMETRICS in (part.partition(";")[0].strip() for part in accept.split(","))
    return Form.OPENMETRICS if asked else Form.TEXT


async def render(families: Iterable[Family], form: Form) -> bytes:
    """Return the text; others run after every piece."""
    pieces: list[bytes] = []
    for family in families:
        for number, metric in enumerate(_metrics(family)):
            text = _encoded(metric, form)
            pieces.append(text if number == 0 else _without_comments(text))
            await asyncio.sleep(0)
    return b"".join(pieces if form is Form.TEXT else (*pieces, _END))


class _Single(Collector):
    """What the encoders take: something to collect one metric from."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        """Return the metric."""
        return (self._metric,)


def _metrics(family: Family) -> Iterator[Metric]:
    """Yield the family in metrics of few samples each; one that has none is still told."""
    samples = iter(family.samples)
    while True:
        metric = Metric(family.name, family.text, family.kind)
        metric.samples = list(islice(samples, PIECE_SAMPLES))
        yield metric
        if len(metric.samples) < PIECE_SAMPLES:
            return


def _encoded(metric: Metric, form: Form) -> bytes:
    if form is Form.TEXT:
        return exposition.generate_latest(_Single(metric))
    text: bytes = openmetrics.generate_latest(_Single(metric))  # type: ignore[no-untyped-call]
    return text.removesuffix(_END)


def _without_comments(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
