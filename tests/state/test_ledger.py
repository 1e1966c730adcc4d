"""The ledger: sums by account, which equal those of the pods that are booked."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.pod import PodSpec
from aischeduler.state.ledger import BORROWS, LENDS, Account, Ledger, accounts_of_loan
from tests.build import a_pod

SPECS = (a_pod("p", cpu="1", memory="0", gpu=1).spec, a_pod("q", cpu="500m", memory="1Gi").spec)
ACCOUNTS: tuple[tuple[Account, ...], ...] = (
    (),
    accounts_of_loan(("a", "b"), ""),
    accounts_of_loan(("a", "c"), "H100"),
    (("queue", "team"), ("queue", "company")),
)


@given(st.lists(st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(SPECS))), st.data())
def test_sums_are_those_of_the_pods_that_are_booked(
    pods: list[tuple[tuple[Account, ...], PodSpec]], data: st.DataObject
) -> None:
    ledger = Ledger()
    for accounts, spec in pods:
        ledger.book(accounts, spec, 1)
    gone = data.draw(st.integers(0, len(pods)))
    for accounts, spec in pods[:gone]:
        ledger.book(accounts, spec, -1)
    expected: dict[Account, Counter[str]] = {}
    for accounts, spec in pods[gone:]:
        for account in accounts:
            expected.setdefault(account, Counter()).update(spec.request.taken)
    assert ledger.sums() == expected
    assert ledger.shrunk == {account for accounts, _ in pods[:gone] for account in accounts}


def test_loans_are_summed_by_lender_and_by_home_pool_and_by_the_cards_of_their_rows() -> None:
    ledger = Ledger()
    ledger.book(accounts_of_loan(("a", "b"), "H100"), SPECS[0], 2)
    ledger.book(accounts_of_loan(("a", "c"), ""), SPECS[1], 1)
    assert ledger.loans() == {("a", "b"): 2, ("a", "c"): 1}
    assert (ledger.of(LENDS, "a")["cpu"], ledger.of(BORROWS, "b")["cpu"], ledger.of(BORROWS, "c")["cpu"]) == (
        2500,
        2000,
        500,
    )
    assert ledger.of(LENDS, "a", "H100") == dict(SPECS[0].request.taken) | {"cpu": 2000, "nvidia.com/gpu": 2, "pods": 2}
    assert ledger.of(LENDS, "b") == {}


def test_an_entry_without_accounts_changes_nothing() -> None:
    ledger = Ledger()
    ledger.book((), SPECS[0], 1)
    assert (ledger.version, ledger.sums()) == (0, {})
