"""The required anti-affinity of pods on nodes, and the waiting pods that it holds.

Invariant: a term is kept once, with the pods that have it, so that the cost of a check grows with distinct terms.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.selectors import Labels
from aischeduler.model.unsupported_constraints import PodAffinityTerm
from aischeduler.state.groups import Groups, SelectorIndex
from aischeduler.state.pod_records import PodRecord

EVERY_NAMESPACE: Final = ""
"""Terms are found by labels alone: a term can name several namespaces, or select them."""


@dataclass(frozen=True, slots=True)
class Objection:
    """A pod on a node whose required anti-affinity matches a waiting pod; `name` is namespace/name."""

    uid: str
    name: str
    term: PodAffinityTerm


class AntiAffinity:
    """The terms of pods on nodes; `terms` is empty while there are none."""

    def __init__(self) -> None:
        self.terms: Groups[PodAffinityTerm, str, str] = Groups()
        """Term with its namespaces -> the pods on nodes that have it: uid -> namespace/name."""
        self._index: SelectorIndex[PodAffinityTerm] = SelectorIndex()
        self._blocked: Groups[str, str, PodRecord] = Groups()
        """Uid of a pod on a node -> the waiting pods, by uid, whose reason names that pod."""

    def add(self, pod: Pod, spec: PodSpec) -> None:
        """Add the terms of a pod that came to a node."""
        for term in terms_of(pod, spec):
            self.terms.put(term, pod.uid, f"{pod.namespace}/{pod.name}")
            self._index.put(EVERY_NAMESPACE, term.selector, term)

    def remove(self, pod: Pod, spec: PodSpec) -> None:
        """Remove the terms of a pod that left its node."""
        for term in terms_of(pod, spec):
            self.terms.drop(term, pod.uid)
            if term not in self.terms:
                self._index.drop(EVERY_NAMESPACE, term.selector, term)

    def against(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Objection | None:
        """Return a pod on a node with a term that matches this pod; None where there is none."""
        for term in self._index.candidates(EVERY_NAMESPACE, pod.labels):
            if _matches(term, pod, namespaces):
                uid, name = next(iter(self.terms[term].items()))
                return Objection(uid, name, term)
        return None

    def block(self, record: PodRecord, uid: str) -> None:
        """Set the pod on a node that the reason of a held pod names; an empty uid clears it."""
        if record.blocker:
            self._blocked.drop(record.blocker, record.pod.uid)
        record.blocker = uid
        if uid:
            self._blocked.put(uid, record.pod.uid, record)

    def blocked_by(self, uid: str) -> tuple[PodRecord, ...]:
        """Return the waiting pods whose reason names this pod."""
        return tuple(self._blocked.get(uid, {}).values())

    def blocked_in(self, namespace: str) -> tuple[PodRecord, ...]:
        """Return the waiting pods of a namespace that the anti-affinity of a pod on a node holds."""
        blocked = (record for records in self._blocked.values() for record in records.values())
        return tuple(record for record in blocked if record.pod.namespace == namespace)


def terms_of(pod: Pod, spec: PodSpec) -> Iterator[PodAffinityTerm]:
    """Yield the terms of a pod that can match a pod; a term without namespaces gets the pod's own."""
    for term in spec.anti_affinity:
        if term.selector is None:
            continue
        own = not term.namespaces and term.namespace_selector is None
        yield replace(term, namespaces=(pod.namespace,)) if own else term


def _matches(term: PodAffinityTerm, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    labels, selector = namespaces.get(pod.namespace), term.namespace_selector
    # a namespace that was not seen yet may have any labels
    return pod.namespace in term.namespaces or (selector is not None and (labels is None or selector.matches(labels)))
