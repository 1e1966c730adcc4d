"""What a pod takes of the row on which it is placed."""

from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import Allocation, allocation_of
from aischeduler.model.pod import PodSpec


def allocation_on(runner: Runner, spec: PodSpec, row: int) -> Allocation:
    """Return what a pod takes on a row where it fits, with the volumes that are chosen for its claims there."""
    allocation = allocation_of(spec)
    if spec.volumes is None or not spec.volumes.claims:
        return allocation
    # looked for by name: a check against the protocol is slow, and pods with claims of their own are judged one by one
    choosers = (getattr(one.state, "choices", None) for one in runner.prefiltered(spec))
    choices = tuple(one for choose in choosers if choose is not None for one in choose(row))
    return Allocation(allocation.host_ports, allocation.volumes, choices) if choices else allocation
