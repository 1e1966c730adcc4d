"""The program with injected bugs, for its own process: run as `-m tests.real.faulty_program run ...`.

The places and numbers of bugs are those of the daemon's tests on the sandbox, and one attempt of a pod fails as well.
"""

import sys

from aischeduler.cli.app import main
from aischeduler.engine import cycle, scheduler
from tests.daemon.test_internal_errors import PLACES, Saboteur

SETTLE_SECONDS = 1.0
BUGS_MAX = 3
"""Bugs in each place: what is in doubt after one takes its time to be settled."""
BUGGED = (
    "outcome of a Binding",
    "action",
    "line of a binding",
    "binding",
    "request of a binding",
    "answer to a binding",
    "report",
    "bound pod told",
    "measure",
)


def sabotage() -> None:
    """Put the bugs in."""
    places = [place for name in BUGGED for place in PLACES[name]]
    for owner, name in (*places, (scheduler, "attempt")):
        saboteur = Saboteur(f"{owner.__name__}.{name} on the real server", BUGS_MAX)
        setattr(owner, name, saboteur.wrap(getattr(owner, name)))
    for module in (cycle, scheduler):
        vars(module)["SETTLE_SECONDS"] = SETTLE_SECONDS


if __name__ == "__main__":
    sabotage()
    sys.exit(main(sys.argv[1:]))
