"""Draws docs/pictures/elastic.svg: `python -m tests.bench.cases.elastic_picture` plays both experiments, in a minute.

Invariant: a band is what a job really had, read every two seconds; the picture asks for nothing from another host.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.bench.cases.elastic import AUTOSCALER, FIXED, play_side
from tests.bench.cases.elastic_script import Sample, Story, at_time, names
from tests.bench.spec import OURS

PICTURE: Final = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "elastic.svg"
SEED: Final = 1
SIDES: Final = {OURS: "Ai-Scheduler", AUTOSCALER: "the autoscaler, written anew", FIXED: "fixed size"}
ROWS: Final = {1: "Twenty jobs", 2: "Six jobs beside a service"}
READ_SECONDS: Final = 2
MOST_PODS: Final = 420
WIDTH, HEIGHT = 320, 230
LEFT, RIGHT, TOP, BOTTOM = 38, 8, 42, 26
HUES: Final = (215, 20)
"""The colours of the first job and of the last."""
GREY, BLACK = "#90a4ae", "#263238"


def main() -> None:
    """Draw the picture."""
    PICTURE.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """Return both experiments with three systems."""
    panels = [
        f'<g transform="translate({column * WIDTH},{row * HEIGHT})">{panel(story, f"{about}, {title}")}</g>'
        for row, (number, about) in enumerate(ROWS.items())
        for column, (side, title) in enumerate(SIDES.items())
        for story in [play_side(number, side, SEED)[0]]
    ]
    width, height = len(SIDES) * WIDTH, len(ROWS) * HEIGHT + 24
    note = (
        "Bands: the trainers of each job, the first job below. Line: the running pods of the service; dotted: wanted."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11" fill="{BLACK}" role="img"><title>Trainers of each job over time, with three systems</title>'
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>{"".join(panels)}'
        f'<text x="{LEFT}" y="{height - 10}">{note}</text></svg>\n'
    )


def panel(story: Story, title: str) -> str:
    """Return the drawing of one story."""
    moments = [at_time(story, at) for at in range(0, int(story.script.until) + 1, READ_SECONDS)]
    parts = [f'<text x="{LEFT}" y="28" font-weight="bold">{title}</text>', *_grid(story.script.until)]
    jobs = names(story.script)
    for count in range(len(jobs), 0, -1):  # the highest band first: the others cover what is below it
        tops = (sum(one.trainers.get(job, 0) for job in jobs[:count]) for one in moments)
        hue = HUES[0] + (HUES[1] - HUES[0]) * (count - 1) / max(len(jobs) - 1, 1)
        path = _steps(story.script.until, moments, tops)
        base = _y(0)
        parts.append(f'<path d="{path}V{base}H{_x(0, story.script.until)}z" fill="hsl({hue:.0f},60%,62%)"/>')
    if story.script.service:
        wanted = (next(count for at, count in reversed(story.script.service) if at <= one.at) for one in moments)
        for values, dashes in ((wanted, ' stroke-dasharray="2 3"'), ((one.serving for one in moments), "")):
            path = _steps(story.script.until, moments, values)
            parts.append(f'<path d="{path}" fill="none" stroke="{BLACK}" stroke-width="1.5"{dashes}/>')
    return "".join(parts)


def _grid(until: float) -> Iterator[str]:
    for count in range(0, MOST_PODS, 100):
        yield f'<path d="M{LEFT} {_y(count)}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-width="0.5"/>'
        yield f'<text x="{LEFT - 5}" y="{_y(count) + 4}" text-anchor="end">{count}</text>'
    for second in range(0, int(until) + 1, 100):
        yield f'<text x="{_x(second, until)}" y="{HEIGHT - 10}" text-anchor="middle">{second} s</text>'


def _steps(until: float, moments: Iterable[Sample], values: Iterable[int]) -> str:
    """Return a path through the values, which goes on as a horizontal line until a value changes."""
    points = [(_x(one.at, until), _y(value)) for one, value in zip(moments, values, strict=True)]
    path, (x, y) = [f"M{points[0][0]} {points[0][1]}"], points[0]
    for x, new in points[1:]:
        if new != y:
            path.append(f"H{x}V{new}")
            y = new
    return "".join([*path, f"H{x}"])


def _x(at: float, until: float) -> int:
    return round(LEFT + at / until * (WIDTH - LEFT - RIGHT))


def _y(count: int) -> int:
    return round(HEIGHT - BOTTOM - count / MOST_PODS * (HEIGHT - TOP - BOTTOM))


if __name__ == "__main__":
    main()
