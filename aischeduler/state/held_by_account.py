"""Waiting pods that an account of the ledger holds, by account and class, in the order of their queues."""

from heapq import nsmallest
from operator import itemgetter

from sortedcontainers import SortedDict

from aischeduler.state.ledger import Account
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import OrderKey, queue_order

Class = tuple[object, ...]


class HeldByAccount:
    """The pods, each under all accounts in which it would count. What holds one pod of a class holds all behind it."""

    def __init__(self) -> None:
        self._by_account: dict[Account, dict[Class, SortedDict[OrderKey, PodRecord]]] = {}
        self._held: dict[str, tuple[OrderKey, Class, tuple[Account, ...]]] = {}
        """Uid -> where the pod stands."""
        self._alike: dict[Class, SortedDict[OrderKey, PodRecord]] = {}
        self.exhausted: set[Account] = set()
        """Accounts that refused all classes that they hold when they were looked at last, and have not shrunk since."""

    def put(self, record: PodRecord, accounts: tuple[Account, ...]) -> None:
        """Add a pod that is not here."""
        order, of = queue_order(record), _class_of(record)
        self._held[record.pod.uid] = order, of, accounts
        self._alike.setdefault(of, SortedDict())[order] = record
        for account in accounts:
            self._by_account.setdefault(account, {}).setdefault(of, SortedDict())[order] = record

    def move(self, record: PodRecord, accounts: tuple[Account, ...]) -> None:
        """Let a pod count in these accounts from now on, if it is here."""
        if record.pod.uid in self._held:
            self.drop(record.pod.uid)
            self.put(record, accounts)

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is here."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        order, of, accounts = held
        alike = self._alike[of]
        del alike[order]
        if not alike:
            del self._alike[of]
        for account in accounts:
            classes = self._by_account[account]
            del classes[of][order]
            if not classes[of]:
                del classes[of]
            if not classes:
                del self._by_account[account]

    def heads(self, account: Account, most: int) -> list[PodRecord]:
        """Return the first pod of each class that this account holds, at most so many, in their order."""
        first = (waiting.peekitem(0) for waiting in self._by_account.get(account, {}).values())
        return [record for _, record in nsmallest(most, first, key=itemgetter(0))]

    def alike(self, record: PodRecord) -> PodRecord | None:
        """Return the first pod of this pod's class; None where there is none."""
        waiting = self._alike.get(_class_of(record))
        return waiting.peekitem(0)[1] if waiting is not None else None

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def accounts(self) -> tuple[Account, ...]:
        """Return the accounts that hold pods, sorted."""
        return tuple(sorted(self._by_account))

    def uids(self) -> list[str]:
        """Return the uids of all pods, sorted."""
        return sorted(self._held)


def _class_of(record: PodRecord) -> Class:
    unit = record.leads
    return (unit.name,) if unit is not None else (record.pod.spec.key, record.tenancy.queue, record.home)
