"""The message of a waiting pod: kube-scheduler's sentence, then one clause per further thing that was tried.

Invariant: each kind has at most one clause; `makeRoom` of the pool decides which comes first.
"""

import re
from collections.abc import Mapping
from typing import Final

from aischeduler.state.diagnosis import MESSAGE_LENGTH_MAX

PREEMPTION: Final = "preemption: "
BORROWING: Final = "borrowing: "

_COUNT: Final = re.compile(r"(?<!\S)\d+(?:/\d+)? ")
"""A number of nodes or pods; a name of digits alone is never followed by a space."""
_PART_ENDS: Final = re.compile(r"[,;:.](?: |$)")


def sentence(refused: str, clauses: Mapping[str, str]) -> str:
    """Return the message: why the pool's nodes refuse the pod, then the clauses, each with a full stop."""
    parts = (refused, *(kind + said for kind, said in clauses.items() if said))
    text = " ".join(part if part.endswith(".") else f"{part}." for part in parts) if len(parts) > 1 else refused
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."


def same_but_for_counts(reason: str, other: str) -> bool:
    """Return whether two messages differ at most in their counts, and in the order that follows from these."""
    return reason == other or without_counts(reason) == without_counts(other)


def without_counts(reason: str) -> tuple[str, ...]:
    """Return the parts of a message without counts, sorted, because counts decide their order."""
    return tuple(sorted(_COUNT.sub("", part) for part in _PART_ENDS.split(reason)))
