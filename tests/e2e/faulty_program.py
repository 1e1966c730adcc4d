"""The program with injected exceptions, for its own process: run as `-m tests.e2e.faulty_program run ...`.

The functions that raise are those of the daemon's tests on the sandbox, and attempts of pods raise as well.
"""

import sys

from aischeduler.cli.app import main
from aischeduler.engine import bindings, permits, scheduler
from tests.daemon.test_internal_errors import PLACES, Saboteur

SETTLE_SECONDS = 1.0
BUGS_MAX = 3
"""Exceptions of each function: after one, it takes a while to settle what is in doubt."""
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
    """Replace the functions by functions that raise."""
    places = [place for name in BUGGED for place in PLACES[name]]
    for owner, name in (*places, (scheduler, "attempt")):
        saboteur = Saboteur(f"{owner.__name__}.{name} on the real server", BUGS_MAX)
        setattr(owner, name, saboteur.wrap(getattr(owner, name)))
    for module in (permits, bindings):
        vars(module)["SETTLE_SECONDS"] = SETTLE_SECONDS


if __name__ == "__main__":
    sabotage()
    sys.exit(main(sys.argv[1:]))
