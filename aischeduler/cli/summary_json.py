"""The pools as JSON, for programs: the field names are a promise, and say their units.

Laws:
- Every amount is an integer, and every pool has every field.
- A field may be added; none is renamed or changes its unit.
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
"""The resources that every pool has; the others stand under `others` by their own names."""


def summaries_json(pools: Sequence[PoolSummary]) -> str:
    """Return a list with one object a pool, in their order, on one line."""
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
    }


def _amounts(amounts: Mapping[str, int]) -> dict[str, Any]:
    others = {name: amount for name, amount in sorted(amounts.items()) if name not in FIELDS}
    return {**{field: amounts.get(name, 0) for name, field in FIELDS.items()}, "others": others}
