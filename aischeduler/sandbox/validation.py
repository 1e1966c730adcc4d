"""What every object's metadata must be."""

from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import (
    JsonObject,
    dns_label_errors,
    label_value_errors,
    name_errors,
    qualified_name_errors,
)
from aischeduler.sandbox.status import Cause, forbidden_field, invalid_value, required, too_long

LABEL_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
NODE_OPERATORS = LABEL_OPERATORS | {"Gt", "Lt"}
ANNOTATIONS_BYTES_MAX = 256 * 1024


def metadata_errors(resource: Resource, metadata: JsonObject) -> list[Cause]:
    """Say what is wrong with an object's name, labels and annotations."""
    causes = []
    name = metadata["name"]
    wrong = dns_label_errors(name) if resource.kind == "Namespace" else name_errors(name)
    if wrong is not None:
        causes.append(invalid_value("metadata.name", name, wrong))
    return [
        *causes,
        *label_errors("metadata.labels", metadata.get("labels") or {}),
        *annotation_errors("metadata.annotations", metadata.get("annotations") or {}),
    ]


def label_errors(field: str, labels: dict[str, str]) -> list[Cause]:
    """Say what is wrong with labels."""
    causes = []
    for key, value in labels.items():
        if (wrong := qualified_name_errors(key)) is not None:
            causes.append(invalid_value(field, key, wrong))
        if (wrong := label_value_errors(value)) is not None:
            causes.append(invalid_value(field, value, wrong))
    return causes


def annotation_errors(field: str, annotations: dict[str, str]) -> list[Cause]:
    """Say what is wrong with annotations; their values are free, their sum is not."""
    causes = []
    size = 0
    for key, value in annotations.items():
        size += len(key.encode()) + len(value.encode())
        if (wrong := qualified_name_errors(key.lower())) is not None:
            causes.append(invalid_value(field, key, wrong))
    if size > ANNOTATIONS_BYTES_MAX:
        causes.append(too_long(field, f"may not be more than {ANNOTATIONS_BYTES_MAX} bytes"))
    return causes


def label_selector_errors(selector: JsonObject, path: str) -> list[Cause]:
    """Say what is wrong with a `LabelSelector`."""
    causes = label_errors(f"{path}.matchLabels", selector.get("matchLabels") or {})
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        causes += expression_errors(one, f"{path}.matchExpressions[{index}]", LABEL_OPERATORS)
    return causes


def expression_errors(expression: JsonObject, path: str, operators: frozenset[str]) -> list[Cause]:
    """Say what is wrong with one requirement of a selector that knows these operators."""
    operator, values = expression.get("operator", ""), expression.get("values") or []
    key = expression.get("key", "")
    causes = []
    match operator:
        case _ if operator not in operators:
            causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
        case "In" | "NotIn" if not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist" if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden_field(f"{path}.values", detail))
        case "Gt" | "Lt" if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            causes.append(required(f"{path}.values", detail))
    if (wrong := qualified_name_errors(key)) is not None:
        causes.append(invalid_value(f"{path}.key", key, wrong))
    return causes
