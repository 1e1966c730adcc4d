"""The hard constraints of a pod that Ai-Scheduler does not support, with the field of each.

Invariant: only constraints that keep a pod pending in kube-scheduler count.

Source: kube-scheduler's DynamicResources.
"""

from aischeduler.kube.api_types import PodSpecPart
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind


def unsupported_constraints(spec: PodSpecPart) -> tuple[Constraint, ...]:
    """Return the unsupported constraints in a fixed order; almost every pod has none."""
    return (Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims"),) if spec.resource_claims else ()
