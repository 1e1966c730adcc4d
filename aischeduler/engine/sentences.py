"""What a waiting pod is told: kube-scheduler's sentence, then what was tried after it, one clause each."""

from collections.abc import Sequence
from typing import Final

from aischeduler.policies.borrowing import NoLender
from aischeduler.state.diagnosis import MESSAGE_LENGTH_MAX

PREEMPTION: Final = "preemption: "
BORROWING: Final = "borrowing: "


def sentence(refused: str, clauses: Sequence[str]) -> str:
    """Return why the pool's nodes refuse the pod, and the clauses, each ended by a full stop."""
    parts = (refused, *clauses)
    text = " ".join(part if part.endswith(".") else f"{part}." for part in parts) if clauses else refused
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[: MESSAGE_LENGTH_MAX - 4] + " ..."


def borrowing_clause(found: NoLender) -> tuple[str, ...]:
    """Return the clause that says why nobody lends; none where there is no other pool at all."""
    said = found.message()
    return (BORROWING + said,) if said else ()


def with_borrowing(message: str, found: NoLender) -> str:
    """Return the message with its last clause as the lenders are now."""
    before, clause, _ = message.partition(" " + BORROWING)
    return sentence(before, borrowing_clause(found)) if clause else message
