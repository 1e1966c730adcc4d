"""What a waiting pod is told: kube-scheduler's sentence, then what was tried after it, one clause each.

Law: of each kind there is at most one clause, found by its kind and never by its place: which comes first is for the
pool to choose.
"""

import re
from collections.abc import Mapping
from typing import Final

from aischeduler.state.diagnosis import MESSAGE_LENGTH_MAX

PREEMPTION: Final = "preemption: "
BORROWING: Final = "borrowing: "

_COUNT: Final = re.compile(r"(?<!\S)\d+(?:/\d+)? ")
"""How many nodes or pods; a name of digits alone is never followed by a space."""
_PART_ENDS: Final = re.compile(r"[,;:.](?: |$)")


def sentence(refused: str, clauses: Mapping[str, str]) -> str:
    """Return why the pool's nodes refuse the pod, and of each kind what is said, each ended by a full stop."""
    parts = (refused, *(kind + said for kind, said in clauses.items() if said))
    text = " ".join(part if part.endswith(".") else f"{part}." for part in parts) if len(parts) > 1 else refused
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."


def same_but_for_counts(reason: str, other: str) -> bool:
    """Say whether two sentences differ in their counts at most, and in the order that follows from these."""
    return reason == other or without_counts(reason) == without_counts(other)


def without_counts(reason: str) -> tuple[str, ...]:
    """Return what a sentence says beside its counts: its parts, sorted, for counts decide their order."""
    return tuple(sorted(_COUNT.sub("", part) for part in _PART_ENDS.split(reason)))
