"""`ai-scheduler replay`: makes the calls of a journal in a new engine, and shows the first difference."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from aischeduler.engine.journal import Difference, JournalError, replay

DIFFERENT: Final = 1
"""Exit status where an action differs."""
UNREADABLE: Final = 2
"""Exit status of a file that is no journal, or that cannot be read."""
SHOWN_MAX: Final = 2_000


def replay_file(path: Path) -> int:
    """Replay a journal and print the result; return the exit status."""
    console, errors = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
    count = 0

    def lines(progress: Progress) -> Iterator[bytes]:
        nonlocal count
        task = progress.add_task("replay", total=path.stat().st_size)
        with path.open("rb") as file:
            for line in file:
                count += 1
                progress.advance(task, len(line))
                yield line

    try:
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            found = replay(lines(progress))
    except (OSError, JournalError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        errors.print(f"ai-scheduler: {path}: {why}", markup=False, highlight=False)
        return UNREADABLE
    if found is None:
        console.print(f"{count - 1} calls: no difference.", highlight=False)
        return 0
    console.print(_text(found), markup=False, highlight=False)
    return DIFFERENT


def _text(found: Difference) -> str:
    where = f" of the pool {found.pool}" if found.pool else ""
    return (
        f"Line {found.line}: the call at {found.now:.3f} s{where} gives another action.\n"
        f"  recorded: {_shown(found.recorded)}\n"
        f"  replayed: {_shown(found.replayed)}"
    )


def _shown(action: str) -> str:
    if not action:
        return "no further action"
    return action if len(action) <= SHOWN_MAX else f"{action[:SHOWN_MAX]}…"
