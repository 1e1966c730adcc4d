"""The pools as JSON, for programs.

Invariants:
- Every amount is an integer with its unit in the field's name, and every pool has every field.
- A field may be added; no field is renamed or changes its unit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from aischeduler.kube.pool_writes import AMOUNTS
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, PoolSummary

FIELDS: Final = {
    CPU: "cpuMilli",
    MEMORY: "memoryBytes",
    EPHEMERAL_STORAGE: "ephemeralStorageBytes",
    PODS: "pods",
    GPU: "gpus",
}
"""The fields of the resources that every pool has; `others` has the other resources by name."""


def pools_json(pools: Sequence[PoolSummary]) -> str:
    """Return a list of one object a pool on one line."""
    return orjson.dumps([_pool(pool) for pool in pools]).decode()


def _pool(pool: PoolSummary) -> dict[str, Any]:
    return {
        "name": pool.name,
        "nodes": pool.nodes,
        "pods": pool.pods,
        "pendingPods": pool.pending_pods,
        "preemption": pool.preemption,
        "borrowing": pool.borrowing,
        "sharing": pool.sharing,
        **{name: _amounts(getattr(pool, name)) for name in AMOUNTS},
        "cardsByType": [{"type": one.type, "total": one.total, "used": one.used} for one in pool.cards],
    }


def _amounts(amounts: Mapping[str, int]) -> dict[str, Any]:
    others = {name: amount for name, amount in sorted(amounts.items()) if name not in FIELDS}
    return {**{field: amounts.get(name, 0) for name, field in FIELDS.items()}, "others": others}
