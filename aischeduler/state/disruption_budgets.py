"""Disruption budgets: which evictions they allow now.

Invariants:
- A budget allows what its last status allows, less the evictions requested since, and less earlier evictions that are
  under way and that the status does not name: the status may be older than they are.
- The budgets that cover a pod are kept while the pod exists; a status with other counts does not change them.
- A pod in a namespace without budgets costs one look-up.
- A budget that no longer exists protects nothing.
- Where budgets are obeyed, a pod that the Eviction API would refuse is known before it is asked.

Source: PodDisruptionBudget; kube-scheduler counts a pod against every budget that covers it. The eviction subresource
of kube-apiserver refuses a pod of several budgets, and ignores the budgets of a pod that is still pending.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.pod import PENDING, Pod
from aischeduler.state.groups import Groups, SelectorIndex
from aischeduler.state.label_index import Mask, Rows

BudgetKey = tuple[str, str]
"""The namespace and name of a budget."""


class BudgetTable:
    """All budgets. `pod_of` returns the pod of a uid.

    They are `obeyed` where pods are evicted by the Eviction API; else a pod that a budget protects only costs more.
    """

    def __init__(self, pod_of: Callable[[str], Pod], *, obeyed: bool = False) -> None:
        self.obeyed = obeyed
        self._pod_of = pod_of
        self.forbidden: set[str] = set()
        """The pods (uids) on rows that `forbids` named when they were noted last."""
        self._placed: Groups[str, str, None] = Groups()
        """Where budgets are obeyed: namespace -> the pods (uids) on rows."""
        self._known: dict[str, dict[str, tuple[object, ...]]] = {}
        """What `turned` has last seen of the budgets of each namespace."""
        self._budgets: Groups[str, str, DisruptionBudget] = Groups()
        self._evicted: dict[BudgetKey, set[str]] = {}
        self._index: SelectorIndex[str] = SelectorIndex()
        """The names of the budgets of each namespace."""
        self._covered: dict[str, dict[str, tuple[Pod, tuple[BudgetKey, ...]]]] = {}
        self.version = 0
        """Grows with every change of what a budget allows."""

    def see(self, budget: DisruptionBudget, under_way: Iterable[str] = ()) -> DisruptionBudget | None:
        """Store a budget as it is now; return the budget before, if there was one.

        Its status counts the earlier evictions, except those `under_way` (uids) of pods that it still covers.
        """
        self.version += 1
        key = (budget.namespace, budget.name)
        before = self._budgets.get(budget.namespace, {}).get(budget.name)
        self._budgets.put(budget.namespace, budget.name, budget)
        self._evicted[key] = {uid for uid in under_way if budget.covers(self._pod_of(uid))}
        if before is None or before.selector != budget.selector:
            if before is not None:
                self._index.drop(budget.namespace, before.selector, budget.name)
            self._index.put(budget.namespace, budget.selector, budget.name)
            self._look_again(budget.namespace, lambda pod, keys: budget.covers(pod) != (key in keys))
        elif counted := before.disrupted ^ budget.disrupted:
            self._look_again(budget.namespace, lambda pod, _: pod.name in counted)
        return before

    def forget(self, namespace: str, name: str) -> DisruptionBudget | None:
        """Remove a budget; return it, if there was one."""
        self.version += 1
        budget = self._budgets.get(namespace, {}).get(name)
        if budget is not None:
            self._budgets.drop(namespace, name)
            del self._evicted[namespace, name]
            self._index.drop(namespace, budget.selector, name)
            self._look_again(namespace, lambda _, keys: (namespace, name) in keys)
            if namespace not in self._budgets:
                self._covered.pop(namespace, None)
        return budget

    def all(self) -> tuple[DisruptionBudget, ...]:
        """Return every budget."""
        return tuple(budget for names in self._budgets.values() for budget in names.values())

    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that have budgets, sorted."""
        return tuple(sorted(self._budgets))

    def counted(self) -> dict[BudgetKey, set[str]]:
        """Return the evictions (uids) that count until the next status of each budget."""
        return self._evicted

    def count(self, evicted: Mapping[BudgetKey, set[str]]) -> None:
        """Count these evictions, as far as there is such a budget."""
        for key in self._evicted:
            self.version += 1
            self._evicted[key] = evicted.get(key, set())

    def forget_pod(self, pod: Pod) -> None:
        """Drop what is kept of a pod that is gone; its eviction counts until the next status of each budget."""
        self._covered.get(pod.namespace, {}).pop(pod.uid, None)

    def note_eviction(self, pod: Pod) -> None:
        """Count an eviction that is requested, until the next status of each budget."""
        for key in self.covering(pod):
            self.version += 1
            self._evicted[key].add(pod.uid)

    def note_refusal(self, pod: Pod) -> None:
        """Stop counting an eviction that was refused."""
        for name in self._budgets.get(pod.namespace, ()):
            self.version += 1
            self._evicted[pod.namespace, name].discard(pod.uid)

    def covering(self, pod: Pod) -> tuple[BudgetKey, ...]:
        """Return the budgets that cover this pod, in the order of their names."""
        budgets = self._budgets.get(pod.namespace)
        if budgets is None:
            return ()
        covered = self._covered.setdefault(pod.namespace, {})
        known = covered.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        names = sorted(self._index.candidates(pod.namespace, pod.labels))
        keys = tuple((pod.namespace, name) for name in names if budgets[name].covers(pod))
        covered[pod.uid] = (pod, keys)
        return keys

    def placed(self, pod: Pod) -> None:
        """Note that a pod counts on a row."""
        if self.obeyed:
            self._placed.put(pod.namespace, pod.uid, None)
            self.note(pod)

    def taken_off(self, pod: Pod) -> None:
        """Note that a pod no longer counts on a row."""
        if self.obeyed:
            self._placed.drop(pod.namespace, pod.uid)
            self.forbidden.discard(pod.uid)

    def note(self, pod: Pod) -> bool:
        """Note whether the eviction of a pod on a row is forbidden; return whether that is new."""
        before, now = pod.uid in self.forbidden, self.forbids(pod)
        (self.forbidden.add if now else self.forbidden.discard)(pod.uid)
        return before != now

    def turned(self, namespace: str) -> tuple[str, ...]:
        """Return the pods (uids) on rows, sorted, about which `forbids` may say something new since the last call."""
        if not self.obeyed:
            return ()
        budgets = self._budgets.get(namespace, {})
        now: dict[str, tuple[object, ...]] = {
            name: (budget.selector, budget.disrupted, budget.unhealthy_go, self.left((namespace, name)))
            for name, budget in budgets.items()
        }
        if now == self._known.get(namespace, {}):
            return ()
        self._known[namespace] = now
        if not now:
            del self._known[namespace]
        return tuple(sorted(self._placed.get(namespace, ())))

    def forbids(self, pod: Pod) -> bool:
        """Return whether the Eviction API would refuse to evict the pod now; never where budgets are not obeyed."""
        if not self.obeyed or pod.phase == PENDING:
            return False
        keys = self.covering(pod)
        if len(keys) != 1:
            return bool(keys)
        unhealthy = pod.unready and self._budgets[keys[0][0]][keys[0][1]].unhealthy_go
        return self.left(keys[0]) <= 0 and not unhealthy

    def protects(self, uid: str) -> bool:
        """Return whether a budget covers this pod."""
        return bool(self._budgets) and bool(self.covering(self._pod_of(uid)))

    def broken(self, uids: Iterable[str], rows: Rows) -> Mask:
        """Return a mask of the pods whose eviction breaks a budget after the eviction of all pods before it on its row.

        Each row is judged as if no pod was evicted on other rows. Without budgets the uids are not read.
        """
        broken: Mask = np.zeros(len(rows), dtype=np.bool_)
        if not self._budgets:
            return broken
        covered = [(i, key) for i, uid in enumerate(uids) for key in self.covering(self._pod_of(uid))]
        numbers = {key: i for i, key in enumerate(dict.fromkeys(key for _, key in covered))}
        left = np.array([self.left(key) for key in numbers], dtype=np.int64)
        pods = np.array([i for i, _ in covered], dtype=np.intp)
        budgets = np.array([numbers[key] for _, key in covered], dtype=np.intp)
        broken[pods[_place_among_equals(rows[pods] * len(numbers) + budgets) >= left[budgets]]] = True
        return broken

    def left(self, key: BudgetKey) -> int:
        """Return how many more disruptions a budget allows; 0 or below means none."""
        namespace, name = key
        return self._budgets[namespace][name].disruptions_allowed - len(self._evicted[key])

    def _look_again(self, namespace: str, changed: Callable[[Pod, tuple[BudgetKey, ...]], bool]) -> None:
        """Drop the kept budgets of the pods for which `changed` is True; it gets the pod and the kept budgets."""
        covered = self._covered.get(namespace, {})
        for uid in [uid for uid, (pod, keys) in covered.items() if changed(pod, keys)]:
            del covered[uid]


def _place_among_equals(numbers: Rows) -> Rows:
    """Return for each number how many equal numbers come before it."""
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    places = np.empty_like(order)
    places[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return places
