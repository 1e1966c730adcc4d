"""The states of a pod and what changes them, as one table; `python -m aischeduler.state.transitions` prints it.

Invariants:
- The state of a pod changes here and nowhere else.
- A change that the table does not have is a bug of the scheduler: it raises, and the recovery confines it to the pod.
"""

import sys
from enum import Enum
from typing import Final

from aischeduler.state.pod_records import WAITING, PodRecord, PodState


class ImpossibleChangeError(Exception):
    """Something happened to a pod that cannot happen in its state."""


class Transition(Enum):
    """What happened to a pod; the value says it in words."""

    __hash__ = object.__hash__  # as that of PodState

    GATED = "a scheduling gate holds it, or its unit is not complete"
    GROUPED = "another pod of its unit leads"
    READY = "it is to be tried, and its backoff has ended"
    BACKS_OFF = "it is to be tried, and its backoff has not ended"
    NO_ROOM = "an attempt found no node and no lender, or waits for up-to-date data"
    MADE_ROOM = "an attempt claimed room, or keeps the claimed room"
    REFUSED = "an attempt may not place it, or a read shows why it cannot be bound now"
    FAILED = "an exception, a refused Binding, or an error of the API server"
    PLACED = "an attempt found a node"
    SHOWN = "the watch shows it on a node"
    GONE = "it was deleted, or it finished"


_TRIED: Final = (PodState.ACTIVE, PodState.BACKOFF)
_WAITING: Final = tuple(state for state in PodState if state in WAITING)
_ANY: Final = tuple(state for state in PodState if state is not PodState.GONE)

_RULES: Final = (
    (Transition.GATED, (PodState.NEW, *_WAITING), PodState.GATED),
    (Transition.GROUPED, (PodState.NEW, *_WAITING), PodState.GROUPED),
    (Transition.READY, (PodState.NEW, *_WAITING, PodState.ASSUMED), PodState.ACTIVE),
    (Transition.BACKS_OFF, (PodState.NEW, *_WAITING), PodState.BACKOFF),
    (Transition.NO_ROOM, _TRIED, PodState.PARKED),
    (Transition.MADE_ROOM, _TRIED, PodState.NOMINATED),
    (Transition.REFUSED, (*_TRIED, PodState.ASSUMED), PodState.HELD),
    (Transition.FAILED, _ANY, PodState.BACKOFF),
    (Transition.PLACED, (*_TRIED, PodState.GROUPED), PodState.ASSUMED),
    (Transition.SHOWN, _ANY, PodState.BOUND),
    (Transition.GONE, _ANY, PodState.GONE),
)
"""What happened, the states in which it can happen, and the state after it."""

TRANSITIONS: Final = {(before, change): after for change, states, after in _RULES for before in states}
"""The state before, and what happened -> the state after."""


def change_state(record: PodRecord, change: Transition) -> None:
    """Transition the state of a pod as the table says; raises ImpossibleChangeError."""
    after = TRANSITIONS.get((record.state, change))
    if after is None:
        raise ImpossibleChangeError(f"the pod {record.pod.uid} is {record.state.name}, and {change.value}")
    if record.unit is not None:
        record.unit.assumed += (after is PodState.ASSUMED) - (record.state is PodState.ASSUMED)
    record.state = after


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| What happened | In the states | State after it |", "|---|---|---|"]
    for change, states, after in _RULES:
        names = "every state" if states is _ANY else ", ".join(state.name.capitalize() for state in states)
        lines.append(f"| {change.value} | {names} | {after.name.capitalize()} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
