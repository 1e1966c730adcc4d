"""The table of all pools: what each has, uses, lends and waits for, beside the whole cluster.

Laws:
- It shows the engine's own numbers (`Scheduler.summary()`) and counts nothing itself but the cluster's total.
- Total is the same in every pool: the sum of what is allocatable.
"""

from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from aischeduler.engine.summary import GPU, PoolSummary
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

AMOUNT_COLUMNS: Final = ("Capacity", "Allocatable", "Used", "Shared", "Pending", "Total")
ROWS: Final = (("cpu", CPU), ("gpu", GPU), ("mem", MEMORY), ("storage", EPHEMERAL_STORAGE), ("pods", PODS))
NAME_WIDTH_MAX: Final = 40
"""A longer pool name is folded into several lines."""

_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def pool_table(pools: Sequence[PoolSummary]) -> Table:
    """Return the table of these pools, in their order."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("Pools", min_width=len("p✓ b✓ s✗"), max_width=NAME_WIDTH_MAX, overflow="fold")
    table.add_column("Resource", no_wrap=True)
    for column in AMOUNT_COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    nodes = sum(pool.nodes for pool in pools)
    totals = {resource: sum(pool.allocatable.get(resource, 0) for pool in pools) for _, resource in ROWS}
    for pool in pools:
        about = {"cpu": Text(pool.name, style="bold"), "gpu": flags(pool)}
        for label, resource in ROWS:
            if resource == PODS:
                table.add_row("", "nodes", f"{pool.nodes:,}", f"{pool.nodes:,}", "-", "-", "-", f"{nodes:,}")
            cells = _cells(pool, resource, totals[resource])
            table.add_row(about.get(label, ""), label, *cells, end_section=resource == PODS)
    return table


def flags(pool: PoolSummary) -> Text:
    """Return which of preemption, borrowing and sharing are on: `p✓ b✓ s✗`."""
    switches = (("p", pool.preemption), ("b", pool.borrowing), ("s", pool.sharing))
    return Text(" ").join(
        Text(letter + ("✓" if on else "✗"), style="green" if on else "red") for letter, on in switches
    )


def amount(resource: str, count: int) -> str:
    """Return an amount for people: cores (from thousandths), bytes with a binary suffix, other things as they are."""
    match resource:
        case "cpu":
            return _trimmed(f"{count / 1000:,.3f}")
        case "memory" | "ephemeral-storage":
            return _bytes(count)
        case _:
            return f"{count:,}"


def _cells(pool: PoolSummary, resource: str, total: int) -> list[Text]:
    columns = (
        (pool.capacity, ""),
        (pool.allocatable, ""),
        (pool.used, ""),
        (pool.shared, "cyan"),
        (pool.pending, "yellow"),
        ({resource: total}, ""),
    )
    counts = ((amounts.get(resource, 0), style) for amounts, style in columns)
    return [Text(amount(resource, count), style=style if count else "") for count, style in counts]


def _bytes(count: int) -> str:
    power = min(max(0, count.bit_length() - 1) // 10, len(_SUFFIXES) - 1)
    return _trimmed(f"{count / 1024**power:,.1f}") + _SUFFIXES[power]


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
