"""The numbers of pods on rows that count by selectors or terms, for rules whose answer for a row depends on other rows.

Invariants:
- What a known pod is interested in is counted. Pods on rows and, apart from them, owners of claims count.
- A pod may count several times by one thing, with its claim and in trials: each `remove` undoes one `add`.
- A trial changes the counts, and those by domain, and puts them back. Its changes are not noted.
- While `apart` is set, the pods of each row that a search for victims has removed count as gone for that row alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pod_affinity import CarriedKind, CarriedTerm
from aischeduler.model.selectors import Labels, LabelSelector
from aischeduler.model.topology_spread import PodSelector
from aischeduler.state.carried_terms import EVERY_NAMESPACE, CarriedTerms
from aischeduler.state.counted_pods import (
    NO_INTEREST,
    Counted,
    Interest,
    SelectedByTerms,
    depends_on_namespace,
    is_counted,
)
from aischeduler.state.groups import Groups, SelectorIndex, required_label
from aischeduler.state.label_index import NO_VALUE, NUMBERS_MAX, LabelIndex, Mask, Rows

OnRow = tuple[Pod, int, bool]
"""A pod, its row, and whether it owns a claim there instead of being there."""


class PodsByLabel:
    """Namespace, key and value -> the pods by uid and by where they are, for the keys that were learned."""

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._pods: Groups[tuple[str, str, str], tuple[str, int, bool], OnRow] = Groups()

    def add(self, pod: Pod, row: int, *, claims: bool) -> None:
        """Add a pod that came to a row."""
        for key in self._keys:
            self._add(key, (pod, row, claims))

    def remove(self, pod: Pod, row: int, *, claims: bool) -> None:
        """Remove a pod that left its row, or whose claim there ended."""
        for key in self._keys:
            value = pod.labels.get(key)
            if value is not None:
                self._pods.drop((pod.namespace, key, value), (pod.uid, row, claims))

    def learn(self, key: str, pods: Iterable[OnRow]) -> None:
        """Keep pods by this label from now on; `pods` are all on rows now. Nothing changes for a known key."""
        if key not in self._keys:
            self._keys[key] = None
            for on_row in pods:
                self._add(key, on_row)

    def having(self, namespace: str, label: tuple[str, str]) -> Iterator[OnRow]:
        """Yield the pods of this namespace with this label, whose key was learned."""
        yield from self._pods.get((namespace, *label), {}).values()

    def forget(self) -> None:
        """Forget all keys."""
        self._keys.clear()
        self._pods.clear()

    def _add(self, key: str, on_row: OnRow) -> None:
        pod, row, claims = on_row
        value = pod.labels.get(key)
        if value is not None:
            self._pods.put((pod.namespace, key, value), (pod.uid, row, claims), on_row)


Numbers = npt.NDArray[np.int64]


class DomainCounts:
    """The numbers of `pods` and of owners of `claims` by domain; rows without the label are in the last, empty one.

    `of_row` has the number of the domain of each row, -1 without the label: as an index it is that of the last domain.
    With `counted`, a mask over all rows, only the pods of its rows count.
    """

    def __init__(
        self, of_row: Rows, pods: Mapping[int, int], claims: Mapping[int, int], counted: Mask | None = None
    ) -> None:
        self.of_row, self.counted = of_row, counted
        self._counted_in: Rows = of_row if counted is None else np.where(counted, of_row, NO_VALUE)
        domains = int(of_row.max(initial=-1)) + 2
        self.pods: Numbers = np.zeros(domains, dtype=np.int64)
        self.claims: Numbers = np.zeros(domains, dtype=np.int64)
        for total, numbers in ((self.pods, pods), (self.claims, claims)):
            if numbers:
                rows = np.fromiter(numbers.keys(), dtype=np.intp, count=len(numbers))
                amounts = np.fromiter(numbers.values(), dtype=np.int64, count=len(numbers))
                np.add.at(total, self._counted_in[rows], amounts)
            total[-1] = 0

    def is_of(self, of_row: Rows, counted: Mask | None) -> bool:
        """Return whether these are the domains of such rows, of which the same count."""
        if self.of_row is not of_row or counted is None or self.counted is None:
            return self.of_row is of_row and self.counted is counted
        return np.array_equal(self.counted, counted)

    def change(self, row: int, by: int, *, claims: bool) -> None:
        """Add to the domain of a row; a table that has grown since needs new domains anyway."""
        if row < len(self._counted_in) and self._counted_in[row] >= 0:
            (self.claims if claims else self.pods)[self._counted_in[row]] += by


Gone = npt.NDArray[np.int64]
Place = tuple[int, bool]
"""A row, and whether the pod owns a claim there instead of being there."""


class PodCount:
    """The pods that count by one thing: `rows` has the number by row, without rows that have none.

    `claimed` has the owners of claims by row, which are not in `rows`.
    """

    def __init__(self, by: Counted) -> None:
        self.by = by
        self.rows: Counter[int] = Counter()
        self.claimed: Counter[int] = Counter()
        self.specs: Counter[bytes] = Counter()
        """Key of a spec whose filters read this -> the number of pods that have it."""
        self.users = 0
        """How many known pods are interested in it."""
        self._domains: dict[str, DomainCounts] = {}
        self._followed: WeakSet[DomainCounts] | None = None
        self._members: dict[str, tuple[Place, ...]] = {}
        """Uid of a pod -> where it counts."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._members

    def uids(self) -> Iterable[str]:
        """Return the uids of the pods that count, in trials too."""
        return self._members

    def by_domain(self, topology_key: str, labels: LabelIndex) -> DomainCounts:
        """Return the pods by value of this label of nodes, open trials included."""
        domains, numbers = self._domains.get(topology_key), labels.numbers(topology_key)
        if domains is None or domains.of_row is not numbers:
            if len(self._domains) >= NUMBERS_MAX:
                self._domains = {
                    key: domains for key, domains in self._domains.items() if labels.keeps(key, domains.of_row)
                }
            domains = self._domains[topology_key] = DomainCounts(numbers, self.rows, self.claimed)
        return domains

    def follow(self, of_row: Rows, counted: Mask | None = None) -> DomainCounts:
        """Return the pods by these domains; they are kept up to date, in trials too, as long as a caller has them.

        Callers with the same domains share them: the classes of one workload differ in their requests alone.
        """
        if self._followed is None:
            self._followed = WeakSet()
        shared = (domains for domains in self._followed if domains.is_of(of_row, counted))
        domains = next(shared, None) or DomainCounts(of_row, self.rows, self.claimed, counted)
        self._followed.add(domains)
        return domains

    def domains(self) -> list[DomainCounts]:
        """Return the pods by domain as they are kept, in no order; some may be of older labels."""
        return [*self._domains.values(), *(self._followed or ())]

    def add(self, uid: str, row: int, *, claims: bool) -> None:
        """Count a pod on a row."""
        self._members[uid] = (*self._members.get(uid, ()), (row, claims))
        self._change(row, 1, claims=claims)

    def remove(self, uid: str, row: int, *, claims: bool) -> bool:
        """Undo `add`; return whether the pod counted there."""
        places = [*self._members.get(uid, ())]
        if (row, claims) not in places:
            return False
        places.remove((row, claims))
        if places:
            self._members[uid] = tuple(places)
        else:
            del self._members[uid]
        self._change(row, -1, claims=claims)
        return True

    def _change(self, row: int, by: int, *, claims: bool) -> None:
        numbers = self.claimed if claims else self.rows
        numbers[row] += by
        if not numbers[row]:
            del numbers[row]
        for domains in self._domains.values():
            domains.change(row, by, claims=claims)
        for domains in self._followed or ():
            domains.change(row, by, claims=claims)


class PodCounts:
    """All counts. `pods_on_rows` returns the pods that count on rows, their rows, and whether they own claims there."""

    def __init__(self) -> None:
        self.pods_on_rows: Callable[[], Iterable[OnRow]] = tuple
        self.namespaces: dict[str, Labels] = {}
        """The labels of the namespaces that were seen."""
        self.apart: dict[Counted, Gone] | None = None
        """What is counted -> per row of the table how many pods of the row a search has removed."""
        self.changed: dict[Counted, None] = {}
        """What counts differently since a reader took it out, as far as filters read it."""
        self.changed_specs: dict[bytes, None] = {}
        """The keys of specs to which something counted differently that is not counted any more."""
        self.terms = CarriedTerms(self.namespaces)
        self.begun = 0
        """Grows where a count begins, begins anew or ends."""
        self._counts: dict[Counted, PodCount] = {}
        self._index: SelectorIndex[PodCount] = SelectorIndex()
        self._by_label = PodsByLabel()
        self._specs: Counter[bytes] = Counter()
        self._begins = False
        """Whether a count begins, and has not all pods yet."""

    @property
    def used(self) -> bool:
        """Whether anything is counted."""
        return bool(self._counts)

    def of(self, by: Counted) -> PodCount:
        """Return the count of what a known pod is interested in."""
        return self._counts[by]

    def all(self) -> tuple[PodCount, ...]:
        """Return every count, in the order in which they came into use."""
        return tuple(self._counts.values())

    def objecting(self, spec: PodSpec) -> tuple[CarriedTerm, ...]:
        """Return the required anti-affinity that pods carry and that selects the pods of this class."""
        return tuple(term for term in self.terms.selecting(spec) if term.kind is CarriedKind.ANTI_AFFINITY)

    def note_all(self) -> None:
        """Note that everything that filters read may count differently."""
        for by in self._counts:
            self._note_changed(by)

    def take_changed(self) -> dict[bytes, None]:
        """Return the keys of the specs whose filters read what counts differently since the last call."""
        changed, found = self.changed, self.changed_specs
        self.changed, self.changed_specs = {}, {}
        for by in changed:
            found.update(dict.fromkeys(self._read_by(by)))
        return found

    def forget_changed(self) -> None:
        """Forget what counts differently, because no pod waits for it."""
        self.changed, self.changed_specs = {}, {}

    def _read_by(self, by: Counted) -> list[bytes]:
        """Return the keys of the specs whose filters read this."""
        return self.terms.selected(by) if isinstance(by, CarriedTerm) else list(self._counts[by].specs)

    def use(self, spec: PodSpec, interest: Interest) -> None:
        """Note that one more pod has this spec, and count what it is interested in."""
        self._specs[spec.key] += 1
        if spec.namespace is not None:
            self.terms.watch(spec)
        if interest is NO_INTEREST:
            return
        for by in _each(interest):
            count = self._counts.get(by) or self._begin(by)
            count.users += 1
        for by in interest.counts:
            self._counts[by].specs[spec.key] += 1

    def disuse(self, spec: PodSpec, interest: Interest) -> None:
        """Note that one pod less has this spec."""
        self._specs[spec.key] -= 1
        if not self._specs[spec.key]:
            del self._specs[spec.key]
            self.terms.unwatch(spec)
        if interest is NO_INTEREST:
            return
        for by in interest.counts:
            count = self._counts[by]
            count.specs[spec.key] -= 1
            if not count.specs[spec.key]:
                del count.specs[spec.key]
        for by in _each(interest):
            count = self._counts[by]
            count.users -= 1
            if not count.users:
                if by in self.changed:
                    self._take_out(by)
                del self._counts[by]
                self._drop_index(count)
                self.begun += 1
        if not self._counts:
            self._by_label.forget()  # pods that come while nothing is counted are not told

    def add(self, pod: Pod, row: int, *, claims: bool = False, tentative: bool = False) -> None:
        """Count a pod that came to a row, `tentative` in a trial."""
        counts = [count for count in self._candidates(pod) if is_counted(count.by, pod, self.namespaces)]
        for count in counts:
            count.add(pod.uid, row, claims=claims)
        if not tentative:
            self._by_label.add(pod, row, claims=claims)
            self._note(counts)

    def remove(self, pod: Pod, row: int, *, claims: bool = False, tentative: bool = False) -> None:
        """Undo `add`."""
        counts = [count for count in self._candidates(pod) if count.remove(pod.uid, row, claims=claims)]
        if not tentative:
            self._by_label.remove(pod, row, claims=claims)
            self._note(counts)

    def change(self, before: Pod, after: Pod, row: int, *, claims: bool) -> bool:
        """Count a pod that stays on its row as it is now; return whether it counts elsewhere than before."""
        self._by_label.remove(before, row, claims=claims)
        self._by_label.add(after, row, claims=claims)
        old = {id(count): count for count in self._candidates(before) if before.uid in count}
        new = {id(count): count for count in self._candidates(after) if is_counted(count.by, after, self.namespaces)}
        left = [count for key, count in old.items() if key not in new and count.remove(before.uid, row, claims=claims)]
        come = [count for key, count in new.items() if key not in old]
        for count in come:
            count.add(after.uid, row, claims=claims)
        self._note([*left, *come])
        return bool(left or come)

    def namespace_changed(self, name: str, before: Labels | None, after: Labels | None) -> bool:
        """Count the pods of a namespace by its labels after a change; None is a namespace that is not there.

        Return whether something may count differently.
        """
        counts = [count for count in self._counts.values() if depends_on_namespace(count.by, before, after)]
        for count in counts:
            self._note_changed(count.by)
            if count.by in self.changed:
                self._take_out(count.by)
        if after is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = after
        if counts:
            self.terms.namespaces_changed()
        for count in counts:
            self._restart(count)
        return bool(counts)

    def _candidates(self, pod: Pod) -> Iterator[PodCount]:
        yield from self._index.candidates(pod.namespace, pod.labels)
        yield from self._index.candidates(EVERY_NAMESPACE, pod.labels)
        for term in pod.spec.pod_affinity.carried:
            if term in self._counts:
                yield self._counts[term]

    def _note(self, counts: list[PodCount]) -> None:
        for count in counts:
            self._note_changed(count.by)

    def _note_changed(self, by: Counted) -> None:
        if not isinstance(by, CarriedTerm) or by.kind is CarriedKind.ANTI_AFFINITY:
            self.changed[by] = None

    def _take_out(self, by: Counted) -> None:
        """Note the specs that read this, instead of what is counted."""
        del self.changed[by]
        self.changed_specs.update(dict.fromkeys(self._read_by(by)))

    def _restart(self, old: PodCount) -> None:
        self._drop_index(old)
        new = self._begin(old.by)
        new.specs, new.users = old.specs, old.users
        self._note_changed(old.by)

    def _begin(self, by: Counted) -> PodCount:
        count, self._begins = PodCount(by), True
        self._counts[by] = count
        self.begun += 1
        if isinstance(by, CarriedTerm):
            self.terms.add(by)
        else:
            for namespace, selector in _indexed(by):
                self._index.put(namespace, selector, count)
        for pod, row, claims in self._may_count(by):
            if is_counted(by, pod, self.namespaces):
                count.add(pod.uid, row, claims=claims)
        self._begins = False
        return count

    def _may_count(self, by: Counted) -> Iterable[OnRow]:
        """Return the pods on rows that may count by this; where each has one of some labels, no others."""
        places = () if isinstance(by, CarriedTerm) else _indexed(by)
        found = [(namespace, required_label(selector)) for namespace, selector in places]
        labels = [(namespace, label) for namespace, label in found if label is not None and namespace]
        if not labels or len(labels) < len(found):
            return self.pods_on_rows()
        for _, (key, _) in labels:
            self._by_label.learn(key, self.pods_on_rows())
        return [count for namespace, label in labels for count in self._by_label.having(namespace, label)]

    def _drop_index(self, count: PodCount) -> None:
        if isinstance(count.by, CarriedTerm):
            self.terms.drop(count.by)
        else:
            for namespace, selector in _indexed(count.by):
                self._index.drop(namespace, selector, count)


def _each(interest: Interest) -> dict[Counted, None]:
    return dict.fromkeys((*interest.counts, *interest.scored, *interest.carried))


def _indexed(by: PodSelector | SelectedByTerms) -> list[tuple[str, LabelSelector | None]]:
    """Return the namespaces under which a count is found, with the selector that every pod there matches."""
    if isinstance(by, PodSelector):
        return [(by.namespace, by.labels)]
    first = by.terms[0]
    if first.namespace_selector is not None:
        return [(EVERY_NAMESPACE, first.selector)]
    return [(namespace, first.selector) for namespace in dict.fromkeys(first.namespaces)]
