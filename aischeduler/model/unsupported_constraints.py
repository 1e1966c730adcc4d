"""Hard constraints of pods that no plugin checks, by kind and field.

Invariant: kube-scheduler keeps a pod waiting for each of these; a preference is no constraint.
"""

from enum import StrEnum

from msgspec import Struct


class ConstraintKind(StrEnum):
    """The kind of a constraint that holds pods; a label of metrics."""

    RESOURCE_CLAIM = "resource_claim"
    VOLUME_CLAIM = "volume_claim"
    QUOTA = "quota"
    QUEUE = "queue"
    DEVICES = "devices"


class Constraint(Struct, frozen=True):
    """A field of a pod with a hard constraint; `field` is its path."""

    kind: ConstraintKind
    field: str
