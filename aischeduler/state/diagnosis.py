"""Why no node fits, in the words of kube-scheduler, which users can search for.

Source: kube-scheduler's FitError: the reasons with their numbers of nodes, sorted as text.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

AFFINITY_CONFLICT: Final = "pod affinity terms conflict"
UNCOUNTED: Final = frozenset((AFFINITY_CONFLICT,))
"""Reasons that lie in the pod alone, whatever nodes there are: kube-scheduler gives them no number."""
MESSAGE_LENGTH_MAX: Final = 1024
"""The API server takes no longer note in an Event."""


@dataclass(frozen=True)
class Diagnosis:
    """The number of checked `nodes`, and the `reasons`, each with its number of nodes; a node may count twice."""

    nodes: int
    reasons: Counter[str]

    @cached_property
    def message(self) -> str:
        """The message of the FailedScheduling event."""
        if not self.nodes:
            return "no nodes available to schedule pods"
        parts = sorted(reason if reason in UNCOUNTED else f"{count} {reason}" for reason, count in self.reasons.items())
        text = f"0/{self.nodes} nodes are available: {', '.join(parts)}."
        return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."
