"""What every object's metadata must be."""

from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import (
    JsonObject,
    dns_label_errors,
    label_value_errors,
    name_errors,
    qualified_name_errors,
)
from aischeduler.sandbox.status import Cause, invalid_value, too_long

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
