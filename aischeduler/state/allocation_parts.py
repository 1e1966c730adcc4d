"""The parts of an allocation: what pods have for themselves on rows beside amounts. Host ports and volumes are parts.

Invariants:
- The node table asks each of its parts, in their order. A part is taken and freed in pairs, by pods on rows and by
  owners of claims on room, which may take more than there is.
- Undo is `free` for `take`, and `take` for `free`. A trial, which is `tentative`, restores the stamp of each part too:
  what was kept before it holds again.
- A search for victims clears many rows at once. Each row is judged as if pods had left that row alone, and at its end
  everything is as before.
"""

from typing import Protocol

from aischeduler.model.pod import PodSpec
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningPods, Slots


class Cleared(Protocol):
    """A part while a search for victims is open."""

    def count(self, slots: Slots, sign: int) -> None:
        """Remove these running pods from their rows (-1), or add them again (1)."""

    def end(self) -> None:
        """Let all pods count as before the search."""


class AllocationPart(Protocol):
    """One kind of what pods have for themselves, on all rows."""

    def take(self, assigned: AssignedPod, *, tentative: bool) -> None:
        """Take from a row what a pod has there."""

    def free(self, assigned: AssignedPod, *, tentative: bool) -> None:
        """Give back to a row what a pod has there."""

    def stamp(self) -> int:
        """Return the version of what changes in trials too; 0 where it is read again with the rows that changed."""
        return 0

    def restore(self, stamp: int) -> None:  # noqa: ARG002 - most parts keep nothing
        """Set that version at the end of a trial."""
        return

    def clearing(self, asker: PodSpec, running: RunningPods) -> Cleared | None:
        """Begin a search for victims for a pod of this spec; None where the part does not matter to it."""
