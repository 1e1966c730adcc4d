"""The numbers of all tenant queues, read from our own Queues and from Volcano's, as a tree.

Invariants:
- For our own queues, the permission to list them is enough. Volcano's are left out where they cannot be listed; what
  their pods use is computed where the cluster can be.
- Of one name, our own queue counts.
- A queue whose parent is missing, or that is its own ancestor, is a root, and a note says so. Each is shown once.
- A status that is missing, not renewed or unreadable gives a note, and hides no queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from typer import TyperException

from aischeduler.cli.pool_numbers import named
from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.tenant_queue import read_queue, read_volcano_queue
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.report.status_writes import STATUS_EXPIRY_SECONDS
from aischeduler.kube.watch.list_pager import pages
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import ResourceList, parse_resource_list
from aischeduler.model.tenant_queue import QueueState, TenantQueue
from aischeduler.model.times import time_text
from aischeduler.model.user_text import nearest, quoted

_STATES: Final = (QueueState.OPEN, QueueState.CLOSED, QueueState.DRAINING)
"""The states, from the weakest on; a queue has the strongest of its own and its ancestors' states."""


NO_STATUSES: Final[Mapping[str, Any]] = {}


class Cards(Struct, frozen=True):
    """The cards of one name; `used` is None where nobody says it, `quota` where they are not limited.

    Parts of cards are rounded up in `used`, and exact in `text`, where that is said.
    """

    card: str
    used: int | None = None
    quota: int | None = None
    text: str = ""


class QueueUse(Struct, frozen=True):
    """What a status says that the pods of a queue use and wait for.

    `texts` has the use of the quota that the scheduler checks, by resource: 3/4.
    """

    used: ResourceList
    pending: ResourceList
    borrowed: ResourceList
    pods: int
    pending_pods: int
    accepted: bool
    over_quota: bool
    texts: Mapping[str, str] = {}


class QueueRow(Struct, frozen=True):
    """One queue, at its `depth` in the tree; `use` is None where no status says it."""

    queue: TenantQueue
    depth: int
    state: QueueState
    cards: tuple[Cards, ...] = ()
    use: QueueUse | None = None


class QueueNumbers(Struct, frozen=True):
    """All queues in the order of the tree, and what is wrong with the numbers.

    `without_status` and `not_renewed` name our own queues, the latter with the last renewal; `problems` are sentences;
    `watch_failure` says why changes are not seen.
    """

    queues: tuple[QueueRow, ...]
    without_status: tuple[str, ...] = ()
    not_renewed: Mapping[str, datetime] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    watch_failure: str = ""

    def notes(self) -> list[str]:
        """Return a sentence for everything that is wrong with the numbers."""
        notes = list(self.problems)
        if not self.queues:
            notes.append("there are no Queues; pods are not limited by one")
        if self.without_status:
            queues = named(self.without_status)
            notes.append(f"no scheduler has written the status of {queues} yet; is ai-scheduler running?")
        if self.not_renewed:
            since = time_text(min(self.not_renewed.values()).timestamp())
            queues = named(tuple(self.not_renewed))
            notes.append(
                f"the numbers may be old: no scheduler has renewed the status of {queues} since {since}; "
                f"is ai-scheduler running?"
            )
        return [*notes, f"the numbers may be old: {self.watch_failure}"] if self.watch_failure else notes

    def below(self, name: str) -> "QueueNumbers":
        """Return this queue and those below it, all for an empty name; raises TyperException for an unknown one."""
        if not name:
            return self
        names = [row.queue.name for row in self.queues]
        if name not in names:
            near = nearest(name, names)
            raise TyperException(f"there is no Queue {quoted(name)}{f'; is it {near}?' if near else ''}")
        at = names.index(name)
        top = self.queues[at].depth
        after = next((i for i, row in enumerate(self.queues) if i > at and row.depth <= top), len(names))
        rows = tuple(replace(row, depth=row.depth - top) for row in self.queues[at:after])
        shown = {row.queue.name for row in rows}
        return replace(
            self,
            queues=rows,
            without_status=tuple(queue for queue in self.without_status if queue in shown),
            not_renewed={queue: time for queue, time in self.not_renewed.items() if queue in shown},
        )


class _Card(Struct):
    name: str
    used: int
    quota: int | None = None


class _Condition(Struct):
    type: str
    status: str


class _Status(Struct, rename="camel"):
    """The numbers of a status."""

    state: QueueState = QueueState.OPEN
    pods: int = 0
    pending_pods: int = 0
    used: dict[str, str | int] = {}
    pending: dict[str, str | int] = {}
    borrowed: dict[str, str | int] = {}
    cards: list[_Card] = []
    conditions: list[_Condition] = []
    columns: dict[str, str] = {}
    renew_time: datetime | None = None


async def read_queue_numbers(client: Client, now: float, config: Path | None = None) -> QueueNumbers:
    """List the queues, and read or compute their statuses at this unix time; raises ApiError and ConfigError."""
    own, volcano = queue_resources()
    ours, others, refusal = await _listed(client, own), list[QueueDocument](), None
    try:
        others = await _listed(client, volcano)
    except RefusedError as error:
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN):
            raise
        refusal = error
    if not others:
        return queue_numbers(ours, (), now, refusal)
    from aischeduler.cli.volcano_use import volcano_statuses  # noqa: PLC0415 - it needs the engine

    statuses, problems = await volcano_statuses(client, config, now)
    numbers = queue_numbers(ours, others, now, refusal, statuses)
    return replace(numbers, problems=(*numbers.problems, *problems))


async def _listed(client: Client, resource: WatchedResource[Any]) -> list[QueueDocument]:
    documents: list[QueueDocument] = []
    async with aclosing(pages(client, resource, resource.page_decoder.decode)) as found:
        async for page in found:
            documents += page.items or ()
    return documents


def queue_numbers(
    ours: Iterable[QueueDocument],
    volcano: Iterable[QueueDocument],
    now: float,
    refusal: RefusedError | None = None,
    statuses: Mapping[str, Any] = NO_STATUSES,
) -> QueueNumbers:
    """Return the numbers of these queues at a unix time; `refusal` says why Volcano's could not be listed.

    Volcano's have the `statuses` that are computed, by name.
    """
    rows: dict[str, QueueRow] = {}
    without_status: list[str] = []
    not_renewed: dict[str, datetime] = {}
    problems: list[str] = []
    for document in volcano:
        queue = read_volcano_queue(document)
        rows[queue.name], _ = _with_status(queue, statuses.get(queue.name))
    for document in sorted(ours, key=lambda document: document.metadata.name):
        queue = read_queue(document)
        if queue.name in rows:
            problems.append(f"there are two queues {queue.name}: the Queue counts, that of Volcano does not")
        try:
            row, renewed_at = _with_status(queue, document.status)
        except (msgspec.ValidationError, QuantityError) as error:
            why = decode_problem(error)
            problems.append(f"the use of the queue {queue.name} is not shown, because its status cannot be read: {why}")
            row, renewed_at = QueueRow(queue, 0, queue.state, _quota_cards(queue)), None
        rows[queue.name] = row
        if not document.status:
            without_status.append(queue.name)
        elif renewed_at is not None and now - renewed_at.timestamp() > STATUS_EXPIRY_SECONDS:
            not_renewed[queue.name] = renewed_at
    if refusal is not None and refusal.status == HTTPStatus.FORBIDDEN:
        problems.append(f"queues of Volcano are not shown, because you may not list them: {refusal.message}")
    invalid = [row.queue for row in rows.values() if row.queue.invalid]
    problems += (f"the queue {queue.name} takes nothing new: {queue.invalid}" for queue in invalid)
    tree = _tree(rows, problems)
    return QueueNumbers(tuple(tree), tuple(without_status), not_renewed, tuple(problems))


def _with_status(queue: TenantQueue, document: Any) -> tuple[QueueRow, datetime | None]:
    """Return a queue with what its status says, and when that was renewed."""
    if not document:
        return QueueRow(queue, 0, queue.state, _quota_cards(queue)), None
    status = msgspec.convert(document, _Status)
    true = {condition.type for condition in status.conditions if condition.status == "True"}
    use = QueueUse(
        used=_amounts("used", status.used),
        pending=_amounts("pending", status.pending),
        borrowed=_amounts("borrowed", status.borrowed),
        pods=status.pods,
        pending_pods=status.pending_pods,
        accepted="Accepted" in true,
        over_quota="OverQuota" in true,
        texts={name: status.columns[name] for name in (CPU, MEMORY) if name in status.columns},
    )
    texts = _exact(status.columns.get("cards", ""))
    cards = tuple(Cards(card.name, card.used, card.quota, texts.get(card.name, "")) for card in status.cards)
    return QueueRow(queue, 0, status.state, cards, use), status.renew_time


def _exact(column: str) -> dict[str, str]:
    """Return what is used of each card that the printer column names, as in `H200 2.5/4,V100 1`."""
    items = (item.rpartition(" ") for item in column.split(","))
    return {name: used.partition("/")[0] for name, _, used in items if name}


def _amounts(kind: str, quantities: Mapping[str, str | int]) -> ResourceList:
    return parse_resource_list(f"status.{kind}", {name: str(quantity) for name, quantity in quantities.items()})


def _quota_cards(queue: TenantQueue) -> tuple[Cards, ...]:
    return tuple(Cards(quota.card, None, quota.cards) for quota in queue.cards)


def _tree(rows: Mapping[str, QueueRow], problems: list[str]) -> Iterator[QueueRow]:
    """Yield the rows, each parent before what is below it; add what is wrong with parents to the problems."""
    below: dict[str, list[str]] = {}
    for name in sorted(rows):
        parent = rows[name].queue.parent
        if parent and parent not in rows:
            near = nearest(parent, rows)
            hint = f"; is it {near}?" if near else ""
            problems.append(f"the parent {quoted(parent)} of the queue {name} does not exist{hint}")
            parent = ""
        elif parent and (cycle := _cycle(rows, name)):
            problems.append(f"the queue {name} is its own ancestor, by way of {named(cycle)}")
            parent = ""
        below.setdefault(parent, []).append(name)
    waiting = [(name, 0, QueueState.OPEN) for name in reversed(below.get("", []))]
    while waiting:
        name, depth, above = waiting.pop()
        row = rows[name]
        state = max(row.state, above, key=_STATES.index)
        yield replace(row, depth=depth, state=state)
        waiting += ((child, depth + 1, state) for child in reversed(below.get(name, [])))


def _cycle(rows: Mapping[str, QueueRow], name: str) -> Sequence[str]:
    """Return the queues on the way from a queue up to itself; nothing where there is no such way."""
    way, at = dict[str, None](), rows[name].queue.parent
    while at in rows and at != name and at not in way:
        way[at] = None
        at = rows[at].queue.parent
    return tuple(way) if at == name else ()
