"""What only all Pools together tell: lenders that do not exist, and nodes that two Pools select.

Law: without nodes only that is said which is so whatever nodes there are: every node of the one pool would also be
selected by the other.
"""

from collections.abc import Iterator, Mapping, Sequence
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
    known = {requirement.key: Known(selector, requirement.key) for requirement in selector.requirements}
    if not all(one.possible for one in known.values()):
        return False
    nothing = Known(LabelSelector(()), "")
    return all(known.get(requirement.key, nothing).implies(requirement) for requirement in other.requirements)


class Known:
    """What a selector says of one label: `present` (None where it may be absent), its values, those it has not."""

    def __init__(self, selector: LabelSelector, key: str) -> None:
        self.present: bool | None = None
        self.values: frozenset[str] | None = None
        self.others: frozenset[str] = frozenset()
        self.possible = True
        for requirement in selector.requirements:
            if requirement.key == key:
                self._learn(requirement)
        self._conclude()

    def _conclude(self) -> None:
        """Take what it has not from what it may have."""
        if self.values is not None:
            self.values -= self.others
            self.possible = self.possible and bool(self.values)

    def implies(self, requirement: Requirement) -> bool:
        """Say whether a label of which this is known satisfies the requirement."""
        values = frozenset(requirement.values)
        match requirement.operator:
            case Operator.IN:
                return self.present is True and self.values is not None and self.values <= values
            case Operator.NOT_IN:
                excluded = self.values.isdisjoint(values) if self.values is not None else values <= self.others
                return self.present is False or excluded
            case Operator.EXISTS:
                return self.present is True
            case Operator.DOES_NOT_EXIST:
                return self.present is False
            case Operator.GT | Operator.LT:
                return False  # no label selector has them

    def _learn(self, requirement: Requirement) -> None:
        values = frozenset(requirement.values)
        match requirement.operator:
            case Operator.IN:
                self.values = values if self.values is None else self.values & values
                self._is_present(present=True)
            case Operator.NOT_IN:
                self.others |= values
            case Operator.EXISTS | Operator.DOES_NOT_EXIST:
                self._is_present(present=requirement.operator is Operator.EXISTS)
            case Operator.GT | Operator.LT:
                pass

    def _is_present(self, *, present: bool) -> None:
        self.possible = self.possible and self.present in (None, present)
        self.present = present
