"""Explanations as text for people, on one screen, and as JSON for programs.

Invariants:
- At 80 columns every line of text fits, and nothing is cut: long texts are folded.
- A section of text without content is left out. In JSON every explanation has every field; a list may be empty and a
  text too.
- `version` grows when a field is renamed, removed or changes its meaning; a field may be added without that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from aischeduler.analysis.explanation import (
    AddNode,
    EndPods,
    Explanation,
    KeptPods,
    LowerRequest,
    Missing,
    MissingKind,
    PodUnit,
    QuotaLevel,
    QuotaUse,
    Refusal,
    Remedy,
    Start,
    Verdict,
)
from aischeduler.analysis.lenders import missing_text, thing
from aischeduler.analysis.remedy_steps import steps
from aischeduler.cli.output import plain_table
from aischeduler.model.names import PODS
from aischeduler.model.quantity import quantity_text, readable
from aischeduler.model.times import time_text
from aischeduler.observability.logging import printable

VERSION: Final = 1
COUNTS_NAMED_MAX: Final = 3
LEVELS_MAX: Final = 12
"""The most levels of quotas that are listed; JSON has all."""
LENDERS_MAX: Final = 6
"""The most lenders that are listed; the others are counted."""

Json = Mapping[str, Any]


def explanation_text(explanation: Explanation, owner: str) -> Iterator[RenderableType]:
    """Yield the parts of the page; `owner` is the object that makes such pods, empty where none does."""
    yield Text(printable(_headline(explanation)), style="bold")
    yield Text(f"It requests {_requests(explanation)}.{_ahead(explanation)}")
    if explanation.unit is not None:
        yield Text(printable(_unit(explanation, explanation.unit)))
    if explanation.message and (explanation.verdict in (Verdict.HELD, Verdict.GATED) or not explanation.refused):
        yield Text(printable(f"{explanation.message} {explanation.hint}".rstrip()))
    if explanation.start is not None:
        yield Text(f"It fits now: it starts {_where(explanation.start, '')}. The scheduler has not bound it yet.")
    if explanation.quota is not None and explanation.quota.refusing:
        yield Text()
        yield _quota(explanation.quota)
        yield from _holders(explanation.quota)
    if explanation.refused:
        yield Text()
        yield _funnel(explanation)
    if explanation.ranking:
        yield Text()
        yield _ranking(explanation)
    if explanation.preemption:
        yield Text()
        yield Text(printable(f"Preemption: {explanation.preemption}{_leaving(explanation)}"))
    if explanation.kept:
        yield Text()
        yield _kept(explanation.kept)
    if explanation.borrowing:
        yield Text()
        yield _lenders(explanation)
    if explanation.remedies:
        yield Text()
        yield _remedies(explanation)
        yield from _notes(explanation, owner)


def summary_table(explanations: Sequence[Explanation]) -> Table:
    """Return one line per pod: where it waits, the nearest miss and the cheapest remedy."""
    table = plain_table("Pod", "Verdict", "Ahead", "Nearest node", "Starts with")
    for explanation in explanations:
        near = [missing_text(refusal.nearest) for refusal in explanation.refused if refusal.nearest is not None]
        remedy = explanation.remedies[0].text if explanation.remedies else ""
        starts = _where(explanation.start, "") if explanation.start is not None else remedy
        near_text = explanation.node if explanation.verdict is Verdict.BOUND else (near[-1] if near else "")
        more = (
            f" and {len(explanation.unit.pods) - 1} more"
            if explanation.unit is not None and explanation.unit.required
            else ""
        )
        cells = (
            f"{explanation.pod.namespace}/{explanation.pod.name}{more}",
            str(explanation.verdict),
            str(explanation.ahead),
            near_text,
            starts,
        )
        table.add_row(*map(printable, cells))
    return table


def _headline(explanation: Explanation) -> str:
    name, pool = f"{explanation.pod.namespace}/{explanation.pod.name}", f"the pool {explanation.pool}"
    match explanation.verdict:
        case Verdict.BOUND:
            loan = f", on loan to the pool {explanation.loan.home}" if explanation.loan is not None else ""
            where = f" of {pool}" if explanation.pool else ", which does not exist"
            return f"{name} is on the node {explanation.node}{where}{loan}."
        case Verdict.NOMINATED:
            nominated = f"; it is nominated to the node {explanation.node}" if explanation.node else ""
            return f"{name} waits in {pool}{nominated}."
        case Verdict.HELD:
            return f"{name} waits in {pool}; it is held."
        case Verdict.GATED:
            gated = "its scheduling gates hold it" if explanation.unit is None else "it is gated"
            return f"{name} waits in {pool}; {gated}."
        case _:
            return f"{name} waits in {pool}."


def _unit(explanation: Explanation, unit: PodUnit) -> str:
    """Return which pods start together and how many must; of other pods of a unit, which these are."""
    name, count = f"{explanation.pod.namespace}/{explanation.pod.name}", len(unit.pods)
    others = _some([pod for pod in unit.pods if pod != name])
    if not unit.required:
        return f"Its unit is {unit.name}{f', with {others}' if others else ''}."
    must = f"{unit.required} of the {count}" if unit.required < count else "both" if count == 2 else f"all {count}"
    first = f" The first that does not fit is {unit.first_refused}, for which the nodes are shown."
    return f"It starts together with {others}: {must} must fit.{first if unit.first_refused else ''}"


def _requests(explanation: Explanation) -> str:
    asked = [f"{readable(name, amount)} {name}" for name, amount in sorted(explanation.asks.items()) if name != PODS]
    return ", ".join(asked) or "nothing"


def _ahead(explanation: Explanation) -> str:
    if explanation.verdict is Verdict.BOUND or explanation.node or explanation.start is not None:
        return ""
    if not explanation.ahead:
        return " No pod is ahead of it in the queue."
    more = (
        f" and {explanation.ahead - len(explanation.ahead_pods)} more"
        if explanation.ahead > len(explanation.ahead_pods)
        else ""
    )
    verb = "pod is" if explanation.ahead == 1 else "pods are"
    return f" {explanation.ahead} {verb} ahead of it in the queue: {', '.join(explanation.ahead_pods)}{more}."


def _where(start: Start, added: str) -> str:
    nodes = _some([node or added for node in start.all_nodes])
    if not start.victims:
        return f"at once on {nodes} ({start.pool})"
    count = len(start.victims)
    return f"on {nodes} ({start.pool}) after {count} eviction{'s' * (count > 1)}"


def _funnel(explanation: Explanation) -> Table:
    refused = sum(refusal.nodes for refusal in explanation.refused)
    pool = (
        explanation.pool if explanation.verdict is Verdict.BOUND or explanation.start is not None else explanation.home
    )
    title = f"{explanation.total} node{'s' * (explanation.total != 1)} of the pool {pool}"
    table = plain_table(f"{title}: {explanation.total - refused} fit", "Nodes", "Nearest, and what is missing")
    for refusal in explanation.refused:
        table.add_row(Text(refusal.rule), str(refusal.nodes), Text(printable(_misses(refusal))))
    table.columns[1].justify = "right"
    return table


def _quota(quota: QuotaUse) -> Table:
    """Return the levels of the dimensions that some level refuses."""
    table = plain_table(f"Quotas of the queue {printable(quota.queue)}", "Of", "Used", "Asked", "Quota", "")
    for level in [level for level in quota.levels if level.concerned][:LEVELS_MAX]:
        amounts = (level.used, level.asked, level.quota)
        cells = ("-" if amount is None else readable(level.unit, amount) for amount in amounts)
        named = (Text(printable(level.queue)), Text(printable(level.name)))
        table.add_row(*named, *cells, "refuses" if level.refuses else "")
    for column in table.columns[2:5]:
        column.justify = "right"
    return table


def _holders(quota: QuotaUse) -> Iterator[RenderableType]:
    """Yield who holds the most of what each level that refuses lacks."""
    for level in quota.refusing[:LEVELS_MAX]:
        held = [f"{name} ({readable(level.unit, amount)})" for name, amount in level.holders]
        if held:
            yield Text(printable(f"Most {level.name} of the queue {level.queue} is held by {', '.join(held)}."))
    if quota.replaces:
        text = "Pods of an older version of its Deployment hold some of it, until they are gone: a rolling update"
        yield Text(f"{text} in a full queue needs maxUnavailable above 0, or more quota.")


def _misses(refusal: Refusal) -> str:
    near = missing_text(refusal.nearest) if refusal.nearest is not None else refusal.reason
    counts = [f"{thing(missing)} on {nodes}" for missing, nodes in refusal.counts[:COUNTS_NAMED_MAX]]
    if not refusal.counts and ", " in refusal.reason:
        return f"{near}; in all {refusal.reason}"
    return f"{near}; missing: {', '.join(counts)}" if len(refusal.counts) > 1 else near


def _ranking(explanation: Explanation) -> Table:
    table = plain_table(
        f"{explanation.fitting} node{' fits' if explanation.fitting == 1 else 's fit'} without it now", "Score"
    )
    for node, score in explanation.ranking:
        table.add_row(Text(node, style="bold" if node == explanation.node else ""), str(score))
    table.columns[1].justify = "right"
    return table


def _leaving(explanation: Explanation) -> str:
    return f" ({_some(explanation.leaving)})" if explanation.leaving else ""


def _some(names: Sequence[str]) -> str:
    more = len(names) - COUNTS_NAMED_MAX
    return f"{', '.join(names[:COUNTS_NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"


def _kept(kept: Sequence[KeptPods]) -> Table:
    table = plain_table("Not evicted", "Because")
    for found in kept:
        table.add_row(Text(printable(_some(found.pods))), Text(printable(found.text)))
    return table


def _lenders(explanation: Explanation) -> Table:
    table = plain_table("Borrowing from", "No loan, because")
    for loan in explanation.borrowing[:LENDERS_MAX]:
        name = "any pool" if loan.pool == explanation.home else loan.pool
        table.add_row(Text(printable(name)), Text(printable(loan.reason)))
    more = len(explanation.borrowing) - LENDERS_MAX
    if more > 0:
        table.add_row(Text(f"{more} more"), Text("-o json lists them"))
    return table


def _remedies(explanation: Explanation) -> Table:
    table = plain_table("What starts it, one of", "Starts")
    for remedy in explanation.remedies:
        added = "the new node" if isinstance(remedy.edit, AddNode) else ""
        table.add_row(Text(printable(remedy.text)), Text(printable(_where(remedy.start, added))))
    return table


def _notes(explanation: Explanation, owner: str) -> Iterator[RenderableType]:
    if owner and any(isinstance(remedy.edit, LowerRequest) for remedy in explanation.remedies):
        yield Text(printable(f"{owner} makes this pod: lower the request in its template too."))
    ended = [pod for remedy in explanation.remedies if isinstance(remedy.edit, EndPods) for pod in remedy.edit.pods]
    makers = {pod.owner.replace("/", f" {pod.namespace}/", 1) for pod in ended if pod.owner}
    if makers:
        yield Text(printable(f"Pods that end are made again, unless you shrink {_some(sorted(makers))}."))
    if explanation.ahead:
        yield Text("The pods ahead are tried first, and may take the room.")
    yield Text("-o json has the steps of each.")


def explanation_json(explanation: Explanation, pod: Json | None) -> str:
    """Return one explanation; without the document of the `pod`, a remedy that lowers a request has no steps."""
    return orjson.dumps({"version": VERSION, **_explanation_json(explanation, pod)}).decode()


def explanations_json(explanations: Sequence[Explanation], left_out: int, job: Json | None) -> str:
    """Return several explanations, and how many more pods there are; `job` is the elastic job of which they are."""
    items = [_explanation_json(explanation, None) for explanation in explanations]
    return orjson.dumps({"version": VERSION, "items": items, "leftOut": left_out, "job": job}).decode()


def _explanation_json(explanation: Explanation, pod: Json | None) -> dict[str, Any]:
    return {
        "namespace": explanation.pod.namespace,
        "pod": explanation.pod.name,
        "uid": explanation.pod.uid,
        "pool": explanation.pool,
        "homePool": explanation.home,
        "verdict": explanation.verdict,
        "message": explanation.message,
        "hint": explanation.hint,
        "node": explanation.node,
        "loan": {"lender": explanation.loan.lender, "borrower": explanation.loan.home}
        if explanation.loan is not None
        else None,
        "requests": {name: quantity_text(name, amount) for name, amount in sorted(explanation.asks.items())},
        "ahead": explanation.ahead,
        "aheadPods": list(explanation.ahead_pods),
        "nodes": {
            "total": explanation.total,
            "fit": explanation.fitting,
            "refused": [_refusal_json(refusal) for refusal in explanation.refused],
        },
        "preemption": {"reason": explanation.preemption, "leaving": list(explanation.leaving)},
        "kept": [
            {
                "reason": found.reason,
                "pods": list(found.pods),
                "until": None if found.until_seconds is None else time_text(found.until_seconds),
            }
            for found in explanation.kept
        ],
        "borrowing": [
            {"pool": loan.pool, "refusal": loan.refusal, "reason": loan.reason} for loan in explanation.borrowing
        ],
        "starts": _start_json(explanation.start) if explanation.start is not None else None,
        "unit": _unit_json(explanation.unit) if explanation.unit is not None else None,
        "ranking": [{"node": node, "score": score} for node, score in explanation.ranking],
        "quota": _quota_json(explanation.quota) if explanation.quota is not None else None,
        "remedies": [_remedy_json(remedy, pod) for remedy in explanation.remedies],
    }


def _refusal_json(refusal: Refusal) -> dict[str, Any]:
    nearest = refusal.nearest
    return {
        "rule": refusal.rule,
        "nodes": refusal.nodes,
        "reason": refusal.reason,
        "counts": [{**_missing_json(missing), "nodes": nodes} for missing, nodes in refusal.counts],
        "nearest": {"node": nearest.node, "missing": [_missing_json(resource) for resource in nearest.missing]}
        if nearest
        else None,
    }


def _missing_json(missing: Missing) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": missing.kind, "name": missing.name}
    if missing.kind is MissingKind.RESOURCE:
        found["missing"] = quantity_text(missing.name, missing.amount)
        found["requested"] = quantity_text(missing.name, missing.asked)
    if missing.skew is not None:
        skew = missing.skew
        found |= {"matching": skew.matching, "withPod": skew.with_pod, "fewest": skew.fewest}
        found |= {"maxSkew": skew.max_skew, "minDomains": skew.min_domains or None}
    return found


def _unit_json(unit: PodUnit) -> dict[str, Any]:
    lacks = [{"role": lack.role or None, "exist": lack.exist, "atLeast": lack.at_least} for lack in unit.lacks]
    return {
        "name": unit.name,
        "pods": list(unit.pods),
        "required": unit.required,
        "firstRefused": unit.first_refused or None,
        "fit": unit.fit if unit.first_refused else None,
        "lacks": lacks,
    }


def _quota_json(quota: QuotaUse) -> dict[str, Any]:
    levels = [_level_json(level) for level in quota.levels]
    holders: list[Any] = next((level["holders"] for level in levels if level["refuses"]), [])
    return {"queue": quota.queue, "levels": levels, "holders": holders, "replaces": quota.replaces}


def _level_json(level: QuotaLevel) -> dict[str, Any]:
    quota = quantity_text(level.unit, level.quota) if level.quota is not None else None
    return {
        "queue": level.queue,
        "kind": "card" if level.is_card else "resource",
        "name": level.name,
        "resource": level.resource,
        "used": quantity_text(level.unit, level.used),
        "requested": quantity_text(level.unit, level.asked),
        "quota": quota,
        "refuses": level.refuses,
        "holders": [{"pod": name, "amount": quantity_text(level.unit, amount)} for name, amount in level.holders],
    }


def _start_json(start: Start) -> dict[str, Any]:
    nodes = dict(start.nodes)
    return {"pool": start.pool, "node": start.node, "nodes": nodes, "evictions": len(start.victims)}


def _remedy_json(remedy: Remedy, pod: Json | None) -> dict[str, Any]:
    return {
        "kind": remedy.kind,
        "text": remedy.text,
        "starts": _start_json(remedy.start),
        "steps": steps(remedy, pod or {}),
    }
