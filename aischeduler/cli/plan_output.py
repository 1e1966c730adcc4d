"""A plan as text for people, a table of the units and a few lines that fit one screen, and as JSON for programs.

Invariants:
- In text, lists of names and lines are cut, and say how much is left out; `-o json` has everything.
- Several variants stand side by side in text, one column each. In JSON one variant is the object itself; several are
  the list `variants`.
- `version` grows when a field is renamed or removed or changes its meaning; a field may be added without that. Every
  unit has every field, but for `instances`, which elastic jobs have, and `resizes`, where jobs get other sizes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from aischeduler.analysis.explanation import full_name
from aischeduler.analysis.plan import JobGrowth, JobResize, Plan, UnitPlan, UnitVerdict
from aischeduler.cli.output import plain_table, print_trimmed
from aischeduler.cli.plan_documents import Variant
from aischeduler.engine.queue_status import OverQuota
from aischeduler.model.actions import Bind, Evict, EvictionCause
from aischeduler.model.quantity import quantity_text
from aischeduler.observability.logging import printable

VERSION: Final = 1
WIDE: Final = 120
"""The width of a terminal from which on lists are longer."""
UNITS_MAX: Final = 15
REASONS_MAX: Final = 6
STYLES: Final = {
    UnitVerdict.STARTS: "green",
    UnitVerdict.BORROWS: "cyan",
    UnitVerdict.EVICTS: "yellow",
    UnitVerdict.WAITS: "red",
}
AS_WRITTEN: Final = "as written"

Plans = Sequence[tuple[Variant, Plan]]


def print_plans(console: Console, plans: Plans) -> None:
    """Print the plans of all variants."""
    names_max = 12 if console.width >= WIDE else 4
    if len(plans) > 1:
        print_trimmed(console, _side_by_side(plans, names_max))
    elif plans[0][1].units:
        print_trimmed(console, _table(plans[0][1], names_max))
    labels: dict[str, list[str]] = {}
    for variant, plan in plans:
        for line in _lines(plan, names_max):
            labels.setdefault(line, []).append(variant.label() or AS_WRITTEN)
    for line, found in labels.items():
        everywhere = len(found) == len(plans)
        print_trimmed(console, Text(printable(line if everywhere else f"{line} ({'; '.join(found)})")))


def _table(plan: Plan, names_max: int) -> Table:
    shown = plan.units[:UNITS_MAX]
    table = plain_table("Unit", "Start", "Verdict", "Nodes", gap=2)
    if any(unit.evicts for unit in shown):
        table.add_column("Evicts", overflow="fold")
    if any(unit.lenders for unit in shown):
        table.add_column("Lender", overflow="fold")
    for unit in shown:
        cells: list[Text | str] = [_unit_name(unit), _started(unit), _verdict(unit), _nodes(unit, names_max)]
        if any(other.evicts for other in shown):
            cells.append(_names(unit.evicts, names_max))
        if any(other.lenders for other in shown):
            cells.append(_names(sorted(set(unit.lenders.values())), names_max))
        table.add_row(*cells)
    return table


def _side_by_side(plans: Plans, names_max: int) -> Table:
    table = plain_table("Unit", *(variant.label() or AS_WRITTEN for variant, _ in plans), gap=2)
    rows: dict[tuple[str, int], dict[int, Text]] = {}
    for column, (_, plan) in enumerate(plans):
        counts = Counter[str]()
        for unit in plan.units:  # objects that are of one unit in a variant may have no pods in another
            name = _unit_name(unit)
            rows.setdefault((name, counts[name]), {})[column] = _cell(unit, names_max)
            counts[name] += 1
    for (name, _), cells in list(rows.items())[:UNITS_MAX]:
        table.add_row(name, *(cells.get(column, "") for column in range(len(plans))))
    return table


def _cell(unit: UnitPlan, names_max: int) -> Text:
    """Return everything about a unit in one variant."""
    cell = Text.assemble(_verdict(unit), f" {_started(unit)}")
    if unit.nodes:
        cell.append(f"\n{_nodes(unit, names_max)}")
    if unit.evicts:
        cell.append(f"\nevicts {_names(unit.evicts, names_max)}")
    if unit.lenders:
        cell.append(f"\nborrows from {_names(sorted(set(unit.lenders.values())), names_max)}")
    return cell


def _lines(plan: Plan, names_max: int) -> Iterator[str]:
    """Yield what the table has no room for, one or two sentences a line."""
    if len(plan.units) > UNITS_MAX:
        yield f"{len(plan.units) - UNITS_MAX} more units are not shown; -o json has all."
    reasons: dict[str, list[str]] = {}
    for unit in plan.units:
        for reason in dict.fromkeys(unit.waits.values()):
            reasons.setdefault(reason or "its turn has not come", []).append(_unit_name(unit))
    for reason, units in list(reasons.items())[:REASONS_MAX]:
        yield f"{_names(units, names_max)} {'wait' if len(units) > 1 else 'waits'}: {reason}"
    if len(reasons) > REASONS_MAX:
        yield f"{len(reasons) - REASONS_MAX} more reasons to wait are not shown; -o json has all."
    for unit in plan.units:
        for note in unit.notes:
            yield f"{_unit_name(unit)}: {note}"
        for queue, names in _reclaimed(plan, unit).items():
            yield f"{_unit_name(unit)} takes back from the queue {queue}: {_names(names, names_max)}."
    yield from _consequences(plan, names_max)
    yield from (f"{note}." for note in plan.notes)
    if not plan.at_rest:
        yield "The plan was cut off before the cluster came to rest: more would happen."


def _consequences(plan: Plan, names_max: int) -> Iterator[str]:
    """Yield sentences about pods and nodes that no unit has."""
    for name, (before, after) in plan.pool_nodes.items():
        yield f"The pool {name} has {after} node{'s' * (after != 1)} instead of {before}."
    for change in plan.loan_changes:
        named = _names([full_name(pod) for pod in change.pods], names_max) or f"{change.count} pods"
        if change.pool == change.home_pool:
            yield f"Running pods become home pods of the pool {change.pool}: {named}."
        else:
            yield f"Running pods of the pool {change.home_pool} become loans of the pool {change.pool}: {named}."
    if plan.other_starts:
        started = [f"{full_name(start.pod)} on {start.node}" for start in plan.other_starts]
        yield f"Also starts: {_names(started, names_max)}."
    if plan.other_evictions:
        evicted = [_evicted(plan, eviction) for eviction in plan.other_evictions]
        yield f"Also evicts: {_names(evicted, names_max)}."
    if plan.resizes:
        resized = [f"{change.job} from {change.before} to {change.size} instances" for change in plan.resizes]
        yield f"Also resizes: {_names(resized, names_max)}."
    for over in plan.over_quota:
        used, most = (quantity_text(over.unit, amount) for amount in (over.used, over.quota))
        yield f"The queue {over.queue} is over its quota: {over.name} {used} of {most}."
    if not (
        plan.units
        or plan.over_quota
        or plan.other_starts
        or plan.other_evictions
        or plan.loan_changes
        or plan.pool_nodes
        or plan.resizes
    ):
        yield "Nothing changes: no pod starts, moves or is evicted."


def _reclaimed(plan: Plan, unit: UnitPlan) -> dict[str, list[str]]:
    """Return the pods of other tenant queues that are evicted, by their queue."""
    found: dict[str, list[str]] = {}
    for eviction in unit.evictions:
        if eviction.cause is EvictionCause.QUEUE_RECLAIMED:
            found.setdefault(plan.queues.get(eviction.victim.uid, ""), []).append(full_name(eviction.victim))
    return found


def _evicted(plan: Plan, eviction: Evict) -> str:
    gain = f" for {full_name(eviction.beneficiary)}" if eviction.beneficiary is not None else ""
    reclaimed = (
        f" from the queue {plan.queues.get(eviction.victim.uid, '')}"
        if eviction.cause is EvictionCause.QUEUE_RECLAIMED
        else ""
    )
    return f"{full_name(eviction.victim)}{reclaimed}{gain}"


def _unit_name(unit: UnitPlan) -> str:
    """Return kind, namespace and name; a node has no namespace, and `default` is left out."""
    planned = unit.unit
    parts = (planned.kind, planned.namespace, planned.name)
    return printable("/".join(part for part in parts if part not in ("", "default")))


def _started(unit: UnitPlan) -> str:
    return f"{len(unit.nodes)}/{len(unit.unit.pods)}"


def _verdict(unit: UnitPlan) -> Text:
    return Text(unit.verdict, style=STYLES[unit.verdict])


def _nodes(unit: UnitPlan, names_max: int) -> str:
    """Return the nodes by name, each with its number of pods if that is not one."""
    counts: Mapping[str, int] = Counter(unit.nodes.values())
    return _names([f"{node} ×{count}" if count > 1 else node for node, count in sorted(counts.items())], names_max)  # noqa: RUF001


def _names(names: Sequence[str], names_max: int) -> str:
    more = len(names) - names_max
    return printable(f"{', '.join(names[:names_max])}{f' and {more} more' if more > 0 else ''}")


def plan_json(plans: Sequence[tuple[Variant, Plan]], taken_seconds: int, gaps: Sequence[str]) -> str:
    """Return the plans of a snapshot as one line; `gaps` are the sentences about what could not be read."""
    head = {"version": VERSION, "takenSeconds": taken_seconds, "gaps": list(gaps)}
    if len(plans) == 1:
        return orjson.dumps({**head, **_plan_json(*plans[0])}).decode()
    return orjson.dumps({**head, "variants": [_plan_json(variant, plan) for variant, plan in plans]}).decode()


def _plan_json(variant: Variant, plan: Plan) -> dict[str, Any]:
    return {
        "replicas": variant.replicas,
        "pool": variant.pool,
        "units": [_unit_json(plan, unit) for unit in plan.units],
        "alsoStarts": [_start_json(start) for start in plan.other_starts],
        "alsoEvicts": [_eviction_json(plan, eviction) for eviction in plan.other_evictions],
        "loanChanges": [
            {
                "pool": change.pool,
                "homePool": change.home_pool,
                "count": change.count,
                "pods": [full_name(pod) for pod in change.pods],
            }
            for change in plan.loan_changes
        ],
        "poolNodes": {name: {"before": before, "after": after} for name, (before, after) in plan.pool_nodes.items()},
        "overQuota": [_over_json(over) for over in plan.over_quota],
        "notes": list(plan.notes),
        "atRest": plan.at_rest,
        **({"resizes": [_resize_json(change) for change in plan.resizes]} if plan.resizes else {}),
    }


def _unit_json(plan: Plan, unit: UnitPlan) -> dict[str, Any]:
    return {
        "name": unit.unit.name,
        "kind": unit.unit.kind,
        "namespace": unit.unit.namespace,
        "pods": len(unit.unit.pods),
        "verdict": unit.verdict,
        "nodes": dict(unit.nodes),
        "evicts": list(unit.evicts),
        "evictions": [_eviction_json(plan, eviction) for eviction in unit.evictions],
        "lender": next(iter(sorted(unit.lenders.values())), None),
        "lenders": dict(unit.lenders),
        "waitsFor": unit.waits_for or None,
        "waits": dict(unit.waits),
        "notes": list(unit.notes),
        **({"instances": _growth_json(unit.growth)} if unit.growth is not None else {}),
    }


def _growth_json(growth: JobGrowth) -> dict[str, int]:
    return {"minimum": growth.minimum, "maximum": growth.maximum, "wouldGrowTo": growth.size}


def _resize_json(change: JobResize) -> dict[str, Any]:
    return {"job": change.job, "before": change.before, "after": change.size}


def _start_json(start: Bind) -> dict[str, Any]:
    lender = start.pool if start.borrowed else None
    return {"pod": full_name(start.pod), "node": start.node, "pool": start.pool, "lender": lender}


def _over_json(over: OverQuota) -> dict[str, Any]:
    used, most = (quantity_text(over.unit, amount) for amount in (over.used, over.quota))
    return {
        "queue": over.queue,
        "kind": "card" if over.is_card else "resource",
        "name": over.name,
        "used": used,
        "quota": most,
    }


def _eviction_json(plan: Plan, eviction: Evict) -> dict[str, Any]:
    beneficiary = full_name(eviction.beneficiary) if eviction.beneficiary is not None else None
    return {
        "pod": full_name(eviction.victim),
        "node": eviction.node,
        "cause": eviction.cause,
        "queue": plan.queues.get(eviction.victim.uid),
        "beneficiary": beneficiary,
    }
