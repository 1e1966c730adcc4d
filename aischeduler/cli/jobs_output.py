"""The elastic jobs as a table for people, one job as a paragraph, and as JSON for programs.

Invariants:
- The least served job comes first; jobs that take no part in a pass come last.
- What nobody knows is `-` in the table and null in JSON.
- In JSON, every amount is an integer with its unit in the field's name, and every job has every field. A field may be
  added; no field is renamed or changes its unit.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

import orjson
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from aischeduler.analysis.elastic_jobs import JobRow, JobState
from aischeduler.cli.output import plain_table
from aischeduler.model.times import time_text
from aischeduler.observability.logging import printable

COLUMNS: Final = ("Job", "Level", "Service", "Share", "Size", "Frozen", "State")
UNKNOWN: Final = "-"
_NUMBERS: Final = ("Service", "Share", "Size", "Frozen")
_SUFFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
_STYLES: Final = {
    JobState.WAITING: "yellow",
    JobState.GROWING: "cyan",
    JobState.SHRINKING: "cyan",
    JobState.NOT_ELASTIC: "red",
}


def jobs_table(rows: Sequence[JobRow], now_seconds: int) -> Table:
    """Return the table of these jobs, in their order."""
    table = plain_table()
    for column in COLUMNS:
        if column in _NUMBERS:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        left = row.frozen_until_seconds - now_seconds if row.frozen_until_seconds is not None else None
        table.add_row(
            Text(printable(job_name(row)), style="bold"),
            row.level if row.minimum is not None else UNKNOWN,
            scaled(row.service_core_seconds),
            UNKNOWN if row.share_percent is None else f"{row.share_percent:.0f} %",
            size_text(row),
            "" if left is None else f"{left}s",
            Text(printable(state_text(row)), style=_STYLES.get(row.state, "")),
        )
    return table


def job_name(row: JobRow) -> str:
    """Return kind, namespace and name of a job; `default` is left out."""
    return "/".join(part for part in (row.kind, row.namespace, row.name) if part != "default")


def size_text(row: JobRow) -> str:
    """Return how many instances run, how many are wanted, and the bounds: 4/8/2-8."""
    bounds = f"{row.minimum}-{row.maximum}" if row.minimum is not None else UNKNOWN
    return f"{row.running}/{row.size if row.next_size is None else row.next_size}/{bounds}"


def state_text(row: JobRow) -> str:
    """Return the state with what belongs to it: since when it waits, to which size it goes, why it is not elastic."""
    match row.state:
        case JobState.WAITING:
            since = f" since {time_text(row.waits_since_seconds)}" if row.waits_since_seconds is not None else ""
            return f"waits for its minimum{since}"
        case JobState.GROWING | JobState.SHRINKING if row.next_size is not None:
            return f"{row.state} to {row.next_size}"
        case JobState.NOT_ELASTIC:
            return f"not elastic: {row.growth.why}"
        case _:
            return str(row.state)


def scaled(number: int) -> str:
    """Return a number with at most one digit of a fraction and a decimal suffix: 1.2M."""
    amount, suffix = float(number), 0
    while amount >= 1000 and suffix < len(_SUFFIXES) - 1:
        amount, suffix = amount / 1000, suffix + 1
    return f"{amount:.1f}{_SUFFIXES[suffix]}" if suffix else f"{number}"


def job_text(row: JobRow, jobs: int) -> Iterator[RenderableType]:
    """Yield the paragraph about one job of so many that take part in passes."""
    name = job_name(row)
    if row.state is JobState.NOT_ELASTIC:
        yield Text(printable(f"{name} asks to be elastic and is not: {row.growth.why}"), style="bold")
        yield Text(printable(row.growth.remedy))
        return
    bounds = f"between {row.minimum} and {row.maximum}"
    yield Text(
        printable(f"{name} is elastic: {row.running} of its {row.size} instances are on nodes, {bounds}."), style="bold"
    )
    share = f", {row.share_percent:.0f} % of all" if row.share_percent is not None else ""
    service = f"{scaled(row.service_core_seconds)} core-seconds{share}"
    place = f"Number {row.place} of {jobs}, the least served first" if row.place is not None else "It has no turn"
    yield Text(f"{place}: level {row.level}, has received {service}.")
    yield Text(printable(f"Why this size: {row.growth.why}"))
    if row.growth.remedy:
        yield Text(printable(f"What makes it grow: {row.growth.remedy}"))
    if row.ignored:
        yield Text(printable(f"What has no effect: {row.ignored}."))


def jobs_json(rows: Sequence[JobRow]) -> str:
    """Return a list of one object a job on one line."""
    return orjson.dumps([job_json(row) for row in rows]).decode()


def job_json(row: JobRow) -> Mapping[str, Any]:
    """Return one job."""
    growth, share = row.growth, row.share_percent
    return {
        "place": row.place,
        "kind": row.kind,
        "namespace": row.namespace,
        "name": row.name,
        "level": row.level,
        "weight": row.weight,
        "serviceCoreSeconds": row.service_core_seconds,
        "shareThousandths": None if share is None else round(share * 10),
        "size": row.size,
        "nextSize": row.next_size,
        "running": row.running,
        "minInstances": row.minimum,
        "maxInstances": row.maximum,
        "allowedInstances": list(row.allowed),
        "freezingWindowSeconds": ceil(row.window_seconds),
        "frozenUntilSeconds": row.frozen_until_seconds,
        "waitsSinceSeconds": row.waits_since_seconds,
        "state": row.state,
        "ignored": row.ignored,
        "growth": {"next": growth.next, "obstacle": growth.obstacle, "why": growth.why, "remedy": growth.remedy},
    }
