"""The Services and controllers that select pods, and the pods among which a pod is spread by default.

Source: DefaultSelector in kube-scheduler's plugins: the selectors of all Services that select the pod, and that of its
controller, taken together.
"""

from collections.abc import Iterator
from typing import Final

from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import REPLICATION_CONTROLLER, SERVICE, PodSet
from aischeduler.model.selectors import Labels, LabelSelector, Requirement
from aischeduler.model.topology_spread import DefaultSelector, PodSelector
from aischeduler.state.groups import SelectorIndex

FOUND_MAX: Final = 4096
"""The most answers that are kept for one namespace."""

Question = tuple[str, tuple[tuple[str, str], ...]]
"""The controller and the labels of a pod."""


class PodSets:
    """All sets. Where a namespace has none, `default_of` costs one look."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str, str], PodSet] = {}
        """The sets by kind, namespace and name."""
        self._in: dict[str, dict[tuple[str, str, str], None]] = {}
        """Namespace -> the keys of its sets."""
        self._services: SelectorIndex[tuple[str, str, str]] = SelectorIndex()
        self._found: dict[str, dict[Question, DefaultSelector | None]] = {}

    def see(self, owner: PodSet) -> None:
        """Store a set as it is now."""
        if self.by_key.get(owner.key) == owner:
            return
        self.forget(owner.key)
        if owner.selector is None:
            return
        self.by_key[owner.key] = owner
        self._in.setdefault(owner.namespace, {})[owner.key] = None
        if owner.kind == SERVICE:
            self._services.put(owner.namespace, owner.selector, owner.key)

    def forget(self, key: tuple[str, str, str]) -> None:
        """Remove a set, if it is there."""
        owner = self.by_key.pop(key, None)
        self._found.pop(key[1], None)
        if owner is None:
            return
        keys = self._in[owner.namespace]
        del keys[key]
        if not keys:
            del self._in[owner.namespace]
        if owner.kind == SERVICE:
            self._services.drop(owner.namespace, owner.selector, key)

    def default_of(self, pod: Pod) -> DefaultSelector | None:
        """Return the pods among which the pod is spread by default; None where there are none, or it says it itself."""
        namespace, spec = pod.namespace, pod.spec
        if namespace not in self._in or spec.topology_spread or spec.spread_preferences:
            return None
        question = (pod.controller, tuple(pod.labels.items()))
        found = self._found.setdefault(namespace, {})
        if question not in found:
            if len(found) >= FOUND_MAX:
                found.clear()
            found[question] = self._default(namespace, pod.labels, pod.controller)
        return found[question]

    def _default(self, namespace: str, labels: Labels, controller: str) -> DefaultSelector | None:
        equal = {
            requirement.key: requirement
            for service in self._selecting(namespace, labels)
            for requirement in service.requirements
        }
        others: tuple[Requirement, ...] = ()
        kind, _, name = controller.partition("/")
        owner = self.by_key.get((kind, namespace, name))
        if owner is not None and owner.selector is not None:
            if kind == REPLICATION_CONTROLLER:
                equal.update((requirement.key, requirement) for requirement in owner.selector.requirements)
            else:
                others = owner.selector.requirements
        if not equal and not others:
            return None
        every = sorted(
            {*equal.values(), *others},
            key=lambda requirement: (requirement.key, requirement.operator, requirement.values),
        )
        selector = LabelSelector(tuple(every))
        return DefaultSelector(PodSelector(namespace, selector), selector.matches(labels))

    def _selecting(self, namespace: str, labels: Labels) -> Iterator[LabelSelector]:
        for key in self._services.candidates(namespace, labels):
            selector = self.by_key[key].selector
            if selector is not None and selector.requirements and selector.matches(labels):
                yield selector
