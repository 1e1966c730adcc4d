"""A pod on a row: what the node table counts, and what a trial places and removes."""

from msgspec import Struct

from aischeduler.model.allocation import Allocation
from aischeduler.model.pod import Pod, PodSpec


class AssignedPod(Struct, frozen=True, gc=False):
    """A pod that counts on a row with its requests (those of `spec`) and with what it has for itself there.

    `spec` is the spec that counts, which may be older than that of `pod`. With `claims` the pod is not there yet: it
    owns a claim.
    """

    pod: Pod
    spec: PodSpec
    row: int
    allocation: Allocation
    claims: bool = False
