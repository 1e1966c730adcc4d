"""The demo's output: bars and a table that change in place on a terminal, plain lines elsewhere, and the summary."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from aischeduler.cli.demo_progress import JobProgress
from aischeduler.cli.pools_table import pool_table, print_trimmed
from aischeduler.model.pool_summary import PoolSummary

BAR_WIDTH: Final = 24
NAMES_SHOWN_MAX: Final = 3
"""Pods that one line of the summary names."""


class ProgressView:
    """Shows the progress of the Jobs and the table of pools."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last: RenderableType = ""
        self._lines: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            print_trimmed(self._console, "", self._last)

    def show(self, jobs: Sequence[JobProgress], pools: Sequence[PoolSummary]) -> None:
        """Show the progress; without a terminal, only a line for each Job that changed, and the table at the end."""
        self._last = progress_frame(jobs, pools)
        if self._live is not None:
            self._live.update(self._last, refresh=True)
            return
        for job in jobs:
            line = progress_text(job)
            if self._lines.get(job.goal.job) != line:
                self._lines[job.goal.job] = line
                self._console.print(f"{job.goal.job}: {line}")


def progress_frame(jobs: Sequence[JobProgress], pools: Sequence[PoolSummary]) -> RenderableType:
    """Return a bar for each Job, and the table of pools."""
    bars = Table.grid(Column(no_wrap=True), Column(), Column(no_wrap=True), padding=(0, 2))
    for job in jobs:
        bar = ProgressBar(total=job.goal.pods, completed=len(job.bound), width=BAR_WIDTH)
        bars.add_row(job.goal.job, bar, progress_text(job))
    return Group(bars, "", pool_table(pools))


def progress_text(job: JobProgress) -> str:
    """Return how many pods of a Job are bound."""
    return f"{len(job.bound)} of {job.goal.pods} pods are bound in {job.goal.pool}"


def summary(jobs: Sequence[JobProgress]) -> RenderableType:
    """Return the nodes of the bound pods, and the reasons of the waiting pods."""
    parts: list[RenderableType] = []
    for job in jobs:
        parts.append(f"\n[bold]{job.goal.job}[/bold]: {progress_text(job)}")
        nodes = Table.grid(padding=(0, 2))
        for node in sorted(set(job.bound.values())):
            pods = [pod for pod, where in job.bound.items() if where == node]
            nodes.add_row("", f"[cyan]{node}[/cyan]", f"{len(pods)}", _named(pods))
        parts.append(nodes)
        for reason, count in sorted(Counter(job.waiting.values()).items()):
            waiting = f"{count} pods wait" if count > 1 else "1 pod waits"
            text = Text.from_markup(f"[yellow]{waiting}[/yellow]: {escape(reason)}")
            parts.append(Padding(text, (0, 0, 0, 2), expand=False))
    return Group(*parts)


def _named(pods: Sequence[str]) -> str:
    return ", ".join(pods[:NAMES_SHOWN_MAX]) + (", …" if len(pods) > NAMES_SHOWN_MAX else "")
