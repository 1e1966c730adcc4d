"""Where benchmarks write: tables on standard output, and at the end of a file when `AI_SCHEDULER_BENCH_FILE` names one.

Law: figures are medians of several runs, and every table has a column of ratios: digits move with the machine.
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

WIDTH = 120
RESULTS_FILE = "AI_SCHEDULER_BENCH_FILE"

State = TypeVar("State")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one table; the first column names the rows, the others hold figures."""
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    path = os.environ.get(RESULTS_FILE)
    Console(width=WIDTH).print("", table)
    if path:
        with Path(path).open("a") as file:
            Console(file=file, width=WIDTH, no_color=True).print("", table)


def cpu_seconds(prepare: Callable[[], State], work: Callable[[State], object], runs: int = 5) -> float:
    """Return the median of the CPU that `work` takes on what `prepare` makes anew for each run."""
    taken = []
    for _ in range(runs):
        state = prepare()
        before = time.process_time()
        work(state)
        taken.append(time.process_time() - before)
    return statistics.median(taken)


def micros(seconds: float, count: int) -> str:
    """Return microseconds per piece."""
    return f"{seconds / count * 1e6:.1f}"


def times(value: float, floor: float) -> str:
    """Return a ratio."""
    return f"{value / floor:.2f}"
