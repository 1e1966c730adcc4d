"""What rules count pods by: a selector of a spread constraint, terms of an affinity, or the term that pods carry.

Invariant: equal values count the same pods, so that pods which ask the same share one count.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import CarriedKind, CarriedTerm, PodAffinityTerm
from aischeduler.model.selectors import Labels
from aischeduler.model.topology_spread import PodSelector

SELECTED_MAX: Final = 4096
"""For so many terms one object stands for all equal ones, which is compared at once."""


class SelectedByTerms(Struct, frozen=True, cache_hash=True):
    """The pods that every one of some affinity terms selects; terminating pods count until they are gone.

    `unseen` says whether pods of namespaces that were not seen yet count where a term selects namespaces.
    """

    terms: tuple[PodAffinityTerm, ...]
    unseen: bool = False


Counted = PodSelector | SelectedByTerms | CarriedTerm


class Interest(Struct, frozen=True):
    """What is counted for a pod: what its filters read (`counts`), what its scores read, and the terms it carries."""

    counts: tuple[Counted, ...] = ()
    scored: tuple[Counted, ...] = ()
    carried: tuple[CarriedTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts or self.scored or self.carried)


NO_INTEREST: Final = Interest()


@lru_cache(maxsize=SELECTED_MAX)
def selected_by(*terms: PodAffinityTerm, unseen: bool = False) -> SelectedByTerms:
    """Return what counts the pods that all of these terms select, in whatever domains."""
    return SelectedByTerms(tuple(replace(term, topology_key="") for term in terms), unseen)


def is_counted(by: Counted, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Return whether a pod on a node counts; `namespaces` are the labels of the namespaces that were seen."""
    match by:
        case PodSelector():
            return not pod.terminating and by.matches(pod.namespace, pod.labels)
        case SelectedByTerms():
            of, labels = pod.namespace, pod.labels
            return all(term.selects(of, labels, namespaces, unseen=by.unseen) for term in by.terms)
        case CarriedTerm():
            return by in pod.spec.pod_affinity.carried


def depends_on_namespace(by: Counted, before: Labels | None, after: Labels | None) -> bool:
    """Return whether a change of the labels of a namespace changes what counts there; None is not seen."""
    terms: tuple[PodAffinityTerm, ...] = ()
    unseen = False
    match by:
        case SelectedByTerms():
            terms, unseen = by.terms, by.unseen
        case CarriedTerm():
            terms, unseen = (by.term,), by.kind is CarriedKind.ANTI_AFFINITY
    selectors = (term.namespace_selector for term in terms if term.namespace_selector is not None)
    return any(
        (unseen if before is None else selector.matches(before))
        != (unseen if after is None else selector.matches(after))
        for selector in selectors
    )
