"""The log of edits: the changed fields of a Pool, and the running pods whose loan changed by an edit.

Invariants:
- It is written with the status of Pools, so at most once a second, and many pods share a line.
- The first call logs nothing: the state that the scheduler finds at its start is no edit.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.model.actions import LogLoanChange, LogPoolEdit
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool

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
}
_NO_SPEC: Final = frozenset(("name", "uid", "generation", "invalid"))
assert {field.name for field in fields(Pool)} == _SPEC_FIELDS.keys() | _NO_SPEC


def switched_on(pool: Pool) -> tuple[str, ...]:
    """Return the names of the spec's fields that are true."""
    return tuple(name for field, name in _SPEC_FIELDS.items() if getattr(pool, field) is True)


def tell_edits(cluster: Cluster, told: Mapping[str, Pool]) -> dict[str, Pool]:
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
    cluster.turned.clear()
    return dict(pools)


def _tell_turned(cluster: Cluster) -> None:
    """Log the running pods whose loan changed since the last call."""
    groups: dict[tuple[str, str], list[Pod]] = {}
    for uid, before in cluster.turned.items():
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
