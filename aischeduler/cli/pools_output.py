"""The pools as a table for people, and as JSON for programs.

Invariants:
- The column Total is the same in every pool: the sum of what is allocatable in all pools.
- The wide table has a row for each card type of a pool too, below its GPUs.
- Parts of GPUs are exact in the rows of all GPUs; those by card type, and JSON, round them up.
- In JSON, every amount is an integer with its unit in the field's name, and every pool has every field. A field may be
  added; no field is renamed or changes its unit.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from rich.table import Table
from rich.text import Text

from aischeduler.cli.output import plain_table
from aischeduler.kube.report.pool_writes import AMOUNTS
from aischeduler.model.card_shares import CARD, counted, whole_cards
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_SHARE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary, gpus
from aischeduler.model.quantity import scaled_bytes, trimmed

Amounts = Mapping[str, int]

COLUMNS: Final = ("Capacity", "Allocatable", "Used", "Shared", "Pending", "Total")
WIDE_COLUMNS: Final = (
    "Capacity",
    "Allocatable",
    "Used",
    "Own",
    "Shared",
    "System",
    "Borrowed",
    "Free",
    "Pending",
    "Total",
)
ROWS: Final = (("cpu", CPU), ("gpu", GPU), ("mem", MEMORY), ("storage", EPHEMERAL_STORAGE), ("pods", PODS))
FIELDS: Final = {
    CPU: "cpuMilli",
    MEMORY: "memoryBytes",
    EPHEMERAL_STORAGE: "ephemeralStorageBytes",
    PODS: "pods",
    GPU: "gpus",
}
"""The fields of the resources that every pool has; `others` has the other resources by name."""
NAME_WIDTH_MAX: Final = 40
"""A longer pool name is folded into several lines."""

_STYLES: Final = {"Shared": "cyan", "Borrowed": "cyan", "Pending": "yellow"}
_OF_NODES: Final = ("Capacity", "Allocatable")


def pool_table(pools: Sequence[PoolSummary], *, wide: bool = False) -> Table:
    """Return the table of these pools, in their order."""
    columns = WIDE_COLUMNS if wide else COLUMNS
    table = plain_table()
    table.add_column("Pools", min_width=len("p✓ b✓ s✗"), max_width=NAME_WIDTH_MAX, overflow="fold")
    table.add_column("Resource", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    nodes = sum(pool.nodes for pool in pools)
    total = {resource: sum(pool.allocatable.get(resource, 0) for pool in pools) for _, resource in ROWS}
    cards = Counter[str]()
    for card in (card for pool in pools for card in pool.cards):
        cards[card.type] += card.total
    for pool in pools:
        labels = {"cpu": Text(pool.name, style="bold"), "gpu": flags(pool)}
        for label, resource in ROWS:
            if resource == PODS:
                table.add_row("", "nodes", *(_node_cell(column, pool.nodes, nodes) for column in columns))
            cells = [_cell(column, resource, _amounts(pool, column, total)) for column in columns]
            table.add_row(labels.get(label, ""), label, *cells, end_section=resource == PODS)
            if resource == GPU and wide:
                for card in pool.cards:
                    table.add_row("", f"- {card.type}", *(_card_cell(column, card, cards) for column in columns))
    return table


def flags(pool: PoolSummary) -> Text:
    """Return whether preemption, borrowing and sharing are on: `p✓ b✓ s✗`."""
    switches = (("p", pool.preemption), ("b", pool.borrowing), ("s", pool.sharing))
    return Text(" ").join(
        Text(letter + ("✓" if on else "✗"), style="green" if on else "red") for letter, on in switches
    )


def amount(resource: str, count: int) -> str:
    """Return an amount for people: cores, bytes with a binary suffix, hundredths of GPUs as GPUs, others as numbers."""
    match resource:
        case "cpu":
            return trimmed(f"{count / 1000:,.3f}")
        case "memory" | "ephemeral-storage":
            number, suffix = scaled_bytes(count)
            return trimmed(f"{number:,.1f}") + suffix
        case "gpu":
            return trimmed(f"{count / CARD:,.2f}")
        case _:
            return f"{count:,}"


def pools_json(pools: Sequence[PoolSummary]) -> str:
    """Return a list of one object a pool on one line."""
    return orjson.dumps([_pool_json(pool) for pool in pools]).decode()


def _pool_json(pool: PoolSummary) -> dict[str, Any]:
    return {
        "name": pool.name,
        "nodes": pool.nodes,
        "pods": pool.pods,
        "pendingPods": pool.pending_pods,
        "preemption": pool.preemption,
        "borrowing": pool.borrowing,
        "sharing": pool.sharing,
        **{name: _amounts_json(getattr(pool, name)) for name in AMOUNTS},
        "cardsByType": [
            {"type": card.type, "total": card.total, "used": whole_cards(card.used_hundredths)} for card in pool.cards
        ],
    }


def _amounts_json(amounts: Mapping[str, int]) -> dict[str, Any]:
    whole = {**amounts, GPU: whole_cards(gpus(amounts)), NVIDIA_GPU: whole_cards(counted(NVIDIA_GPU, amounts))}
    names = sorted(amounts.keys() - FIELDS.keys() - {GPU_SHARE})
    others = {name: whole[name] for name in names}
    return {**{field: whole.get(name, 0) for name, field in FIELDS.items()}, "others": others}


def _amounts(pool: PoolSummary, column: str, total: Amounts) -> Amounts:
    amounts: Amounts = total if column == "Total" else getattr(pool, column.lower())
    return amounts


def _cell(column: str, resource: str, amounts: Amounts) -> Text:
    count = gpus(amounts) if resource == GPU else amounts.get(resource, 0)
    return Text(amount(resource, count), style=_STYLES.get(column, "") if count else "")


def _node_cell(column: str, nodes: int, total: int) -> str:
    if column == "Total":
        return f"{total:,}"
    return f"{nodes:,}" if column in _OF_NODES else "-"


def _card_cell(column: str, count: CardCount, totals: Mapping[str, int]) -> str:
    """Return a cell of the GPUs of one card type; a status does not have the other columns of these."""
    cells = {"Allocatable": count.total, "Used": whole_cards(count.used_hundredths), "Total": totals[count.type]}
    return f"{cells[column]:,}" if column in cells else "-"
