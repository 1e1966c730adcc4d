"""Runs cases: the sides run in turn, and the evidence of each run is checked before its figures count.

Invariant: every other round runs the sides in reverse order (A B B A), so that no side always follows the same side.
"""

from collections.abc import Callable

from tests.bench.results import CaseResult, target
from tests.bench.spec import Case, Measure, VoidRunError, faults

Say = Callable[[str], None]


def play(case: Case, rounds: int, say: Say) -> CaseResult:
    """Run a case; one void run voids the case."""
    sides: dict[str, dict[str, list[float]]] = {side: {} for side in case.sides}
    result = CaseResult(case.name, case.about, sides, [target(goal) for goal in case.goals])
    try:
        with case.open() as measure:
            for number in range(rounds):
                for side in case.sides[:: -1 if number % 2 else 1]:
                    say(f"{case.name}, round {number + 1} of {rounds}: {side}")
                    figures = checked(measure, side)
                    for name, value in figures.items():
                        sides[side].setdefault(name, []).append(value)
    except VoidRunError as void:
        result.void = str(void)
        result.sides = {side: {} for side in case.sides}
    return result


def checked(measure: Measure, side: str) -> dict[str, float]:
    """Return the figures of one run. Raises VoidRunError if a pod was lost, bound twice, or bound to a full node."""
    measured = measure(side)
    if found := faults(measured.evidence):
        raise VoidRunError(f"{side}: {'; '.join(found)}")
    return dict(measured.figures)
