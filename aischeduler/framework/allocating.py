"""What a pod takes of the row on which it is placed."""

from aischeduler.framework.plugin import VolumeChooser
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import Allocation, allocation_of
from aischeduler.model.pod import PodSpec


def allocation_on(runner: Runner, spec: PodSpec, row: int) -> Allocation:
    """Return what a pod takes on a row where it fits, with the volumes that are chosen for its claims there."""
    allocation = allocation_of(spec)
    if spec.volumes is None or not spec.volumes.claims:
        return allocation
    states = (one.state for one in runner.prefiltered(spec))
    choices = tuple(one for state in states if isinstance(state, VolumeChooser) for one in state.choices(row))
    return Allocation(allocation.host_ports, allocation.volumes, choices) if choices else allocation
