"""Writes metrics as text, a piece at a time, so that nobody waits long for the event loop.

Laws:
- The text is prometheus-client's; a piece holds at most `PIECE_SAMPLES` lines, and others may run between two pieces.
- A family's samples are taken from an iterator, so that they need not exist all at once.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

PIECE_SAMPLES: Final = 50
"""Lines written before others may run: one to two milliseconds."""
_END: Final = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without the suffix of its kind, what it means, and its samples.

    `kind` is counter, gauge, histogram or info.
    """

    name: str
    text: str
    kind: str
    samples: Iterable[Sample]


async def render(families: Iterable[Family], accept: str) -> tuple[bytes, str]:
    """Return the text and its content type: OpenMetrics where the Accept header asks for it, else Prometheus' text."""
    encode, content_type = choose_encoder(accept)
    pieces: list[bytes] = []
    for family in families:
        for number, metric in enumerate(_metrics(family)):
            text = encode(_Single(metric)).removesuffix(_END)
            pieces.append(text if number == 0 else _without_comments(text))
            await asyncio.sleep(0)
    if content_type.startswith("application/openmetrics-text"):
        pieces.append(_END)
    return b"".join(pieces), content_type


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


def _without_comments(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
