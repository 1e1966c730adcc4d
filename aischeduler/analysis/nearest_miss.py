"""The nodes that refuse a pod, by rule, and of each rule the node that lacks the least.

Invariants:
- The filters of the runner alone decide which rule refuses a node; what a node lacks is read beside that.
- A node counts for the first rule that refuses it, as in the message of the scheduler.
- The nearest node lacks the fewest things; of resources, then the smallest share of a request; of domains, then the
  fewest pods beyond maxSkew; then its name decides.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from aischeduler.analysis.explanation import Missing, MissingKind, NearestMiss, Refusal
from aischeduler.engine.cluster import Cluster
from aischeduler.framework.cross_rows import CrossRowAnswer
from aischeduler.framework.node_view import NodeView
from aischeduler.model.names import PODS
from aischeduler.model.node import PREFER_NO_SCHEDULE, Node
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.model.selectors import NAME_FIELD, NodeSelectorTerm, Operator, Requirement
from aischeduler.plugins.node_ports import conflict
from aischeduler.plugins.spread_filter import SpreadState
from aischeduler.plugins.taint_toleration import tolerated
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable

COUNTS_MAX: Final = 8
"""The most things that are counted for one rule, the most frequent first."""

RESOURCES: Final = "NodeResourcesFit"
_KINDS: Final = {NAME_FIELD: MissingKind.NAME}


def refusals(cluster: Cluster, spec: PodSpec, rows: Rows) -> tuple[Refusal, ...]:
    """Return the rules that refuse some of these rows, in their order."""
    found: list[Refusal] = []
    for rule, at in cluster.runner.refused(spec, rows):
        passing = rule.filter(spec, at)
        refused = at.rows if passing is None else at.rows[~passing]
        if not len(refused):
            continue
        reasons = rule.reasons(spec, at)
        reason = (
            next(iter(reasons)) if len(reasons) == 1 else ", ".join(f"{n} {text}" for text, n in _by_count(reasons))
        )
        if rule.name == RESOURCES:
            nearest = nearest_by_amounts(cluster.nodes, spec, refused)
            found.append(Refusal(rule.name, len(refused), reason, (), nearest))
        else:
            if isinstance(rule, CrossRowAnswer) and isinstance(rule.state, SpreadState):
                lacking = _uneven(rule.state, NodeView(cluster.nodes, refused))
            else:
                lacking = [_lacking(rule.name, cluster.nodes, spec, row) for row in refused.tolist()]
            counts, near = _count(cluster.nodes, refused, lacking)
            found.append(Refusal(rule.name, len(refused), reason, counts, near))
    return tuple(found)


def nearest_by_amounts(nodes: NodeTable, spec: PodSpec, rows: Rows) -> NearestMiss | None:
    """Return the row that lacks the fewest resources, then the smallest share of a request; None without rows."""
    if not len(rows):
        return None
    wanted = nodes.wanted(spec)
    left = (nodes.allocatable - nodes.used)[np.ix_(wanted.columns, rows)]
    short = np.maximum(wanted.amounts - left, 0)
    lacking = np.count_nonzero(short, axis=0)
    share = (short / wanted.amounts).max(axis=0)
    best = np.lexsort((nodes.ranks()[rows], share, lacking))[0]
    asked = {**spec.request.amounts, PODS: 1}
    missing = tuple(
        Missing(MissingKind.RESOURCE, name, amount, asked[name])
        for name, amount in zip(spec.request.taken, short[:, best].tolist(), strict=True)
        if amount
    )
    return NearestMiss(nodes.names[int(rows[best])], missing)


def _count(
    nodes: NodeTable, rows: Rows, lacking: Sequence[tuple[Missing, ...]]
) -> tuple[tuple[tuple[Missing, int], ...], NearestMiss | None]:
    """Return what these rows lack with the number of rows, the most frequent first, and the nearest row."""
    counts: Counter[Missing] = Counter()
    best: tuple[int, int, str, tuple[Missing, ...]] | None = None
    for row, missing in zip(rows.tolist(), lacking, strict=True):
        counts.update(missing)
        found = (len(missing), sum(lack.amount for lack in missing), nodes.names[row], missing)
        if missing and (best is None or found[:3] < best[:3]):
            best = found
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:COUNTS_MAX]
    return tuple(ordered), NearestMiss(best[2], best[3]) if best is not None else None


def lacks_labels(spec: PodSpec, node: Node) -> tuple[Requirement, ...]:
    """Return the requirements on labels that the node does not satisfy: of the required terms, those of the nearest."""
    selector = (Requirement(key, Operator.IN, (value,)) for key, value in spec.node_selector)
    missing = [requirement for requirement in selector if not requirement.matches(node.labels)]
    if spec.required is not None and not any(term.matches(node.name, node.labels) for term in spec.required):
        terms = [_unmet(term, node) for term in spec.required if not term.empty]
        missing += next((term for size in sorted(map(len, terms)) for term in terms if len(term) == size), ())
    return tuple(dict.fromkeys(missing))


def _unmet(term: NodeSelectorTerm, node: Node) -> tuple[Requirement, ...]:
    labels = [expression for expression in term.expressions if not expression.matches(node.labels)]
    return (*labels, *(field for field in term.fields if not field.matches({NAME_FIELD: node.name})))


def _lacking(rule: str, nodes: NodeTable, spec: PodSpec, row: int) -> tuple[Missing, ...]:
    """Return what a row lacks by a rule that does not read amounts; nothing for a rule that is not known here."""
    node = nodes.nodes[row]
    if node is None:
        return ()
    match rule:
        case "NodeAffinityNames":
            return (Missing(MissingKind.NAME, NAME_FIELD),)
        case "NodeUnschedulable":
            return (Missing(MissingKind.SCHEDULABLE, "spec.unschedulable"),)
        case "TaintToleration":
            return _taints(spec, node)
        case "NodeAffinity":
            unmet = lacks_labels(spec, node)
            return tuple(
                Missing(_KINDS.get(requirement.key, MissingKind.LABEL), str(requirement)) for requirement in unmet
            )
        case "NodePorts":
            return _ports(spec, nodes.ports.on.get(row, {}))
        case _:
            return ()


def _uneven(state: SpreadState, at: NodeView) -> list[tuple[Missing, ...]]:
    """Return for each row the topology keys that it lacks, then its domains that would exceed their maxSkew."""
    found: list[tuple[Missing, ...]] = []
    for row, skews in zip(at.rows.tolist(), state.skews(at), strict=True):
        node = at.nodes.nodes[row]
        labels = node.labels if node is not None else {}
        missing = [Missing(MissingKind.LABEL, key) for key in state.keys if key not in labels]
        missing += [
            Missing(MissingKind.SPREAD, f"{uneven.topology_key}={uneven.domain}", uneven.excess, skew=uneven)
            for uneven in skews
        ]
        found.append(tuple(missing))
    return found


def _taints(spec: PodSpec, node: Node) -> tuple[Missing, ...]:
    return tuple(
        Missing(MissingKind.TOLERATION, f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}")
        for taint in dict.fromkeys(node.taints)
        if taint.effect != PREFER_NO_SCHEDULE and not tolerated(taint, spec.tolerations)
    )


def _ports(spec: PodSpec, taken: Iterable[HostPort]) -> tuple[Missing, ...]:
    return tuple(
        Missing(MissingKind.PORT, f"{port.protocol} {port.port}")
        for port in spec.host_ports
        if any(conflict(port, other) for other in taken)
    )


def _by_count(reasons: Counter[str]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
