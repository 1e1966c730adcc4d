"""What the specs of two Pools allow: whether one lends to the other, and the limits of their loans.

Invariants:
- A limit bounds the sum of all running loans. A resource that it does not name is unlimited.
- The `spec` of a loan is a total (`total_of`), which has the shares of GPUs.
"""

from typing import Protocol

from aischeduler.model.pod import PodSpec
from aischeduler.model.proposal import LenderRefusal
from aischeduler.state.ledger import BORROWS, LENDS, Ledger, within
from aischeduler.state.pool_table import PoolTable


class LoanView(Protocol):
    """The Pools, and the sums of their loans."""

    @property
    def pools(self) -> PoolTable: ...  # noqa: D102
    @property
    def ledger(self) -> Ledger: ...  # noqa: D102


def may_borrow(loans: LoanView, home: str, lender: str, spec: PodSpec) -> bool:
    """Return whether both pools allow the loan, room aside."""
    return home_refusal(loans, home, spec)[0] is None and lender_refusal(loans, home, lender, spec) is None


def lender_refusal(loans: LoanView, home: str, lender: str, spec: PodSpec) -> LenderRefusal | None:
    """Return why the lender's spec, or the borrowingPools of the home pool, forbids the loan."""
    pool, borrowing_pools = loans.pools.pools[lender], loans.pools.pools[home].borrowing_pools
    if borrowing_pools is not None and lender not in borrowing_pools:
        return LenderRefusal.NOT_LISTED
    if pool.disable_sharing or pool.invalid:
        return LenderRefusal.NOT_SHARING
    if pool.lending_limit and within(pool.lending_limit, loans.ledger.of(LENDS, lender), spec):
        return LenderRefusal.LENDING_LIMIT
    return None


def home_refusal(loans: LoanView, home: str, spec: PodSpec) -> tuple[LenderRefusal | None, str]:
    """Return why the home pool may not borrow for the pod, and the resource of its limit."""
    pool = loans.pools.pools[home]
    if pool.invalid:
        return LenderRefusal.NOT_ACCEPTED, ""
    if pool.disable_borrowing:
        return LenderRefusal.NOT_BORROWING, ""
    resource = within(pool.borrowing_limit, loans.ledger.of(BORROWS, home), spec) if pool.borrowing_limit else ""
    return (LenderRefusal.BORROWING_LIMIT, resource) if resource else (None, "")
