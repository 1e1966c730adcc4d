"""The ledger during a pass over the sizes of elastic jobs: with what the pass has given and taken so far.

Invariant: the ledger below is never changed.
"""

from collections import Counter
from collections.abc import Mapping

from aischeduler.model.resources import ResourceList
from aischeduler.state.ledger import Ledger, Sums


class PassLedger(Ledger):
    """The sums of another ledger, with what is booked here."""

    def __init__(self, below: Sums) -> None:
        super().__init__()
        self._below = below

    def of(self, *account: str) -> ResourceList:
        """Return the sum of an account, by resource; `pods` counts pods."""
        return _sum(self._below.of(*account), super().of(*account))

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of a tenant queue by card; `kind` is `QUEUE`."""
        mine, below = super().under(kind, name), self._below.under(kind, name)
        return {card: _sum(below.get(card, {}), mine.get(card, {})) for card in {**below, **mine}} if mine else below


def _sum(below: ResourceList, mine: ResourceList) -> ResourceList:
    if not mine:
        return below
    found = Counter(below)
    for resource, amount in mine.items():
        found[resource] += amount
    return found
