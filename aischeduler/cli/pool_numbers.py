"""The numbers of all pools, read from the statuses of the Pools.

Invariants:
- Only Pools are read, so the permission to list Pools is enough.
- A status that is missing, not renewed or unreadable gives a note, and does not hide the other pools.
- A cluster that does not serve Pools is an error, not a cluster without pools.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.pool import read_pool
from aischeduler.kube.http.client import Client
from aischeduler.kube.report.pool_writes import AMOUNTS
from aischeduler.kube.report.status_writes import STATUS_EXPIRY_SECONDS
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.list_pager import pages
from aischeduler.model.card_shares import CARD
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_SHARE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary
from aischeduler.model.quantity import NANO, QuantityError, parse_nano
from aischeduler.model.resources import parse_resource_list
from aischeduler.model.times import time_text

NAMES_MAX: Final = 5
"""Pools or queues that a note names; it counts the others."""
_NOTHING: Final = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, PODS, GPU), 0)


class PoolNumbers(Struct, frozen=True):
    """All pools in numbers, sorted by name, and what is wrong with the numbers.

    `without_status` and `not_renewed` name pools, the latter with the last renewal; `unreadable` has a sentence for
    each pool that is not shown; `watch_failure` says why changes are not seen.
    """

    pools: tuple[PoolSummary, ...]
    without_status: tuple[str, ...] = ()
    not_renewed: Mapping[str, datetime] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    watch_failure: str = ""

    def notes(self) -> list[str]:
        """Return a sentence for everything that is wrong with the numbers."""
        notes = list(self.unreadable)
        if not self.pools:
            notes.append("there are no Pools; ai-scheduler creates the pool default when it starts")
        if self.without_status:
            pools = named(self.without_status)
            notes.append(f"no scheduler has written the status of {pools} yet; is ai-scheduler running?")
        if self.not_renewed:
            since = time_text(min(self.not_renewed.values()).timestamp())
            notes.append(
                f"the numbers may be old: no scheduler has renewed the status of "
                f"{named(tuple(self.not_renewed))} since {since}; is ai-scheduler running?"
            )
        return [*notes, f"the numbers may be old: {self.watch_failure}"] if self.watch_failure else notes


class _Cards(Struct):
    """The GPUs of one card type."""

    type: str
    total: int = 0
    used: int = 0


class _Status(Struct, rename="camel"):
    """The numbers of a status."""

    nodes: int = 0
    pods: int = 0
    pending_pods: int = 0
    preemption: bool = False
    borrowing: bool = False
    sharing: bool = False
    renew_time: datetime | None = None
    gpus: dict[str, int] = {}
    cards_by_type: list[_Cards] | None = None


async def read_pool_numbers(client: Client, now: float) -> PoolNumbers:
    """List the Pools and read their statuses at this unix time; raises ApiError."""
    resource = watched_resources.pools()
    documents: list[PoolDocument] = []
    async with aclosing(pages(client, resource, resource.page_decoder.decode)) as found:
        async for page in found:
            documents += page.items or ()
    return pool_numbers(documents, now)


def pool_numbers(documents: Iterable[PoolDocument], now: float) -> PoolNumbers:
    """Return the numbers of these Pools at a unix time."""
    pools: list[PoolSummary] = []
    without_status: list[str] = []
    not_renewed: dict[str, datetime] = {}
    unreadable: list[str] = []
    for document in sorted(documents, key=lambda document: document.metadata.name):
        name = document.metadata.name
        try:
            status = msgspec.convert(document.status or {}, _Status)
            pools.append(_summary(document, status))
        except (msgspec.ValidationError, QuantityError) as error:
            unreadable.append(
                f"the pool {name} is not shown, because its status cannot be read: {decode_problem(error)}"
            )
            continue
        if not document.status:
            without_status.append(name)
        elif status.renew_time is not None and now - status.renew_time.timestamp() > STATUS_EXPIRY_SECONDS:
            not_renewed[name] = status.renew_time
    return PoolNumbers(tuple(pools), tuple(without_status), not_renewed, tuple(unreadable))


def _summary(document: PoolDocument, status: _Status) -> PoolSummary:
    """Return the numbers of a status; without one they are zero, and the switches are those of the spec."""
    amounts = {name: _amounts(name, document.status or {}, status.gpus) for name in AMOUNTS}
    pool = read_pool(document)
    in_force = (status.preemption, status.borrowing, status.sharing)
    if not document.status and not pool.invalid:
        in_force = (not pool.disable_preemption, not pool.disable_borrowing, not pool.disable_sharing)
    preemption, borrowing, sharing = in_force
    return PoolSummary(
        name=pool.name,
        nodes=status.nodes,
        pods=status.pods,
        pending_pods=status.pending_pods,
        preemption=preemption,
        borrowing=borrowing,
        sharing=sharing,
        cards=tuple(CardCount(card.type, card.total, card.used * CARD) for card in status.cards_by_type or ()),
        **amounts,
    )


def _amounts(kind: str, status: Mapping[str, Any], gpus: Mapping[str, int]) -> dict[str, int]:
    quantities = msgspec.convert(status.get(kind) or {}, dict[str, str | int])
    texts = {name: str(quantity) for name, quantity in quantities.items()}
    amounts = {**_NOTHING, **parse_resource_list(f"status.{kind}", texts), GPU: gpus.get(kind, 0)}
    share = parse_nano(texts.get(NVIDIA_GPU, "0")) % NANO * CARD // NANO
    if share:  # whole GPUs are rounded up with it
        amounts |= {NVIDIA_GPU: amounts[NVIDIA_GPU] - 1, GPU: amounts[GPU] - 1, GPU_SHARE: share}
    return amounts


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - NAMES_MAX
    return f"{', '.join(names[:NAMES_MAX])}{f' and {more} more' if more > 0 else ''}"
