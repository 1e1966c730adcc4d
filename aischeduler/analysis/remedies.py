"""The single changes with which a waiting pod starts, each verified by a proposal on the changed state.

Invariants:
- A remedy is one change: of one request, one limit, one flag, one node, or the end of pods on one node.
- It is named only if the engine proposes a start on the state with the change, and no smaller change of its kind does.
- A start at once comes before a start after evictions, then the kinds in the order of `ORDER`, then the cost.
- At most `REMEDIES_MAX` are named, and at most `OF_A_KIND_MAX` of one kind.
"""

from typing import Final

from aischeduler.analysis.explanation import AddNode, Remedy, RemedyKind
from aischeduler.analysis.remedies_nodes import node_remedies
from aischeduler.analysis.remedies_pods import pods_end_remedies
from aischeduler.analysis.remedies_pools import flag_remedies, limit_remedies
from aischeduler.analysis.remedies_request import request_remedies
from aischeduler.analysis.what_if import Question

REMEDIES_MAX: Final = 8
OF_A_KIND_MAX: Final = 3

ORDER: Final = (RemedyKind.REQUEST, RemedyKind.NODE, RemedyKind.LIMIT, RemedyKind.FLAG, RemedyKind.PODS_END)
"""The order of the kinds: first what the owner of the pod can do, last what ends the work of others or needs a machine:
a node that must be added comes after all others."""


def remedies(question: Question) -> tuple[Remedy, ...]:
    """Return the remedies of a pod that waits, the cheapest first."""
    found: list[Remedy] = []
    for family in (request_remedies, node_remedies, limit_remedies, flag_remedies, pods_end_remedies):
        found += sorted(family(question), key=_rank)[:OF_A_KIND_MAX]
    return tuple(sorted(found, key=_rank)[:REMEDIES_MAX])


def _rank(remedy: Remedy) -> tuple[bool, bool, int, tuple[int, str]]:
    return (bool(remedy.start.victims), isinstance(remedy.edit, AddNode), ORDER.index(remedy.kind), remedy.cost)
