"""Decode the topology spread constraints of a pod.

Source: kube-scheduler's PodTopologySpread: a selector without requirements matches no pod on a node; matchLabelKeys add
the pod's own values of labels.
"""

from typing import Final

from aischeduler.kube.decode.api_types import SelectorPart, SpreadPart
from aischeduler.kube.decode.pod_affinity import read_selector
from aischeduler.model.selectors import Labels, LabelSelector, Operator, SelectorError, label_requirement
from aischeduler.model.topology_spread import PodSelector, TopologySpreadConstraint
from aischeduler.model.user_text import quoted

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
"""The whenUnsatisfiable of a hard constraint, and its default."""
HONOR: Final = "Honor"
IGNORE: Final = "Ignore"


def spread_constraint(
    field: str, part: SpreadPart, selector: SelectorPart | None, namespace: str, labels: Labels
) -> TopologySpreadConstraint:
    """Return the constraint at the path `field` of a pod of this namespace and these labels. Raises SelectorError."""
    if part.max_skew is None or part.max_skew < 1:
        raise SelectorError(f"{field}.maxSkew: {part.max_skew} is not a whole number above zero")
    if not part.topology_key:
        raise SelectorError(f"{field}.topologyKey: is not set")
    policies = (("nodeAffinityPolicy", part.node_affinity_policy), ("nodeTaintsPolicy", part.node_taints_policy))
    for name, policy in policies:
        if policy not in (None, HONOR, IGNORE):
            raise SelectorError(f"{field}.{name}: {quoted(policy)} is not one of {HONOR}, {IGNORE}")
    matching = _selector(field, part, selector, labels)
    counted = matching if matching is not None and matching.requirements else None
    return TopologySpreadConstraint(
        topology_key=part.topology_key,
        max_skew=part.max_skew,
        selector=PodSelector(namespace, counted) if counted is not None else None,
        selects_itself=matching is not None and matching.matches(labels),
        min_domains=part.min_domains or 1,
        honors_affinity=part.node_affinity_policy != IGNORE,
        honors_taints=part.node_taints_policy == HONOR,
    )


def is_hard(part: SpreadPart) -> bool:
    """Return whether the pod requires the constraint; else it prefers it (`ScheduleAnyway`)."""
    return (part.when_unsatisfiable or DO_NOT_SCHEDULE) == DO_NOT_SCHEDULE


def _selector(field: str, part: SpreadPart, selector: SelectorPart | None, labels: Labels) -> LabelSelector | None:
    if selector is None:
        return None
    found = read_selector(f"{field}.labelSelector", selector)
    own = tuple(
        label_requirement(f"{field}.matchLabelKeys", key, Operator.IN, (labels[key],))
        for key in part.match_label_keys or ()
        if key in labels
    )
    return LabelSelector(
        (*found.requirements, *(requirement for requirement in own if requirement not in found.requirements))
    )
