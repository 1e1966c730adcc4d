"""A test oracle of labels and amounts: selectors, card types by the words of their names, machine groups.

Invariants:
- It uses no code of the product except values: a name means a card where all its words are among those of the card.
- It knows one label of cards.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import GroupRule
from aischeduler.model.selectors import Labels, LabelSelector, Requirement

PRODUCT = "nvidia.com/gpu.product"
GROUP = "resource.aibee.cn/machine-group"


def suits(spec: PodSpec, node: Node, rare: Iterable[str]) -> bool:
    """Say whether a pod may be on a node in whose pool these types are rare."""
    card = words(node.labels.get(PRODUCT, ""))
    named = [words(one) for one in spec.gpu_types if _means(words(one), card)]
    wanted = bool(named) or not (spec.gpu_types and spec.gpu_type_required)
    rare_here = [words(one) for one in rare if words(one) <= card]
    is_open = not rare_here or any(one <= name for one in rare_here for name in named)
    return wanted and is_open and node.labels.get(GROUP, "") == spec.machine_group


def is_rare(node: Node, rare: Iterable[str]) -> bool:
    """Say whether the cards of a node are of one of these types."""
    card = words(node.labels.get(PRODUCT, ""))
    return any(words(one) <= card for one in rare)


def may_name(group: str, labels: Labels | None, rules: Iterable[GroupRule]) -> bool:
    """Say whether pods of a namespace with these labels may name the group; a namespace without labels is not known."""
    about = [rule for rule in rules if group and rule.name == group]
    return not about or (labels is not None and any(matches(rule.namespaces, labels) for rule in about))


def matches(selector: LabelSelector, labels: Labels) -> bool:
    """Say whether all requirements hold of these labels."""
    return all(_holds(one, labels) for one in selector.requirements)


def _holds(requirement: Requirement, labels: Labels) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator.value:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise AssertionError(f"{other} is no operator of a label selector")


def taken(spec: PodSpec) -> Counter[str]:
    """Return what a pod takes of a node."""
    return Counter({**spec.request.amounts, "pods": 1})


def total_of(pods: Iterable[Pod]) -> Counter[str]:
    """Return what these pods take together."""
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(taken(pod.spec))
    return total


def words(name: str) -> frozenset[str]:
    """Return the words of the name of a card."""
    return frozenset(name.upper().replace(" ", "-").split("-")) - {""}


def _means(name: Collection[str], card: frozenset[str]) -> bool:
    return set(name) <= card and ("MIG" in name) == ("MIG" in card)
