"""The affinity terms that pods carry, and which of them select the pods of a class.

Invariants:
- A term is here while a pod that is known carries it.
- A term reads labels of the pods of some namespaces. The pods of a class agree in their namespace and in what the terms
  there read: which of the values that a requirement names a label has, or that it has another one. So a term selects
  all pods of a class or none.
- What terms read is counted: a term that no pod carries any more divides no classes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cachetools import LRUCache

from aischeduler.model.pod import PodSpec
from aischeduler.model.pod_affinity import CarriedKind, CarriedTerm
from aischeduler.model.selectors import Labels
from aischeduler.state.groups import Groups, SelectorIndex, required_label

EVERY_NAMESPACE: Final = ""
"""Terms are found by labels alone: a term can name several namespaces, or select them."""
CLASSES_MAX: Final = 1024
"""The most classes whose terms are kept; for another class they are found again."""
OTHER: Final = "\0"
"""Stands for every value of a label that no requirement names; no label has it."""
NO_KEY: Final = ""
NO_VALUE: Final = None

Read = tuple[str, str, str | None]
"""A namespace, or EVERY_NAMESPACE, with a term; a key that a term reads there, or NO_KEY; a value that it names."""


class CarriedTerms:
    """The terms, and the classes of waiting pods that they may select. `namespaces` are labels by name."""

    def __init__(self, namespaces: Mapping[str, Labels]) -> None:
        self._namespaces = namespaces
        self._reads: Counter[Read] = Counter()
        """How many terms read this."""
        self._terms: dict[CarriedTerm, None] = {}
        self._index: SelectorIndex[CarriedTerm] = SelectorIndex()
        self._selecting: LRUCache[bytes, tuple[CarriedTerm, ...]] = LRUCache(CLASSES_MAX)
        self._classes: dict[bytes, PodSpec] = {}
        self._by_label: Groups[tuple[str, str], bytes, None] = Groups()

    def add(self, term: CarriedTerm) -> None:
        """Add a term that the first pod carries."""
        self._terms[term] = None
        self._reads.update(_reads(term))
        self._index.put(EVERY_NAMESPACE, term.term.selector, term)
        self._selecting.clear()

    def drop(self, term: CarriedTerm) -> None:
        """Remove a term that no pod carries any more."""
        del self._terms[term]
        for read in _reads(term):
            self._reads[read] -= 1
            if not self._reads[read]:
                del self._reads[read]
        self._index.drop(EVERY_NAMESPACE, term.term.selector, term)
        self._selecting.clear()

    def namespaces_changed(self) -> None:
        """Find terms by the labels of namespaces as they are now."""
        self._selecting.clear()

    @property
    def divide(self) -> bool:
        """Whether terms divide any pods into classes."""
        return bool(self._reads)

    def new_reads(self, terms: Sequence[CarriedTerm]) -> tuple[Read, ...]:
        """Return what these terms read and no other term does: with them, pods may have to change their classes."""
        new = (term for term in terms if term not in self._terms)
        return tuple(dict.fromkeys(read for term in new for read in _reads(term) if read not in self._reads))

    def class_of(self, namespace: str, labels: Labels, new: Sequence[Read] = ()) -> tuple[tuple[str, str], ...] | None:
        """Return what terms read of a pod of this namespace with these labels, sorted; None where none may select it.

        `new` is what further terms read.
        """
        places = (namespace, EVERY_NAMESPACE)
        if not any(self._has((place, NO_KEY, NO_VALUE), new) for place in places):
            return None
        read = []
        for key, value in labels.items():
            if any(self._has((place, key, NO_VALUE), new) for place in places):
                named = any(self._has((place, key, value), new) for place in places)
                read.append((key, value if named else OTHER))
        return tuple(sorted(read))

    def _has(self, read: Read, new: Sequence[Read]) -> bool:
        return read in self._reads or read in new

    def selecting(self, spec: PodSpec) -> tuple[CarriedTerm, ...]:
        """Return the terms that select the pods of this class, in the order in which they came."""
        if not self._terms or spec.namespace is None:
            return ()
        found = self._selecting.get(spec.key)
        if found is None:
            labels = dict(spec.labels)
            candidates = self._index.candidates(EVERY_NAMESPACE, labels)
            found = tuple(term for term in candidates if self._selects(term, spec.namespace, labels))
            self._selecting[spec.key] = found
        return found

    def watch(self, spec: PodSpec) -> None:
        """Note a class of pods, so that `selected` finds it."""
        if spec.namespace is not None and spec.key not in self._classes:
            self._classes[spec.key] = spec
            for label in spec.labels:
                self._by_label.put(label, spec.key, None)

    def unwatch(self, spec: PodSpec) -> None:
        """Forget a class of pods."""
        if self._classes.pop(spec.key, None) is not None:
            for label in spec.labels:
                self._by_label.drop(label, spec.key)

    def selected(self, term: CarriedTerm) -> list[bytes]:
        """Return the keys of the noted classes that a term selects."""
        label = required_label(term.term.selector)
        keys = self._classes if label is None else self._by_label.get(label, {})
        specs = (self._classes[key] for key in keys)
        return [spec.key for spec in specs if self._selects(term, spec.namespace or "", dict(spec.labels))]

    def _selects(self, term: CarriedTerm, namespace: str, labels: Labels) -> bool:
        unseen = term.kind is CarriedKind.ANTI_AFFINITY
        return term.term.selects(namespace, labels, self._namespaces, unseen=unseen)


def _reads(term: CarriedTerm) -> Iterator[Read]:
    """Yield what a term reads, each once."""
    affinity, found = term.term, dict[Read, None]()
    if affinity.selector is None:
        return
    for place in (EVERY_NAMESPACE,) if affinity.namespace_selector is not None else affinity.namespaces:
        found[place, NO_KEY, NO_VALUE] = None
        for requirement in affinity.selector.requirements:
            for value in (NO_VALUE, *requirement.values):
                found[place, requirement.key, value] = None
    yield from found
