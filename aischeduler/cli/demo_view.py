"""What the demo shows: bars and a table that change in place on a terminal, plain lines elsewhere, and the story.

Laws:
- A view shows what it is given; it reads nothing and judges nothing.
"""

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

from aischeduler.cli.demo_standing import Standing
from aischeduler.cli.table import pool_table, print_trimmed
from aischeduler.model.pool_summary import PoolSummary

BAR_WIDTH: Final = 24
NAMES_SHOWN_MAX: Final = 3
"""Pods that are named on one line; of the rest only the number is told."""


class Progress:
    """How it goes, shown while it goes."""

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

    def show(self, standings: Sequence[Standing], pools: Sequence[PoolSummary]) -> None:
        """Show how it stands; without a terminal, a line for each Job that changed, and the rest at the end."""
        self._last = frame(standings, pools)
        if self._live is not None:
            self._live.update(self._last, refresh=True)
            return
        for standing in standings:
            line = progress_text(standing)
            if self._lines.get(standing.goal.job) != line:
                self._lines[standing.goal.job] = line
                self._console.print(f"{standing.goal.job}: {line}")


def frame(standings: Sequence[Standing], pools: Sequence[PoolSummary]) -> RenderableType:
    """Return a bar for each Job and the table of all pools."""
    bars = Table.grid(Column(no_wrap=True), Column(), Column(no_wrap=True), padding=(0, 2))
    for standing in standings:
        bar = ProgressBar(total=standing.goal.pods, completed=len(standing.bound), width=BAR_WIDTH)
        bars.add_row(standing.goal.job, bar, progress_text(standing))
    return Group(bars, "", pool_table(pools))


def progress_text(standing: Standing) -> str:
    """Return how many pods of a Job are bound."""
    return f"{len(standing.bound)} of {standing.goal.pods} pods are bound in {standing.goal.pool}"


def story(standings: Sequence[Standing]) -> RenderableType:
    """Return who was bound where, and why the others wait."""
    parts: list[RenderableType] = []
    for standing in standings:
        parts.append(f"\n[bold]{standing.goal.job}[/bold]: {progress_text(standing)}")
        nodes = Table.grid(padding=(0, 2))
        for node in sorted(set(standing.bound.values())):
            pods = [pod for pod, where in standing.bound.items() if where == node]
            nodes.add_row("", f"[cyan]{node}[/cyan]", f"{len(pods)}", _named(pods))
        parts.append(nodes)
        for reason, count in sorted(Counter(standing.waiting.values()).items()):
            told = Text.from_markup(f"[yellow]{count} wait[/yellow]: {escape(reason)}")
            parts.append(Padding(told, (0, 0, 0, 2), expand=False))
    return Group(*parts)


def _named(pods: Sequence[str]) -> str:
    return ", ".join(pods[:NAMES_SHOWN_MAX]) + (", …" if len(pods) > NAMES_SHOWN_MAX else "")
