"""Random days: they run from a printed seed, and fail if too few kinds of actions occurred."""

from collections import Counter
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from aischeduler.model.actions import Action, Bind, Evict, Nominate, ReportPool, ReportWaiting

STEPS = 100
SHRINKING_SECONDS_MAX = 1800
"""Hypothesis shortens a run that fails; a timeout during that would hide the failure."""
MORE_MAX = 5
"""How often more runs follow where a kind of action has not occurred in the first ones."""
HAPPENS = (Bind, Evict, Nominate, ReportPool, ReportWaiting)
"""The actions that must occur in the runs together."""


class Days(RuleBasedStateMachine):
    """A machine that counts in `done` the actions of the scheduler in all its runs."""

    done: ClassVar[Counter[type[Action]]]

    def note(self, actions: list[Action]) -> None:
        """Count the actions of one run."""
        self.done.update(type(action) for action in actions)


def play(
    machine: type[Days],
    number: int,
    runs: int,
    phases: tuple[Phase, ...] = tuple(Phase),
) -> None:
    """Play this many runs of 100 steps, and more until each kind of action has occurred; a seed gives the same runs."""
    machine.done = Counter()
    how = settings(
        max_examples=runs,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=False,  # it tries only short runs, which find nothing
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    for more in range(MORE_MAX):
        run_state_machine_as_test(seed(number + more)(machine), settings=how)
        print(f"seed {number + more}: {machine.done}")
        if all(machine.done[action] for action in HAPPENS):
            return
    assert [action.__name__ for action in HAPPENS if not machine.done[action]] == []
