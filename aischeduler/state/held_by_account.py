"""Waiting pods that an account of the ledger holds, by account and in the order of their queues."""

from sortedcontainers import SortedDict

from aischeduler.state.ledger import Account
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import OrderKey, queue_order


class HeldByAccount:
    """The pods, each under all accounts in which it would count."""

    def __init__(self) -> None:
        self._by_account: dict[Account, SortedDict[OrderKey, PodRecord]] = {}
        self._held: dict[str, tuple[OrderKey, tuple[Account, ...]]] = {}
        """Uid -> where the pod stands."""

    def put(self, record: PodRecord, accounts: tuple[Account, ...]) -> None:
        """Add a pod that is not here."""
        self._held[record.pod.uid] = queue_order(record), accounts
        for account in accounts:
            self._by_account.setdefault(account, SortedDict())[queue_order(record)] = record

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is here."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        order, accounts = held
        for account in accounts:
            waiting = self._by_account[account]
            del waiting[order]
            if not waiting:
                del self._by_account[account]

    def first(self, account: Account) -> PodRecord | None:
        """Return the first pod that this account holds."""
        waiting = self._by_account.get(account)
        found: PodRecord | None = waiting.peekitem(0)[1] if waiting else None
        return found

    def uids(self) -> list[str]:
        """Return the uids of all pods, sorted."""
        return sorted(self._held)
