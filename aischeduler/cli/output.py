"""The console and the tables of all commands."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table

WIDTH_MIN: Final = 80
"""The least width of most tables; a narrower terminal breaks their lines."""
PIPE_WIDTH: Final = 200


def console(width_min: int = WIDTH_MIN) -> Console:
    """Return a console that is at least this wide; without a terminal it has `PIPE_WIDTH`."""
    found = Console()
    found.width = max(width_min, found.width) if found.is_terminal else PIPE_WIDTH
    return found


def plain_table(*columns: str, gap: int = 1) -> Table:
    """Return a table of these columns, which fold what is too wide, with blanks between them."""
    table = Table(box=SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_trimmed(to: Console, *parts: RenderableType) -> None:
    """Print each part; without a terminal, no line ends in blanks."""
    if to.is_terminal:
        to.print(*parts, sep="\n")
        return
    with to.capture() as caught:
        to.print(*parts, sep="\n")
    to.file.write("".join(f"{line.rstrip()}\n" for line in caught.get().splitlines()))
