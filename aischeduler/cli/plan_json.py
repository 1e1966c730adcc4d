"""A plan as JSON, for programs.

Invariants:
- `version` grows when a field is renamed or removed or changes its meaning; a field may be added without that.
- Every unit has every field. One variant is the object itself; several are the list `variants`.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from aischeduler.analysis.explanation import full_name
from aischeduler.analysis.plan import Plan, UnitPlan
from aischeduler.cli.plan_documents import Variant
from aischeduler.model.actions import Bind, Evict

VERSION: Final = 1


def plan_json(plans: Sequence[tuple[Variant, Plan]], taken_seconds: int, gaps: Sequence[str]) -> str:
    """Return the plans of a snapshot as one line; `gaps` are the sentences about what could not be read."""
    head = {"version": VERSION, "takenSeconds": taken_seconds, "gaps": list(gaps)}
    if len(plans) == 1:
        return orjson.dumps({**head, **_plan(*plans[0])}).decode()
    return orjson.dumps({**head, "variants": [_plan(variant, plan) for variant, plan in plans]}).decode()


def _plan(variant: Variant, plan: Plan) -> dict[str, Any]:
    return {
        "replicas": variant.replicas,
        "pool": variant.pool,
        "units": [_unit(one) for one in plan.units],
        "alsoStarts": [_start(one) for one in plan.other_starts],
        "alsoEvicts": [_eviction(one) for one in plan.other_evictions],
        "loanChanges": [
            {
                "pool": one.pool,
                "homePool": one.home_pool,
                "count": one.count,
                "pods": [full_name(pod) for pod in one.pods],
            }
            for one in plan.loan_changes
        ],
        "poolNodes": {name: {"before": before, "after": after} for name, (before, after) in plan.pool_nodes.items()},
        "notes": list(plan.notes),
        "atRest": plan.at_rest,
    }


def _unit(one: UnitPlan) -> dict[str, Any]:
    return {
        "name": one.unit.name,
        "kind": one.unit.kind,
        "namespace": one.unit.namespace,
        "pods": len(one.unit.pods),
        "verdict": one.verdict,
        "nodes": dict(one.nodes),
        "evicts": list(one.evicts),
        "lender": next(iter(sorted(one.lenders.values())), None),
        "lenders": dict(one.lenders),
        "waitsFor": one.waits_for or None,
        "waits": dict(one.waits),
        "notes": list(one.notes),
    }


def _start(one: Bind) -> dict[str, Any]:
    lender = one.pool if one.borrowed else None
    return {"pod": full_name(one.pod), "node": one.node, "pool": one.pool, "lender": lender}


def _eviction(one: Evict) -> dict[str, Any]:
    beneficiary = full_name(one.beneficiary) if one.beneficiary is not None else None
    return {"pod": full_name(one.victim), "node": one.node, "cause": one.cause, "beneficiary": beneficiary}
