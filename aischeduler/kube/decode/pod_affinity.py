"""Decode the inter-pod affinity of a pod, and label selectors.

Source: kube-scheduler's AffinityTerm: a term without namespaces and namespaceSelector selects pods of its own
namespace.
"""

from collections.abc import Iterator
from typing import Final

from aischeduler.kube.decode.api_types import PodAffinityPart, PodTermPart, SelectorPart
from aischeduler.model.pod_affinity import PodAffinity, PodAffinityTerm, pod_affinity
from aischeduler.model.selectors import LabelSelector, SelectorError, label_requirement, label_selector

AFFINITY: Final = "spec.affinity.podAffinity"
ANTI_AFFINITY: Final = "spec.affinity.podAntiAffinity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def read_pod_affinity(near: PodAffinityPart | None, apart: PodAffinityPart | None, namespace: str) -> PodAffinity:
    """Return the affinity of a pod of this namespace. Raises SelectorError, which names the field, for a bad term."""
    return pod_affinity(
        _required(AFFINITY, near, namespace),
        _required(ANTI_AFFINITY, apart, namespace),
        (*_preferred(AFFINITY, near, namespace, 1), *_preferred(ANTI_AFFINITY, apart, namespace, -1)),
    )


def read_selector(field: str, part: SelectorPart) -> LabelSelector:
    """Return the label selector at the path `field`; raises SelectorError if it is invalid."""
    expressions = tuple(
        label_requirement(
            f"{field}.matchExpressions[{index}]",
            expression.key or "",
            expression.operator or "",
            tuple(expression.values or ()),
        )
        for index, expression in enumerate(part.match_expressions or ())
    )
    return label_selector(field, part.match_labels or {}, expressions)


def _required(path: str, part: PodAffinityPart | None, namespace: str) -> Iterator[PodAffinityTerm]:
    for index, term in enumerate((part and part.required) or ()):
        yield _term(f"{path}.{REQUIRED}[{index}]", term, namespace)


def _preferred(
    path: str, part: PodAffinityPart | None, namespace: str, sign: int
) -> Iterator[tuple[int, PodAffinityTerm]]:
    for index, preference in enumerate((part and part.preferred) or ()):
        field = f"{path}.{PREFERRED}[{index}]"
        if preference.pod_affinity_term is None:
            raise SelectorError(f"{field}.podAffinityTerm: is not set")
        if not 1 <= preference.weight <= 100:
            raise SelectorError(f"{field}.weight: {preference.weight} is not a whole number from 1 to 100")
        yield sign * preference.weight, _term(f"{field}.podAffinityTerm", preference.pod_affinity_term, namespace)


def _term(field: str, part: PodTermPart, namespace: str) -> PodAffinityTerm:
    if not part.topology_key:
        raise SelectorError(f"{field}.topologyKey: is not set")
    among, others, named = part.label_selector, part.namespace_selector, tuple(sorted(part.namespaces or ()))
    return PodAffinityTerm(
        part.topology_key,
        read_selector(f"{field}.labelSelector", among) if among is not None else None,
        named if named or others is not None else (namespace,),
        read_selector(f"{field}.namespaceSelector", others) if others is not None else None,
    )
