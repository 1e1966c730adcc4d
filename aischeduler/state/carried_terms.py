"""The affinity terms that pods carry, and which of them select the pods of a class.

Invariants:
- A term is here while a pod that is known carries it.
- `keys` are the labels that a term ever read. The pods of a class agree in them, and in their namespace, so that a term
  selects all pods of a class or none.
"""

from collections.abc import Mapping
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


class CarriedTerms:
    """The terms, and the classes of waiting pods that they may select. `namespaces` are labels by name."""

    def __init__(self, namespaces: Mapping[str, Labels]) -> None:
        self._namespaces = namespaces
        self.keys: dict[str, None] = {}
        """The keys of labels that a term ever read."""
        self.met = False
        """Whether there ever was a term."""
        self._terms: dict[CarriedTerm, None] = {}
        self._index: SelectorIndex[CarriedTerm] = SelectorIndex()
        self._selecting: LRUCache[bytes, tuple[CarriedTerm, ...]] = LRUCache(CLASSES_MAX)
        self._classes: dict[bytes, PodSpec] = {}
        self._by_label: Groups[tuple[str, str], bytes, None] = Groups()

    def add(self, term: CarriedTerm) -> None:
        """Add a term that the first pod carries."""
        self._terms[term] = None
        self._index.put(EVERY_NAMESPACE, term.term.selector, term)
        self._selecting.clear()

    def drop(self, term: CarriedTerm) -> None:
        """Remove a term that no pod carries any more."""
        del self._terms[term]
        self._index.drop(EVERY_NAMESPACE, term.term.selector, term)
        self._selecting.clear()

    def namespaces_changed(self) -> None:
        """Find terms by the labels of namespaces as they are now."""
        self._selecting.clear()

    def learn(self, terms: tuple[CarriedTerm, ...]) -> bool:
        """Note the labels that these terms read; return whether one is new: classes of pods may have to be divided."""
        read = {one.key for term in terms if term.term.selector is not None for one in term.term.selector.requirements}
        new = sorted(read - self.keys.keys())
        self.keys.update(dict.fromkeys(new))
        first, self.met = not self.met, True
        return bool(new) or first

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
        return [one.key for one in specs if self._selects(term, one.namespace or "", dict(one.labels))]

    def _selects(self, term: CarriedTerm, namespace: str, labels: Labels) -> bool:
        unseen = term.kind is CarriedKind.ANTI_AFFINITY
        return term.term.selects(namespace, labels, self._namespaces, unseen=unseen)
