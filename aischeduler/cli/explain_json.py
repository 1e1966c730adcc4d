"""Explanations as JSON, for programs.

Invariants:
- `version` grows when a field is renamed, removed or changes its meaning; a field may be added without that.
- Every explanation has every field; a list may be empty and a text too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from aischeduler.analysis.explanation import Explanation, Missing, MissingKind, PodUnit, Refusal, Remedy, Start
from aischeduler.analysis.quantities import quantity
from aischeduler.analysis.remedy_steps import steps

VERSION: Final = 1

Json = Mapping[str, Any]


def explanation_json(explanation: Explanation, pod: Json | None) -> str:
    """Return one explanation; without the document of the `pod`, a remedy that lowers a request has no steps."""
    return orjson.dumps({"version": VERSION, **_explanation(explanation, pod)}).decode()


def explanations_json(explanations: Sequence[Explanation], left_out: int) -> str:
    """Return several explanations, and how many more pods there are."""
    items = [_explanation(explanation, None) for explanation in explanations]
    return orjson.dumps({"version": VERSION, "items": items, "leftOut": left_out}).decode()


def _explanation(one: Explanation, pod: Json | None) -> dict[str, Any]:
    return {
        "namespace": one.pod.namespace,
        "pod": one.pod.name,
        "uid": one.pod.uid,
        "pool": one.pool,
        "homePool": one.home,
        "verdict": one.verdict,
        "message": one.message,
        "node": one.node,
        "loan": {"lender": one.loan.lender, "borrower": one.loan.home} if one.loan is not None else None,
        "requests": {name: quantity(name, amount) for name, amount in sorted(one.asks.items())},
        "ahead": one.ahead,
        "aheadPods": list(one.ahead_pods),
        "nodes": {"total": one.total, "fit": one.fitting, "refused": [_refusal(refusal) for refusal in one.refused]},
        "preemption": {"reason": one.preemption, "leaving": list(one.leaving)},
        "borrowing": [{"pool": loan.pool, "refusal": loan.refusal, "reason": loan.reason} for loan in one.borrowing],
        "starts": _start(one.start) if one.start is not None else None,
        "unit": _unit(one.unit) if one.unit is not None else None,
        "ranking": [{"node": node, "score": score} for node, score in one.ranking],
        "remedies": [_remedy(remedy, pod) for remedy in one.remedies],
    }


def _refusal(refusal: Refusal) -> dict[str, Any]:
    nearest = refusal.nearest
    return {
        "rule": refusal.rule,
        "nodes": refusal.nodes,
        "reason": refusal.reason,
        "counts": [{**_missing(missing), "nodes": nodes} for missing, nodes in refusal.counts],
        "nearest": {"node": nearest.node, "missing": [_missing(one) for one in nearest.missing]} if nearest else None,
    }


def _missing(missing: Missing) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": missing.kind, "name": missing.name}
    if missing.kind is MissingKind.RESOURCE:
        found["missing"] = quantity(missing.name, missing.amount)
        found["requested"] = quantity(missing.name, missing.asked)
    if missing.skew is not None:
        skew = missing.skew
        found |= {"matching": skew.matching, "withPod": skew.with_pod, "fewest": skew.fewest}
        found |= {"maxSkew": skew.max_skew, "minDomains": skew.min_domains or None}
    return found


def _unit(unit: PodUnit) -> dict[str, Any]:
    lacks = [{"role": lack.role or None, "exist": lack.exist, "atLeast": lack.at_least} for lack in unit.lacks]
    return {
        "name": unit.name,
        "pods": list(unit.pods),
        "required": unit.required,
        "firstRefused": unit.first_refused or None,
        "fit": unit.fit if unit.first_refused else None,
        "lacks": lacks,
    }


def _start(start: Start) -> dict[str, Any]:
    nodes = dict(start.nodes)
    return {"pool": start.pool, "node": start.node, "nodes": nodes, "evictions": len(start.victims)}


def _remedy(remedy: Remedy, pod: Json | None) -> dict[str, Any]:
    return {
        "kind": remedy.kind,
        "text": remedy.text,
        "starts": _start(remedy.start),
        "steps": steps(remedy, pod or {}),
    }
