"""Why no node would do, in kube-scheduler's words, which users know how to search for.

Source: kube-scheduler's FitError: the reasons with their numbers of nodes, sorted as text.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

MESSAGE_LENGTH_MAX: Final = 1024
"""An event's note holds no more."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`nodes` of the pool were looked at; `reasons` says how many were refused for what (one may count twice)."""

    nodes: int
    reasons: tuple[tuple[str, int], ...]

    def message(self) -> str:
        """Return the sentence of the FailedScheduling event."""
        if not self.nodes:
            return "no nodes available to schedule pods"
        parts = sorted(f"{count} {reason}" for reason, count in self.reasons)
        text = f"0/{self.nodes} nodes are available: {', '.join(parts)}."
        return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."


def diagnosis(nodes: int, reasons: Counter[str]) -> Diagnosis:
    """Make a diagnosis with its reasons in order."""
    return Diagnosis(nodes, tuple(sorted(reasons.items())))
