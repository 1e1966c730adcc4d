"""Random days: they run from a printed seed, and count only where enough has happened."""

from collections import Counter
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from aischeduler.model.actions import Action, Bind, Evict, Nominate, ReportPool, ReportWaiting

STEPS = 100
SHRINKING_SECONDS_MAX = 1800
"""A run that fails is made shorter before it is shown; a timeout meanwhile would be shown instead of what was found."""
HAPPENS = (Bind, Evict, Nominate, ReportPool, ReportWaiting)
"""The actions that must occur, or the days were empty."""


class Days(RuleBasedStateMachine):
    """A machine that notes in `done` what the scheduler asked for in all its runs."""

    done: ClassVar[Counter[type[Action]]]

    def note(self, actions: list[Action]) -> None:
        """Note what was asked for in one run."""
        self.done.update(type(action) for action in actions)


def play(
    machine: type[Days],
    number: int,
    runs: int,
    phases: tuple[Phase, ...] = tuple(Phase),
) -> None:
    """Play so many runs of 100 steps, the same ones for the same number; something of each kind must have happened."""
    machine.done = Counter()
    how = settings(
        max_examples=runs,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=False,  # it would try only short runs, which find nothing
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=how)
    print(f"seed {number}: {machine.done}")
    assert [action.__name__ for action in HAPPENS if not machine.done[action]] == []
