"""A picture of the goals: of each, how many times better than asked, on a logarithmic scale; 1 is the goal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tests.bench.results import CaseResult, Spread, margins

ROW, TEXT_WIDTH, BAR_WIDTH, TOP, BOTTOM = 22, 560, 420, 34, 14
LEAST, MOST = 1 / 8, 32.0
TICKS = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
GOOD, BAD, LINE = "#2a7f62", "#c0392b", "#888888"


@dataclass(frozen=True, slots=True)
class Bar:
    """One goal and how many times better than it we are."""

    text: str
    margin: Spread


def bars(cases: Sequence[CaseResult]) -> list[Bar]:
    """Return a bar for each goal that was measured."""
    found = []
    for case in cases:
        for goal in case.goals:
            margin = None if case.void else margins(case, goal)
            if margin is not None:
                sign, peer = "≥" if goal.at_least else "≤", f" of {goal.peer}" if goal.peer else ""
                of = f": {goal.of}" if goal.of else ""
                found.append(Bar(f"{case.name}: {goal.figure} {sign} {goal.bound:.3g}{peer}{of}", margin))
    return found


def place(value: float) -> float:
    """Return where a value is drawn; what lies outside of the scale is drawn at its end."""
    inside = min(max(value, LEAST), MOST)
    return TEXT_WIDTH + BAR_WIDTH * math.log(inside / LEAST) / math.log(MOST / LEAST)


def svg(cases: Sequence[CaseResult]) -> str:
    """Return the picture."""
    rows = bars(cases)
    width, height = TEXT_WIDTH + BAR_WIDTH + 30, TOP + ROW * len(rows) + BOTTOM
    size = f'width="{width}" height="{height}" font-family="sans-serif" font-size="12"'
    drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>']
    for tick in TICKS:
        x, stroke = place(tick), "black" if tick == 1 else "#dddddd"
        drawn.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="{stroke}"/>')
        drawn.append(f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{tick:g}</text>')
    for number, bar in enumerate(rows):
        y = TOP + ROW * number
        begin, end = sorted((place(1), place(bar.margin.median)))
        color = GOOD if bar.margin.median >= 1 else BAD
        drawn.append(f'<text x="{TEXT_WIDTH - 8}" y="{y + 13}" text-anchor="end">{escape(bar.text)}</text>')
        drawn.append(f'<rect x="{begin:.1f}" y="{y + 3}" width="{end - begin:.1f}" height="12" fill="{color}"/>')
        least, most, middle = place(bar.margin.least), place(bar.margin.most), y + 9
        drawn.append(f'<line x1="{least:.1f}" y1="{middle}" x2="{most:.1f}" y2="{middle}" stroke="{LINE}"/>')
    return "\n".join([*drawn, "</svg>", ""])
