"""Results as tables: on a terminal, and as Markdown. One row a figure and peer.

Law: a void case shows why, and no figure.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tests.bench.results import CaseResult, Spread, Target, margins, ratios, spread_of
from tests.bench.spec import OURS


def digits(value: float) -> str:
    """Return a value with three digits that count, or all before the point."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


NUMBERS = (1, 3, 4)
COLUMNS = ("", OURS, "peer", "the peer's", "ours / peer: median (least to most)", "goal", "")


def spread_text(found: Spread | None) -> str:
    """Return the median, and in brackets the least and the largest of the rounds."""
    if found is None:
        return ""
    return f"{digits(found.median)} ({digits(found.least)} to {digits(found.most)})"


def goal_texts(case: CaseResult, goal: Target | None) -> tuple[str, str]:
    """Return a goal and whether the median reaches it; empty without one."""
    if goal is None:
        return "", ""
    found = margins(case, goal)
    verdict = "not measured" if found is None else "reached" if found.median >= 1 else "missed"
    return f"{'≥' if goal.at_least else '≤'} {digits(goal.bound)}", verdict


def figures_of(case: CaseResult) -> list[str]:
    """Return the names of all figures in the order in which they were measured."""
    return list(dict.fromkeys(name for side in case.sides.values() for name in side))


def rows(case: CaseResult) -> Iterator[list[str]]:
    """Yield the cells of each figure: one row of ours, where it has a goal of its own or no peer, and one a peer.

    A goal beside another figure of a peer has a row of its own.
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
    """Return ours, the peer, the peer's figure (the same one or `of`) and the ratio."""
    ours, theirs = spread_of(case, figure), spread_of(case, of or figure, peer)
    medians = [digits(found.median) if found else "" for found in (ours, theirs)]
    return [medians[0], peer, medians[1], spread_text(ratios(case, figure, peer, of))]


def title(case: CaseResult) -> str:
    rounds = max((len(values) for side in case.sides.values() for values in side.values()), default=0)
    return f"{case.name}: {case.about}; medians of {rounds} round{'' if rounds == 1 else 's'} in turn"


def print_case(console: Console, case: CaseResult) -> None:
    """Print one case."""
    if case.void:
        console.print(
            f"\n[bold]{case.name}[/bold]: no figure, for the run does not count. {case.void}", highlight=False
        )
        return
    table = Table(title=title(case), title_justify="left", title_style="bold")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if number in NUMBERS else "left", overflow="fold")
    for row in rows(case):
        table.add_row(*row)
    console.print("", table)


def markdown(case: CaseResult) -> str:
    """Return one case as Markdown."""
    if case.void:
        return f"**{case.name}**: no figure, for the run does not count. {case.void}\n"
    rule = ["---:" if number in NUMBERS else "---" for number in range(len(COLUMNS))]
    lines = [COLUMNS, rule, *rows(case)]
    return f"**{title(case)}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)
