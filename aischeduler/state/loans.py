"""Loans: the requests of bound and assumed pods on nodes of other pools than their own."""

from collections import Counter

from aischeduler.model.pod import PodSpec
from aischeduler.model.resources import ResourceList

Loan = tuple[str, str]
"""The lender and the home pool."""


class Loans:
    """The sums of loans by lender and by home pool."""

    def __init__(self) -> None:
        self.version = 0
        self._lent: dict[str, Counter[str]] = {}
        self._borrowed: dict[str, Counter[str]] = {}
        self._pods: Counter[Loan] = Counter()

    def count(self, loan: Loan, spec: PodSpec, pods: int) -> None:
        """Add this number of loans of pods of this spec; a negative number removes them."""
        self.version += 1
        lender, home = loan
        for sums, pool in ((self._lent, lender), (self._borrowed, home)):
            total = sums.setdefault(pool, Counter())
            for resource, amount in spec.request.taken.items():
                total[resource] += pods * amount
                if not total[resource]:
                    del total[resource]
            if not total:
                del sums[pool]
        self._pods[loan] += pods
        if not self._pods[loan]:
            del self._pods[loan]

    def clear(self) -> None:
        """Remove all loans, to count them again."""
        self.version += 1
        self._lent.clear()
        self._borrowed.clear()
        self._pods.clear()

    def lent(self, lender: str) -> ResourceList:
        """Return what the pool has lent, by resource; `pods` counts loans."""
        return self._lent.get(lender, {})

    def borrowed(self, home: str) -> ResourceList:
        """Return what the pool's pods have borrowed, by resource; `pods` counts loans."""
        return self._borrowed.get(home, {})

    def pods(self) -> dict[Loan, int]:
        """Return the number of pods on loan by lender and home pool, sorted."""
        return dict(sorted(self._pods.items()))


def within(limit: ResourceList, sums: ResourceList, spec: PodSpec) -> str:
    """Return the first resource, by name, of which the pod would exceed the limit; empty where it exceeds none.

    A resource is unlimited where the limit does not name it, or the pod does not request it.
    """
    asked = spec.request.taken
    for resource, most in sorted(limit.items()):
        if resource in asked and sums.get(resource, 0) + asked[resource] > most:
            return resource
    return ""
