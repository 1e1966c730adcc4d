"""The states of pods change as one table says, and the documents show that table."""

import subprocess
import sys
from pathlib import Path

import pytest

from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.transitions import TRANSITIONS, ImpossibleChangeError, Transition, change_state, table
from tests.build import a_pod

ROOT = Path(__file__).resolve().parents[2]
WRITERS = ("aischeduler/state/transitions.py",)


def test_documents_show_the_table_that_the_command_prints() -> None:
    command = [sys.executable, "-m", "aischeduler.state.transitions"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == table()
    assert printed in (ROOT / "docs" / "architecture.md").read_text()


def test_no_other_module_changes_the_state_of_a_pod() -> None:
    modules = [path for path in (ROOT / "aischeduler").rglob("*.py") if "record.state = " in path.read_text()]
    assert [str(path.relative_to(ROOT)) for path in modules] == list(WRITERS)


def test_every_state_but_new_is_reached_and_every_state_but_gone_is_left() -> None:
    assert {PodState.NEW, *TRANSITIONS.values()} == set(PodState)
    assert {PodState.GONE, *(before for before, _ in TRANSITIONS)} == set(PodState)
    assert {transition for _, transition in TRANSITIONS} == set(Transition)


@pytest.mark.parametrize(
    ("state", "transition"),
    [
        (PodState.PARKED, Transition.PLACED),
        (PodState.BOUND, Transition.READY),
        (PodState.ASSUMED, Transition.PLACED),
        (PodState.GATED, Transition.MADE_ROOM),
        (PodState.GONE, Transition.READY),
    ],
)
def test_impossible_change_is_refused_and_changes_nothing(state: PodState, transition: Transition) -> None:
    record = PodRecord(a_pod("p"), 1, state)
    with pytest.raises(ImpossibleChangeError, match=f"the pod uid-p is {state.name}"):
        change_state(record, transition)
    assert record.state is state
