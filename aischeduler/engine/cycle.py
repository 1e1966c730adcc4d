"""One attempt, top to bottom: the function to read first."""

from dataclasses import dataclass

from aischeduler.framework.plugin import Ask
from aischeduler.framework.runner import Runner
from aischeduler.policies.placement import Placed, place
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.index import Rows
from aischeduler.state.trial import Trial


@dataclass(frozen=True, slots=True)
class Refused:
    """No node would do, and why."""

    diagnosis: Diagnosis


Outcome = Placed | Refused


def attempt(runner: Runner, ask: Ask, rows: Rows) -> Outcome:
    """Try to place one pod on the rows of a pool; a placed pod counts in the node table from then on."""
    with Trial(runner.nodes) as trial:
        # 1. The pool as it is.
        placed = place(runner, ask, rows, trial)
        if placed is not None:
            trial.commit()
            return placed
    # 2. Say why, and wait for an event that can help.
    return Refused(runner.diagnose(ask, rows))
