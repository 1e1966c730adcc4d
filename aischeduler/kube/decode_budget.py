"""From documents of PodDisruptionBudgets and namespaces to values of the model.

Laws:
- A budget whose selector cannot be read protects nothing, and `budget_problem` says so.

Source: policy/v1 PodDisruptionBudget.
"""

import msgspec

from aischeduler.kube.api_types import UNREADABLE, BudgetDocument, NamespaceDocument, SelectorPart
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import NamespaceSeen
from aischeduler.model.selectors import LabelSelector, SelectorError, label_requirement, label_selector

SELECTOR = "spec.selector"


def read_budget(document: BudgetDocument) -> DisruptionBudget:
    """Return the budget as its status stands; without a status it allows no disruption."""
    metadata, status = document.metadata, document.status
    try:
        selector = _selector(document)
    except (SelectorError, *UNREADABLE):
        selector = None
    return DisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        selector=selector,
        disruptions_allowed=status.disruptions_allowed if status is not None else 0,
        disrupted=frozenset(status.disrupted_pods or ()) if status is not None else frozenset(),
    )


def budget_problem(document: BudgetDocument) -> str:
    """Return why the budget protects nothing though it has a selector; empty where it can be read."""
    try:
        _selector(document)
    except SelectorError as error:
        return str(error)
    except UNREADABLE as error:
        return f"{SELECTOR}: {error}"
    return ""


def read_namespace(document: NamespaceDocument) -> NamespaceSeen:
    """Return the namespace with its labels."""
    return NamespaceSeen(document.metadata.name, document.metadata.labels or {})


def _selector(document: BudgetDocument) -> LabelSelector | None:
    raw = document.spec.selector if document.spec is not None else b""
    part = msgspec.json.decode(raw, type=SelectorPart | None) if raw else None
    return read_selector(SELECTOR, part) if part is not None else None


def read_selector(field: str, part: SelectorPart) -> LabelSelector:
    """Return the selector at the path `field`. Raises SelectorError where no object can be matched against it."""
    expressions = tuple(
        label_requirement(
            f"{field}.matchExpressions[{index}]", one.key or "", one.operator or "", tuple(one.values or ())
        )
        for index, one in enumerate(part.match_expressions or ())
    )
    return label_selector(field, part.match_labels or {}, expressions)
