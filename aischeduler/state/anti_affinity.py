"""The required anti-affinity of pods on nodes, and the waiting pods that it holds.

Invariants:
- A term is kept once, with the pods that have it: the cost of a check grows with distinct terms, not with pods.
- A term that requires one value of a label is found by that label; only the others are checked for every pod.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.selectors import Labels, LabelSelector, Operator
from aischeduler.model.unsupported_constraints import PodAffinityTerm
from aischeduler.state.records import PodRecord

Pinned = tuple[str, str]
"""A label and the one value of it that a term matches."""


@dataclass(frozen=True, slots=True)
class Objection:
    """A pod on a node whose required anti-affinity matches a waiting pod; `name` is namespace/name."""

    uid: str
    name: str
    term: PodAffinityTerm


class AntiAffinity:
    """The terms of pods on nodes; `terms` is empty while there are none."""

    def __init__(self) -> None:
        self.terms: dict[PodAffinityTerm, dict[str, str]] = {}
        """Term with its namespaces -> the pods on nodes that have it: uid -> namespace/name."""
        self._pinned: dict[Pinned, dict[PodAffinityTerm, None]] = {}
        self._loose: dict[PodAffinityTerm, None] = {}
        self._blocked: dict[str, dict[str, PodRecord]] = {}
        """Uid of a pod on a node -> the waiting pods, by uid, whose reason names that pod."""

    def add(self, pod: Pod, spec: PodSpec) -> bool:
        """Add the terms of a pod that came to a node; return whether one of them is new."""
        new = False
        for term in terms_of(pod, spec):
            pods = self.terms.get(term)
            if pods is None:
                new, pods = True, self.terms.setdefault(term, {})
                self._found_by(term)[term] = None
            pods[pod.uid] = f"{pod.namespace}/{pod.name}"
        return new

    def remove(self, pod: Pod, spec: PodSpec) -> None:
        """Remove the terms of a pod that left its node."""
        for term in terms_of(pod, spec):
            pods = self.terms.get(term, {})
            pods.pop(pod.uid, None)
            if not pods and self.terms.pop(term, None) is not None:
                del self._found_by(term)[term]
                pin = _pin(term)
                if pin is not None and not self._pinned[pin]:
                    del self._pinned[pin]

    def against(self, pod: Pod, namespaces: Mapping[str, Labels]) -> Objection | None:
        """Return a pod on a node with a term that matches this pod; None where there is none."""
        for term in self._candidates(pod):
            if _matches(term, pod, namespaces):
                uid, name = next(iter(self.terms[term].items()))
                return Objection(uid, name, term)
        return None

    def block(self, record: PodRecord, uid: str) -> None:
        """Set the pod on a node that the reason of a held pod names; an empty uid clears it."""
        if record.blocker:
            blocked = self._blocked[record.blocker]
            del blocked[record.pod.uid]
            if not blocked:
                del self._blocked[record.blocker]
        record.blocker = uid
        if uid:
            self._blocked.setdefault(uid, {})[record.pod.uid] = record

    def blocked_by(self, uid: str) -> tuple[PodRecord, ...]:
        """Return the waiting pods whose reason names this pod."""
        return tuple(self._blocked.get(uid, {}).values())

    def blocked_in(self, namespace: str) -> tuple[PodRecord, ...]:
        """Return the waiting pods of a namespace that the anti-affinity of a pod on a node holds."""
        blocked = (record for records in self._blocked.values() for record in records.values())
        return tuple(record for record in blocked if record.pod.namespace == namespace)

    def _candidates(self, pod: Pod) -> Iterator[PodAffinityTerm]:
        for pin in pod.labels.items():
            yield from self._pinned.get(pin, ())
        yield from self._loose

    def _found_by(self, term: PodAffinityTerm) -> dict[PodAffinityTerm, None]:
        pin = _pin(term)
        return self._loose if pin is None else self._pinned.setdefault(pin, {})


def terms_of(pod: Pod, spec: PodSpec) -> Iterator[PodAffinityTerm]:
    """Yield the terms of a pod that can match a pod; a term without namespaces gets the pod's own."""
    for term in spec.anti_affinity:
        if term.selector is None:
            continue
        own = not term.namespaces and term.namespace_selector is None
        yield replace(term, namespaces=(pod.namespace,)) if own else term


def _pin(term: PodAffinityTerm) -> Pinned | None:
    for one in term.selector.requirements if term.selector is not None else ():
        if one.operator is Operator.IN and len(one.values) == 1:
            return one.key, one.values[0]
    return None


def _matches(term: PodAffinityTerm, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    return pod.namespace in term.namespaces or _selects(term.namespace_selector, namespaces.get(pod.namespace))


def _selects(selector: LabelSelector | None, labels: Labels | None) -> bool:
    """Return whether the selector may match a namespace of these labels; None for a namespace not seen yet."""
    return selector is not None and (labels is None or selector.matches(labels))
