"""The tenant queues as a table for people, and as JSON for programs.

Invariants:
- Each queue has one row, below that of its parent, and one for each of its cards.
- What nobody says, and what is not limited, is `-` in the table and null in JSON.
- In JSON, every amount is an integer with its unit in the field's name, and every queue has every field. A field may be
  added; no field is renamed or changes its unit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from rich.table import Table
from rich.text import Text

from aischeduler.cli.output import plain_table
from aischeduler.cli.pools_output import NAME_WIDTH_MAX, amount
from aischeduler.cli.queue_numbers import Cards, QueueRow, QueueUse
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import QueueState

COLUMNS: Final = ("Queue", "Priority", "State", "Card", "Used", "Quota", "Pending", "CPU", "Memory")
FIELDS: Final = {CPU: "cpuMilli", MEMORY: "memoryBytes"}
"""The fields of the resources that every list of amounts has; `others` has the other resources by name."""
UNKNOWN: Final = "-"
INDENT: Final = "  "
_TEXTS: Final = COLUMNS[:1] + COLUMNS[2:4]
"""The columns of texts; the others are of numbers."""


def queue_table(rows: Sequence[QueueRow]) -> Table:
    """Return the table of these queues, in their order."""
    table = plain_table()
    for column in COLUMNS:
        if column in _TEXTS:
            wide = NAME_WIDTH_MAX if column == "Queue" else None
            table.add_column(column, max_width=wide, overflow="fold", no_wrap=column == "State")
        else:
            table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        queue, use = row.queue, row.use
        table.add_row(
            Text(f"{INDENT * row.depth}{queue.name}", style="bold"),
            f"{queue.priority:,}",
            Text(row.state, style="" if row.state is QueueState.OPEN else "yellow"),
            *("", "", ""),
            _pending(use),
            _of_quota(CPU, use, queue.capability),
            _of_quota(MEMORY, use, queue.capability),
        )
        for card in row.cards:
            table.add_row("", "", "", card.card, _used(card), _count(card.quota))
    return table


def queues_json(rows: Sequence[QueueRow]) -> str:
    """Return a list of one object a queue on one line."""
    return orjson.dumps([_queue_json(row) for row in rows]).decode()


def _queue_json(row: QueueRow) -> dict[str, Any]:
    queue, use = row.queue, row.use
    return {
        "name": queue.name,
        "kind": str(queue.source),
        "parent": queue.parent or None,
        "depth": row.depth,
        "priority": queue.priority,
        "reclaimable": queue.reclaimable,
        "state": str(row.state),
        "accepted": use.accepted if use is not None else None,
        "overQuota": use.over_quota if use is not None else None,
        "pods": use.pods if use is not None else None,
        "pendingPods": use.pending_pods if use is not None else None,
        "cards": [{"name": card.card, "used": card.used, "quota": card.quota} for card in row.cards],
        "capability": _amounts_json(queue.capability, absent=None),
        **{name: _amounts_json(getattr(use, name)) if use else None for name in ("used", "pending", "borrowed")},
    }


def _amounts_json(amounts: ResourceList, absent: int | None = 0) -> Mapping[str, Any]:
    others = {name: amount for name, amount in sorted(amounts.items()) if name not in FIELDS}
    return {**{field: amounts.get(name, absent) for name, field in FIELDS.items()}, "others": others}


def _used(card: Cards) -> Text:
    over = card.used is not None and card.quota is not None and card.used > card.quota
    return Text(card.text or _count(card.used), style="red" if over else "")


def _pending(use: QueueUse | None) -> Text:
    return Text(_count(use.pending_pods), style="yellow" if use.pending_pods else "") if use else Text(UNKNOWN)


def _count(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _of_quota(resource: str, use: QueueUse | None, quota: ResourceList) -> str:
    """Return what is used of a quota; without a quota only what is used."""
    if use is not None and resource in use.texts:
        return use.texts[resource]
    used = amount(resource, use.used.get(resource, 0)) if use is not None else UNKNOWN
    return f"{used}/{amount(resource, quota[resource])}" if resource in quota else used
