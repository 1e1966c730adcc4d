"""Prints results as tables, with one row for each figure and peer.

Invariant: a void case shows the reason and no figure.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tests.bench.results import CaseResult, Spread, Target, margins, ratios, spread_of
from tests.bench.spec import OURS


def digits(value: float) -> str:
    """Return a value with three significant digits, or all digits before the point."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


NUMBERS = (1, 3, 4)
COLUMNS = ("", OURS, "peer", "the peer's", "ours / peer: median (least to most)", "goal", "")


def spread_text(found: Spread | None) -> str:
    """Return the median, with the minimum and maximum in parentheses."""
    if found is None:
        return ""
    return f"{digits(found.median)} ({digits(found.least)} to {digits(found.most)})"


def goal_texts(case: CaseResult, goal: Target | None) -> tuple[str, str]:
    """Return a goal and whether the median reaches it; empty without a goal."""
    if goal is None:
        return "", ""
    found = margins(case, goal)
    verdict = "not measured" if found is None else "reached" if found.median >= 1 else "missed"
    return f"{'≥' if goal.at_least else '≤'} {digits(goal.bound)}", verdict


def figures_of(case: CaseResult) -> list[str]:
    """Return the names of all figures in the order of their measurement."""
    return list(dict.fromkeys(name for side in case.sides.values() for name in side))


def rows(case: CaseResult) -> Iterator[list[str]]:
    """Yield the rows of each figure: one without a peer if there is no peer or a goal without one, and one per peer.

    A goal that compares with another figure of the peer has its own row.
    """
    for figure in figures_of(case):
        goals = {(goal.peer, goal.of): goal for goal in case.goals if goal.figure == figure}
        peers = [side for side in case.sides if side != OURS and figure in case.sides[side]]
        alone = goals.pop(("", ""), None)
        if alone or not peers:
            yield [figure, spread_text(spread_of(case, figure)), "", "", "", *goal_texts(case, alone)]
        for peer in peers:
            yield [figure, *against(case, figure, peer), *goal_texts(case, goals.pop((peer, ""), None))]
        for (peer, of), goal in goals.items():
            if of and peer in case.sides:
                yield [f"{figure} / {of}", *against(case, figure, peer, of), *goal_texts(case, goal)]


def against(case: CaseResult, figure: str, peer: str, of: str = "") -> list[str]:
    """Return our figure, the peer, the peer's figure (the same or `of`) and their ratio."""
    ours, theirs = spread_of(case, figure), spread_of(case, of or figure, peer)
    medians = [digits(found.median) if found else "" for found in (ours, theirs)]
    return [medians[0], peer, medians[1], spread_text(ratios(case, figure, peer, of))]


def title(case: CaseResult) -> str:
    rounds = max((len(values) for side in case.sides.values() for values in side.values()), default=0)
    return f"{case.name}: {case.about}; medians of {rounds} round{'' if rounds == 1 else 's'} in turn"


def print_case(console: Console, case: CaseResult) -> None:
    """Print one case."""
    if case.void:
        console.print(f"\n[bold]{case.name}[/bold]: void, no figures. {case.void}", highlight=False)
        return
    table = Table(title=title(case), title_justify="left", title_style="bold")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number in NUMBERS else "left", overflow="fold")
    for row in rows(case):
        table.add_row(*row)
    console.print("", table)
