"""The status of Pools: numbers summed from the columns, and conditions, reported on change and at most once a second.

While the default Pool has no object, its creation is requested. With the status comes the log of edits: the changed
fields of Pools, and the running pods whose loan changed by an edit.

Invariants:
- Edits are logged at most once a second, and many pods share a line.
- The first call logs nothing: the state that the scheduler finds at its start is no edit.
- No sum is kept from one call to the next, so that no kept number can be wrong.
- Pending requests are summed by name: they may exceed a column, or be of resources without a column.
- Parts of GPUs are summed as shares, and leave the rest of their GPUs free.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import fields

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_classes import unknown_profile
from aischeduler.model.actions import (
    Condition,
    CreatePool,
    LogLoanChange,
    LogPoolEdit,
    ObjectRef,
    ReportPool,
    Warn,
)
from aischeduler.model.card_shares import CARD, charge, gpu_share
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.names import DEFAULT_POOL, GPU_SHARE, PODS
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.pool_summary import CARD_TYPES_MAX, GPU, OTHER_TYPES, CardCount, PoolSummary
from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import LabelSelector
from aischeduler.model.user_text import nearest
from aischeduler.state.node_table import ALWAYS, NO_POOL, NodeTable
from aischeduler.state.running_pods import Slots

Sums = npt.NDArray[np.int64]

OWN, SHARED, SYSTEM = range(3)

CONFLICT_NODES_MAX: Final = 10
"""The most nodes that a Conflict condition names; the others are counted."""
RIVALS_MAX: Final = 8
"""The most other pools that a Conflict condition names; the others are counted."""
LENDERS_MAX: Final = 8
"""The most unknown lenders that an Accepted condition names; the others are counted."""
STATUS_SECONDS: Final = 1.0
CREATE_SECONDS: Final = 30.0
"""The time between two requests to create the default Pool."""

ACCEPTED: Final = "Accepted"
CONFLICT: Final = "Conflict"
NODES_MISSING: Final = "NodesMissing"
SPEC_REFUSED: Final = "The spec is refused; see the condition Accepted."
_WARNED: Final = {(ACCEPTED, False): EventReason.INVALID_SPEC, (CONFLICT, True): EventReason.NODES_CLAIMED_TWICE}
"""The conditions that come with a Warning event."""

NAMED_MAX: Final = 10
"""The most pods of one lender and home pool that are named; if there are more, only their number is logged."""

_SPEC_FIELDS: Final = {
    "selector": "nodeSelector",
    "placement": "placement",
    "disable_preemption": "disablePreemption",
    "disable_borrowing": "disableBorrowing",
    "disable_sharing": "disableSharing",
    "borrowing_pools": "borrowingPools",
    "lending_limit": "lendingLimit",
    "borrowing_limit": "borrowingLimit",
    "make_room": "makeRoom",
    "reclaim_policy": "reclaimPolicy",
    "allowed_namespaces": "allowedNamespaces",
    "rare_types": "rareTypes",
    "lend_rare_types": "lendRareTypes",
    "machine_groups": "machineGroups",
    "profile": "profile",
    "non_preemptible_namespaces": "nonPreemptibleNamespaces",
    "max_load_thousandths": "maxLoad",
}
_NO_SPEC: Final = frozenset(("name", "uid", "generation", "invalid"))
assert {field.name for field in fields(Pool)} == _SPEC_FIELDS.keys() | _NO_SPEC

State = tuple[int, ...]
"""The versions of everything that a status shows."""


class StatusReports:
    """Reports the status of Pools."""

    def __init__(self) -> None:
        self._state: State = ()
        self._looked_at = float("-inf")
        self._told: dict[str, Pool] = {}
        """The Pools as they were when edits were logged last."""
        self._ask_at = float("-inf")
        """When the creation of the default Pool is requested, if it does not exist then."""

    def due_at(self, cluster: Cluster) -> float | None:
        """Return when to call `report`; None when nothing changed."""
        times = [self._looked_at + STATUS_SECONDS] if self._state != _state(cluster) else []
        if not cluster.pools.pools[DEFAULT_POOL].uid:
            times.append(self._ask_at)
        elif self._ask_at > float("-inf"):
            times.append(self._looked_at)  # the request was carried out: note it before the object can be deleted
        return min(times, default=None)

    def report(self, cluster: Cluster, now: float) -> None:
        """Put a report into the outbox of each pool whose status changed."""
        if cluster.pools.pools[DEFAULT_POOL].uid:
            self._ask_at = float("-inf")  # if the object is deleted later, its creation is requested at once
        elif self._ask_at <= now:
            self._ask_at = now + CREATE_SECONDS
            cluster.say(DEFAULT_POOL, CreatePool(DEFAULT_POOL, _switched_on(cluster.profile.default_pool)))
        state = _state(cluster)
        if state == self._state or self._looked_at + STATUS_SECONDS > now:
            return
        self._state, self._looked_at = state, now
        self._told = _tell_edits(cluster, self._told)
        for summary in summarize(cluster):
            pool = cluster.pools.pools[summary.name]
            if pool.uid:
                told = ReportPool(pool.name, pool.uid, pool.generation, _conditions(cluster, pool, summary), summary)
                if cluster.said.reported.get(pool.name) != told:
                    cluster.said.reported[pool.name] = told
                    cluster.say(pool.name, told)
                    _warn(cluster, told)


def _warn(cluster: Cluster, told: ReportPool) -> None:
    """Put a Warning event on a Pool whose spec is refused, or whose nodes another Pool selects too."""
    about = ObjectRef("Pool", told.name, told.uid)
    for condition in told.conditions:
        reason = _WARNED.get((condition.type, condition.status))
        if reason is not None and cluster.warned(f"Pool/{told.uid}/{condition.type}", condition.message):
            cluster.say(told.name, Warn(about, reason, condition.message))


def _state(cluster: Cluster) -> State:
    pools = cluster.pools
    return (
        cluster.start,
        cluster.nodes.version,
        pools.version,
        pools.conflicts_version,
        cluster.running.version,
        cluster.deferred.queue_changes.version,
        len(cluster.unknown_pools.late),
    )


def _conditions(cluster: Cluster, pool: Pool, summary: PoolSummary) -> tuple[Condition, ...]:
    ready = Condition(
        "Ready",
        status=not pool.invalid,
        reason=ConditionReason.NOT_ACCEPTED if pool.invalid else ConditionReason.SCHEDULING,
        message=SPEC_REFUSED if pool.invalid else "The Pool takes part in scheduling.",
    )
    return (ready, _accepted(cluster, pool), _conflict(cluster, pool), _nodes_missing(cluster, pool, summary.nodes))


def _accepted(cluster: Cluster, pool: Pool) -> Condition:
    if pool.invalid:
        return Condition(ACCEPTED, status=False, reason=ConditionReason.INVALID_SPEC, message=pool.invalid)
    if unknown_profile(cluster, pool.profile):
        message = _no_profile(cluster, pool.profile)
        return Condition(ACCEPTED, status=False, reason=ConditionReason.INVALID_SPEC, message=message)
    message = "; ".join(("The spec is in force", *_remarks(cluster, pool)))
    return Condition(ACCEPTED, status=True, reason=ConditionReason.VALID, message=f"{message}.")


def _no_profile(cluster: Cluster, name: str) -> str:
    near = nearest(name, cluster.profile.names)
    return (
        f"spec.profile: the scheduler has no profile {name}{f' (did you mean {near}?)' if near else ''}; "
        "its pods keep the profile of their schedulerName, and the rest of the spec is in force."
    )


def _remarks(cluster: Cluster, pool: Pool) -> Iterator[str]:
    """Name the parts of a valid spec that have no effect, which often are mistakes."""
    if pool.name == DEFAULT_POOL and pool.selector is not None:
        yield f"spec.nodeSelector is ignored: the pool {DEFAULT_POOL} has the nodes that no other Pool selects"
    unknown = [name for name in pool.borrowing_pools or () if name not in cluster.pools.pools]
    if unknown:
        near = {name: nearest(name, cluster.pools.names()) for name in unknown[:LENDERS_MAX]}
        named = [name + (f" (did you mean {meant}?)" if meant else "") for name, meant in near.items()]
        yield f"spec.borrowingPools names Pools that do not exist: {', '.join(named)}{_more(unknown, LENDERS_MAX)}"


def _more(names: Sequence[str], named: int) -> str:
    """Return the number of names after the first ones, in words; empty where there are none."""
    return f" and {len(names) - named} more" if len(names) > named else ""


def _conflict(cluster: Cluster, pool: Pool) -> Condition:
    nodes = cluster.pools.conflicting_nodes(pool.name)
    if not nodes:
        message = "No other Pool selects nodes of this Pool."
        return Condition(CONFLICT, status=False, reason=ConditionReason.NO_CONFLICT, message=message)
    named = ", ".join(nodes[:CONFLICT_NODES_MAX])
    rivals = cluster.pools.rivals(pool.name)
    pools = f"Pool{'s' * (len(rivals) > 1)} {', '.join(rivals[:RIVALS_MAX])}{_more(rivals, RIVALS_MAX)}"
    nodes_named = named + _more(nodes, CONFLICT_NODES_MAX)
    message = (
        f"{pools} also select{'s' * (len(rivals) == 1)} nodes, which belong to the pool {DEFAULT_POOL}: {nodes_named}."
    )
    return Condition(CONFLICT, status=True, reason=ConditionReason.NODES_CLAIMED_TWICE, message=message)


def _nodes_missing(cluster: Cluster, pool: Pool, nodes: int) -> Condition:
    """Return whether the Pool selects nodes and there are none; a Pool that selects no nodes misses none."""
    missing = False
    if pool.invalid:
        reason, message = ConditionReason.NOT_ACCEPTED, SPEC_REFUSED
    elif pool.name == DEFAULT_POOL:
        reason, message = ConditionReason.NO_NODE_SELECTOR, "The Pool has the nodes that no other Pool selects."
    elif pool.selector is None:
        reason, message = ConditionReason.NO_NODE_SELECTOR, "The Pool has no spec.nodeSelector; its pods only borrow."
    elif nodes or _matches_some(cluster, pool.name, pool.selector):
        reason, message = ConditionReason.NODES_MATCHED, "Nodes match spec.nodeSelector."
    else:
        missing, reason = True, ConditionReason.NO_NODE_MATCHED
        message = f"No node matches spec.nodeSelector: {pool.selector}"
    return Condition(NODES_MISSING, status=missing, reason=reason, message=message)


def _matches_some(cluster: Cluster, name: str, selector: LabelSelector) -> bool:
    """Return whether the selector of a Pool without nodes matches a contested node, or a new node that is kept back."""
    contested = any(name in claimants for claimants in cluster.pools.conflicts.values())
    return contested or any(selector.matches(late.node.labels) for late in cluster.unknown_pools.late.values())


def _switched_on(pool: Pool) -> tuple[str, ...]:
    """Return the names of the spec's fields that are true."""
    return tuple(name for field, name in _SPEC_FIELDS.items() if getattr(pool, field) is True)


def _tell_edits(cluster: Cluster, told: Mapping[str, Pool]) -> dict[str, Pool]:
    """Log what was edited since the Pools were as `told`, and return them as they are now.

    A Pool that was created since is no edit.
    """
    pools = cluster.pools.pools
    for name in cluster.pools.names():
        before, after = told.get(name), pools[name]
        if before is not None and before is not after and before.uid == after.uid:
            changes = _changes(before, after)
            if changes:
                cluster.say(name, LogPoolEdit(name, changes))
    if told:
        _tell_turned(cluster)
    cluster.edits.turned.clear()
    return dict(pools)


def _tell_turned(cluster: Cluster) -> None:
    """Log the running pods whose loan changed since the last call."""
    groups: dict[tuple[str, str], list[Pod]] = {}
    for uid, before in cluster.edits.turned.items():
        record = cluster.records.get(uid)
        if record is not None and record.counted is not None and record.loan != before:
            lender, home = record.loan or (record.home, record.home)
            groups.setdefault((lender, home), []).append(record.pod)
    for (pool, home), pods in sorted(groups.items(), key=lambda group: group[0]):
        named = tuple(sorted(pods, key=lambda pod: pod.uid)) if len(pods) <= NAMED_MAX else ()
        cluster.say(DEFAULT_POOL, LogLoanChange(pool, home, named, len(pods)))


def _changes(before: Pool, after: Pool) -> tuple[str, ...]:
    """Return the changed fields of the spec, with old and new value where these are one word."""
    if before.invalid != after.invalid and (before.invalid or after.invalid):
        return (f"refused: {after.invalid}",) if after.invalid else ("accepted again",)
    pairs = ((name, getattr(before, field), getattr(after, field)) for field, name in _SPEC_FIELDS.items())
    return tuple(_change(name, old, new) for name, old, new in pairs if old != new)


def _change(name: str, old: object, new: object) -> str:
    match old, new:
        case bool(), bool():
            return f"{name}: {str(old).lower()} -> {str(new).lower()}"
        case ((str() | None), (str() | None)):
            return f"{name}: {old or 'unset'} -> {new or 'unset'}"
        case _:
            return f"{name} changed"


def summarize(cluster: Cluster) -> tuple[PoolSummary, ...]:
    """Return one summary per pool, sorted by name."""
    nodes = cluster.nodes
    grouped = nodes.by_pool()
    capacity, allocatable = grouped.sums(nodes.capacity), grouped.sums(nodes.allocatable)
    by_owner, borrowed = _running(cluster)
    cards = _cards(cluster)
    empty = np.zeros(len(nodes.used) + 1, dtype=np.int64)
    summaries: list[PoolSummary] = []
    for name in cluster.pools.names():
        number = cluster.pools.id(name)
        place = grouped.places.get(number)
        own, shared, system = by_owner[number]
        used = own + shared + system
        has = np.append(allocatable[:, place], 0) if place is not None else empty
        columns = {
            "capacity": np.append(capacity[:, place], 0) if place is not None else empty,
            "allocatable": has,
            "used": used,
            "own": own,
            "shared": shared,
            "system": system,
            "borrowed": borrowed[number],
            "free": _at_least_none(nodes, has - used - _claimed(cluster, name)),
        }
        pool = cluster.pools.pools[name]
        sums = {kind: _named(nodes, column) for kind, column in columns.items()} | {"pending": _pending(cluster, name)}
        named = {kind: _shown(cluster, amounts) for kind, amounts in sums.items()}
        summaries.append(
            PoolSummary(
                name=name,
                nodes=len(nodes.rows_of_pool(number)),
                pods=named["used"][PODS],
                pending_pods=named["pending"][PODS],
                preemption=cluster.borrowing.may_evict(pool) and not pool.invalid,
                borrowing=not (pool.disable_borrowing or pool.invalid),
                sharing=not (pool.disable_sharing or pool.invalid),
                cards=_most(cards.get(number, {})),
                **named,
            )
        )
    return tuple(summaries)


def _running(cluster: Cluster) -> tuple[Sums, Sums]:
    """Return the requests of pods on nodes: [pool, own|shared|system, column], and of loans [home pool, column].

    The last column is that of shares of GPUs.
    """
    nodes, table = cluster.nodes, cluster.running.table
    slots = np.flatnonzero(table["row"] >= 0)
    pool = nodes.pool[table["row"][slots]].astype(np.int64)
    slots, pool = slots[pool != NO_POOL], pool[pool != NO_POOL]
    home = table["home"][slots]
    pools = 1 + max(cluster.pools.id(name) for name in cluster.pools.names())
    owner = np.where(~table["ours"][slots], SYSTEM, np.where(home == pool, OWN, SHARED))
    by_owner = _sums(cluster, pool * 3 + owner, slots, pools * 3)
    lent = owner == SHARED
    return by_owner.reshape(pools, 3, -1), _sums(cluster, home[lent], slots[lent], pools)


def _cards(cluster: Cluster) -> dict[int, dict[str, CardCount]]:
    """Return the GPUs by pool and card type; nodes without a type, and types without GPUs, do not count."""
    nodes, specs, table = cluster.nodes, cluster.running.specs, cluster.running.table
    kinds, numbers = nodes.cards.kinds(nodes)
    if len(kinds) == 1 and not kinds[0].label:
        return {}
    gpus = cluster.profile.gpu_resources
    total = nodes.allocatable[[nodes.columns[name] for name in gpus if name in nodes.columns]].sum(axis=0)
    used = np.zeros(nodes.width, dtype=np.int64)
    slots = np.flatnonzero(table["row"] >= 0)
    asked = specs.amounts[:, [i for i, name in enumerate(specs.resources) if name in gpus]].sum(axis=1) * CARD
    np.add.at(used, table["row"][slots], asked[table["spec"][slots]] + cluster.running.gpu_shares[slots])
    found: dict[int, dict[str, CardCount]] = {}
    groups, places = np.unique(np.stack((nodes.pool.astype(np.intp), numbers)), axis=1, return_inverse=True)
    sums = np.zeros((groups.shape[1], 2), dtype=np.int64)
    np.add.at(sums, places.reshape(-1), np.stack((total, used), axis=1))
    for (pool, kind), (has, uses) in zip(groups.T.tolist(), sums.tolist(), strict=True):
        label = kinds[kind].label
        if pool != NO_POOL and label and (has or uses):
            before = found.setdefault(pool, {}).get(label, CardCount(label, 0, 0))
            found[pool][label] = CardCount(label, before.total + has, before.used_hundredths + uses)
    return found


def _most(cards: Mapping[str, CardCount]) -> tuple[CardCount, ...]:
    """Return the types with the most GPUs; the others as one entry."""
    ordered = sorted(cards.values(), key=lambda count: (-count.total, count.type))
    if len(ordered) <= CARD_TYPES_MAX:
        return tuple(ordered)
    rest = ordered[CARD_TYPES_MAX - 1 :]
    used = sum(count.used_hundredths for count in rest)
    other = CardCount(OTHER_TYPES, sum(count.total for count in rest), used)
    return (*ordered[: CARD_TYPES_MAX - 1], other)


def _sums(cluster: Cluster, groups: Sums, slots: Slots, count: int) -> Sums:
    """Return the sums of the requests of the pods in these slots: [group, column], the last column of shares."""
    nodes, specs = cluster.nodes, cluster.running.specs
    columns = [nodes.column(resource) for resource in specs.resources]
    sums = np.zeros((count, len(nodes.used) + 1), dtype=np.int64)
    np.add.at(sums[:, -1], groups, cluster.running.gpu_shares[slots])
    # Pods of one group and spec are counted first: there are far fewer specs than pods.
    size = len(specs.amounts)
    keys, pods = np.unique(groups * size + cluster.running.table["spec"][slots], return_counts=True)
    amounts = specs.amounts[keys % size] * pods[:, None]
    for i, column in enumerate(columns):
        np.add.at(sums[:, column], keys // size, amounts[:, i])
    return sums


def _claimed(cluster: Cluster, pool: str) -> Sums:
    """Return what is claimed in the pool beyond the room of leaving pods, which counts as used."""
    nodes, running = cluster.nodes, cluster.running
    nothing = np.zeros(len(nodes.used) + 1, dtype=np.int64)
    by_row: dict[int, Sums] = {}
    for claim in cluster.claims.in_pool(pool):
        for room in claim.rooms:
            claimed = by_row.setdefault(room.row, nothing.copy())
            claimed[:-1] += nodes.request(room.spec)
            claimed[-1] += gpu_share(room.spec, room.allocation)
    columns = [nodes.column(resource) for resource in running.specs.resources]
    for row, claimed in by_row.items():
        slots = running.slots_on(np.array([row], dtype=np.intp))
        leaving = slots[running.table["leaving"][slots]]
        claimed[columns] -= running.specs.amounts[running.table["spec"][leaving]].sum(axis=0)
        claimed[-1] -= running.gpu_shares[leaving].sum()
    return sum((_at_least_none(nodes, claimed) for claimed in by_row.values()), nothing)


def _at_least_none(nodes: NodeTable, amounts: Sums) -> Sums:
    """Return amounts by column without those below 0; whole GPUs and shares, the last column, are one amount."""
    left, column = np.maximum(amounts, 0), nodes.columns.get(NVIDIA_GPU)
    if column is not None and amounts[-1]:
        left[column], left[-1] = divmod(max(int(amounts[column]) * CARD + int(amounts[-1]), 0), CARD)
    return left


def _named(nodes: NodeTable, amounts: Sums) -> ResourceList:
    """Return amounts by column as amounts by name."""
    return {**nodes.named(amounts[:-1]), GPU_SHARE: int(amounts[-1])}


def _pending(cluster: Cluster, pool: str) -> ResourceList:
    total: Counter[str] = Counter()
    for spec, count in cluster.queues[pool].pending():
        for resource, amount in charge(spec).items():
            total[resource] += count * amount
    return total


def _shown(cluster: Cluster, sums: ResourceList) -> ResourceList:
    """Return the sums by resource name: the resources of every status first, then the others by name."""
    always = {resource: sums.get(resource, 0) for resource in ALWAYS}
    gpus = sum(sums.get(resource, 0) for resource in cluster.profile.gpu_resources)
    rest = {resource: amount for resource, amount in sorted(sums.items()) if resource not in ALWAYS and amount}
    return {**always, GPU: gpus, **rest}
