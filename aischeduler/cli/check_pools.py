"""What only all Pools together tell: lenders that do not exist, and nodes that two Pools select.

Law: without nodes only that is said which is so whatever nodes there are: every node of the one pool would also be
selected by the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from aischeduler.cli.check_documents import Document, Finding, items_at, mapping_at
from aischeduler.config.spelling import nearest
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import Pool
from aischeduler.model.quantity import shorten
from aischeduler.model.selectors import LabelSelector, Operator, Requirement


def unknown_lenders(document: Document, pools: Sequence[str]) -> Iterator[Finding]:
    """Say which of the pools that one may borrow from do not exist; `pools` are all, sorted."""
    for index, name in enumerate(items_at(mapping_at(document.body, "spec"), "borrowingPools")):
        if isinstance(name, str) and name not in pools:
            near = nearest(name, pools)
            meant = f"; did you mean {near}?" if near else ""
            yield Finding(document, f"spec.borrowingPools[{index}]", f"there is no Pool {shorten(name)}{meant}")


def overlapping(pools: Mapping[str, tuple[Document, Pool]]) -> Iterator[Finding]:
    """Say of which pools every node is one of another pool too, so that it never has any."""
    claiming = [
        (document, pool, pool.selector)
        for _, (document, pool) in sorted(pools.items())
        if pool.selector is not None and pool.name != DEFAULT_POOL
    ]
    for one, other in combinations(claiming, 2):
        for (document, _, selector), (_, rival, rival_selector) in ((one, other), (other, one)):
            if implies(selector, rival_selector):
                what = f"every node that it selects is selected by the pool {rival.name} too, so it would be in neither"
                yield Finding(document, "spec.nodeSelector", what)
                break


def implies(selector: LabelSelector, other: LabelSelector) -> bool:
    """Say whether every set of labels that satisfies the first satisfies the other, and some set does."""
    known = {one.key: _known(selector, one.key) for one in (*selector.requirements, *other.requirements)}
    return all(one.possible for one in known.values()) and all(
        known[one.key].implies(one) for one in other.requirements
    )


@dataclass(frozen=True, slots=True)
class Known:
    """What a selector says of one label: that it is there, or is not; the values it may have, and those it has not."""

    present: bool
    absent: bool
    values: frozenset[str] | None
    others: frozenset[str]

    @property
    def possible(self) -> bool:
        """Say whether a label can be so."""
        return not (self.present and self.absent) and self.values != frozenset()

    def implies(self, requirement: Requirement) -> bool:
        """Say whether a label of which this is known satisfies the requirement."""
        values = frozenset(requirement.values)
        match requirement.operator:
            case Operator.IN:
                return self.values is not None and self.values <= values
            case Operator.NOT_IN:
                excluded = values <= self.others if self.values is None else self.values.isdisjoint(values)
                return self.absent or excluded
            case Operator.EXISTS:
                return self.present
            case Operator.DOES_NOT_EXIST:
                return self.absent
            case Operator.GT | Operator.LT:
                return False  # no label selector has them


def _known(selector: LabelSelector, key: str) -> Known:
    about = [one for one in selector.requirements if one.key == key]
    operators = [one.operator for one in about]
    named = [frozenset(one.values) for one in about if one.operator is Operator.IN]
    others = frozenset(value for one in about if one.operator is Operator.NOT_IN for value in one.values)
    return Known(
        present=Operator.IN in operators or Operator.EXISTS in operators,
        absent=Operator.DOES_NOT_EXIST in operators,
        values=frozenset.intersection(*named) - others if named else None,
        others=others,
    )
