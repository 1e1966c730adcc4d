"""Record the corpus of decisions: random days of an engine as journals, which judge later engines.

`python -m tests.golden.record FILE` writes a new corpus, of the engine as it is now.
"""

import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, cast

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from aischeduler.engine.journal import JournaledScheduler
from aischeduler.engine.profile import default_profile
from tests.checked_scheduler import CheckedScheduler
from tests.properties.test_engine import Engine, TakingBack
from tests.properties.wishes import SECONDS_OF_CALM
from tests.properties.world import World

CORPUS = Path(__file__).parent / "decisions.jsonl.xz"
DAYS = 200
STEPS = 60
SEED = 20_261_125


class RecordedScheduler(JournaledScheduler):
    """A scheduler that writes its journal. It is not checked: a check runs trials, whose traces would be recorded."""

    def look(self) -> None:
        """Check nothing."""


class RecordedWorld(World):
    """A world in which every engine writes its journal."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        super().__init__()

    def _start(self) -> CheckedScheduler:
        self.runs += 1
        scheduler = RecordedScheduler(default_profile(), f"run{self.runs}", self._write)
        return cast(CheckedScheduler, scheduler)


class RecordedDay(Engine):
    """A random day whose journals are kept in `lines`."""

    lines: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        super().__init__()
        self.world = RecordedWorld(self.lines.append)

    def teardown(self) -> None:
        """Let what is under way end."""
        self.world.calm_down(SECONDS_OF_CALM)


class RecordedTakingBack(TakingBack, RecordedDay):
    """A recorded day that begins while lent room is taken back."""


def record(days: int, number: int) -> list[bytes]:
    """Return the lines of the journals of so many days."""
    RecordedDay.lines.clear()
    RecordedDay.done = Counter()
    how = settings(
        max_examples=days // 2,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=False,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    for machine in (RecordedDay, RecordedTakingBack):
        run_state_machine_as_test(seed(number)(machine), settings=how)
    return list(RecordedDay.lines)


def journals(path: Path = CORPUS) -> Iterator[list[bytes]]:
    """Yield the journals of a corpus, each as its lines."""
    journal: list[bytes] = []
    for line in lzma.decompress(path.read_bytes()).splitlines():
        if line.startswith(b"{") and journal:
            yield journal
            journal = []
        journal.append(line)
    yield journal


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(lzma.compress(b"\n".join(record(DAYS, SEED)) + b"\n"))
