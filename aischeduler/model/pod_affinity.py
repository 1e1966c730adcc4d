"""Inter-pod affinity: terms that select pods near which, or away from which, a pod runs.

Source: PodAffinity, PodAntiAffinity and PodAffinityTerm of Kubernetes' core API. The API server has merged
matchLabelKeys and mismatchLabelKeys into the selectors.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import Labels, LabelSelector

SHARED_MAX: Final = 4096
"""The most terms of pods for which one object stands for all equal ones."""


class PodAffinityTerm(Struct, frozen=True):
    """Pods in the domain of one value of the node label `topology_key`.

    It selects the pods of `selector` in `namespaces`, and in the namespaces that `namespace_selector` matches. Without
    a `selector` it selects no pod.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None

    def selects(self, namespace: str, labels: Labels, known: Mapping[str, Labels], *, unseen: bool) -> bool:
        """Return whether it selects a pod; `known` are the labels of namespaces.

        A namespace that was not seen yet may have any labels: `unseen` says whether its pods count where they matter.
        """
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        if self.namespace_selector is None:
            return False
        found = known.get(namespace)
        return unseen if found is None else self.namespace_selector.matches(found)


class CarriedKind(StrEnum):
    """What a term of a pod on a node means for a pod that it selects."""

    ANTI_AFFINITY = "anti-affinity"
    """The pod may not come into the domain."""
    AFFINITY = "affinity"
    """The pod on the node required such a pod: the domain scores higher."""
    PREFERENCE = "preference"
    """The domain scores higher, or lower, by the weight."""


class CarriedTerm(Struct, frozen=True, cache_hash=True):
    """A term as the pods have it that carry it; `weight` is negative for a preferred anti-affinity."""

    kind: CarriedKind
    term: PodAffinityTerm
    weight: int = 1


class PodAffinity(Struct, frozen=True):
    """The terms of one pod; a weight is from 1 to 100, and negative for a preferred anti-affinity.

    `carried` are all terms as they count for other pods, each once.
    """

    required: tuple[PodAffinityTerm, ...] = ()
    anti_required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[tuple[int, PodAffinityTerm], ...] = ()
    carried: tuple[CarriedTerm, ...] = ()


NO_POD_AFFINITY: Final = PodAffinity()


def pod_affinity(
    required: Iterable[PodAffinityTerm] = (),
    anti_required: Iterable[PodAffinityTerm] = (),
    preferred: Iterable[tuple[int, PodAffinityTerm]] = (),
) -> PodAffinity:
    """Return the terms with `carried`. A term that a pod has twice counts twice in scores, as in kube-scheduler."""
    hard, apart, soft = tuple(required), tuple(anti_required), tuple(preferred)
    near, weights = Counter(hard), Counter[PodAffinityTerm]()
    for weight, term in soft:
        weights[term] += weight
    carried = (
        *(CarriedTerm(CarriedKind.ANTI_AFFINITY, term) for term in dict.fromkeys(apart)),
        *(CarriedTerm(CarriedKind.AFFINITY, term, times) for term, times in near.items()),
        *(CarriedTerm(CarriedKind.PREFERENCE, term, weight) for term, weight in weights.items() if weight),
    )
    if not (carried or hard or apart or soft):
        return NO_POD_AFFINITY
    return _shared(PodAffinity(hard, apart, soft, carried))


@lru_cache(maxsize=SHARED_MAX)
def _shared(affinity: PodAffinity) -> PodAffinity:
    """Return the first of equal ones: the terms of pods that ask alike are compared at once."""
    return affinity
