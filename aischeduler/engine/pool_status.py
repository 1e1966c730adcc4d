"""The status of Pools: their numbers and conditions, reported when they change and at most once a second.

While the default Pool has no object, its creation is requested. With the status comes the log of edits: the changed
fields of Pools, and the running pods whose loan changed by an edit.

Invariants:
- Edits are logged at most once a second, and many pods share a line.
- The first call logs nothing: the state that the scheduler finds at its start is no edit.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import fields

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_classes import unknown_profile
from aischeduler.engine.summary import summarize
from aischeduler.model.actions import (
    Condition,
    CreatePool,
    LogLoanChange,
    LogPoolEdit,
    ObjectRef,
    ReportPool,
    Warn,
)
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.model.selectors import LabelSelector
from aischeduler.model.user_text import nearest

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
