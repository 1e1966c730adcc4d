"""The ledger: what pods on rows take, summed by account.

Invariants:
- An account is a kind and names: what a pool lends, what the pods of a pool borrow, one loan. What of it is on rows
  with one type of cards is an account of its own, with the type as its last name.
- A pod counts in its accounts from the moment that it is booked under them, with the spec that counts on its row. Who
  books it keeps the accounts, to take out the same.
- Parts of GPUs count as shares beside the resources as the pod writes them (`card_shares`).
- The sums equal those of all pods on rows, counted anew.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from aischeduler.model.card_shares import charged, counted, unit_of
from aischeduler.model.names import PODS
from aischeduler.model.pod import PodSpec
from aischeduler.model.resources import ResourceList

Account = tuple[str, ...]
"""The kind of an account, and its names."""
Loan = tuple[str, str]
"""The lender and the home pool."""

LENDS: Final = "lends"
BORROWS: Final = "borrows"
LOAN: Final = "loan"
QUEUE: Final = "tenant-queue"
"""The kind of the accounts of tenant queues; their last name is the card on which the pods are."""
QUEUE_BORROWS: Final = "tenant-queue-borrows"
"""The kind of the accounts of what the pods of tenant queues use on nodes of other pools than their own."""
NO_CARD: Final = ""
"""The last name of the accounts of pods that request no cards."""
UNNAMED_CARD: Final = "-"
"""The last name of the accounts of pods with cards on nodes that do not say which."""


def accounts_of_loan(loan: Loan, cards: str) -> tuple[Account, ...]:
    """Return the accounts of a loan on a row with this type of cards; empty where it has none."""
    accounts: tuple[Account, ...] = ((LOAN, *loan), (LENDS, loan[0]), (BORROWS, loan[1]))
    return (*accounts, *((*account, cards) for account in accounts[1:])) if cards else accounts


class Sums(Protocol):
    """The ledger, to look at."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    @property
    def added(self) -> ResourceList:
        """By resource, all that was ever added to accounts: no account has grown by more since it was looked at."""

    def of(self, *account: str) -> ResourceList:
        """Return the sum of an account, by resource; `pods` counts pods."""

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of a tenant queue by card; `kind` is `QUEUE`."""


class Ledger:
    """The sums by account. `shrunk` has the accounts of which something was taken out since a caller emptied it."""

    def __init__(self) -> None:
        self.version = 0
        self.added: dict[str, int] = {}
        self.shrunk: set[Account] = set()
        self._sums: dict[Account, Counter[str]] = {}
        self._by_card: dict[Account, dict[str, Counter[str]]] = {}
        """The accounts of a tenant queue -> their sums by card."""

    def book(self, accounts: tuple[Account, ...], spec: PodSpec, pods: int, gpu_share: int = 0) -> None:
        """Add this number of pods of this spec and share to these accounts; a negative number takes them out."""
        if not accounts:
            return
        self.version += 1
        if pods < 0:
            self.shrunk.update(accounts)
        taken = charged(spec, gpu_share).items()
        if pods > 0:
            self._note(taken, pods)
        for account in accounts:
            total = self._sums.get(account)
            if total is None:
                total = self._sums[account] = Counter()
                if account[0] == QUEUE:
                    self._by_card.setdefault(account[:2], {})[account[2]] = total
            for resource, amount in taken:
                total[resource] += pods * amount
                if not total[resource]:
                    del total[resource]
            if not total:
                del self._sums[account]
                if account[0] == QUEUE:
                    del self._by_card[account[:2]][account[2]]
                    if not self._by_card[account[:2]]:
                        del self._by_card[account[:2]]

    def _note(self, taken: Iterable[tuple[str, int]], pods: int) -> None:
        added = self.added
        for resource, amount in taken:
            added[resource] = added.get(resource, 0) + pods * amount

    def of(self, *account: str) -> ResourceList:
        """Return the sum of an account, by resource; `pods` counts pods."""
        return self._sums.get(account, {})

    def under(self, kind: str, name: str) -> Mapping[str, ResourceList]:
        """Return the sums of the accounts of a tenant queue by card; `kind` is `QUEUE`."""
        return self._by_card.get((kind, name), {})

    def sums(self) -> dict[Account, ResourceList]:
        """Return the sums of all accounts that are not empty, sorted."""
        return dict(sorted(self._sums.items()))

    def loans(self) -> dict[Loan, int]:
        """Return the number of pods on loan by lender and home pool, sorted."""
        return {
            (account[1], account[2]): total[PODS] for account, total in sorted(self._sums.items()) if account[0] == LOAN
        }


def within(limit: ResourceList, sums: ResourceList, spec: PodSpec) -> str:
    """Return the first resource, by name, of which the pod would exceed the limit; empty where it exceeds none.

    A resource is unlimited where the limit does not name it, or the pod does not request it. `spec` is a total
    (`total_of`), which has the shares of GPUs.
    """
    asked = spec.request.taken
    for resource, most in sorted(limit.items()):
        if counted(resource, asked) and counted(resource, sums, asked) > most * unit_of(resource)[1]:
            return resource
    return ""
