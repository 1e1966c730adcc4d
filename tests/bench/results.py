"""The results of the benchmarks: the figures of every round, so that any ratio can be computed from them."""

import statistics
from pathlib import Path

import msgspec

from tests.bench.spec import OURS, Goal

SMALLEST = 1e-9
"""Replaces 0 as a divisor."""


class Target(msgspec.Struct, frozen=True):
    """A `Goal` in the results."""

    figure: str
    bound: float
    at_least: bool
    peer: str
    of: str = ""


class CaseResult(msgspec.Struct):
    """One case: side -> figure -> its value in each round. If there are no figures, `void` says why."""

    name: str
    about: str
    sides: dict[str, dict[str, list[float]]]
    goals: list[Target]
    void: str = ""


class Machine(msgspec.Struct, frozen=True):
    """The machine; `loads` are its load averages over one minute, before the first case and after each case."""

    cores: int
    memory_gib: float
    python: str
    commit: str
    loads: list[float]


class Results(msgspec.Struct):
    """One run of the benchmarks. A `shrink` above 1 divides the sizes, and the figures have no meaning."""

    begun: str
    shrink: int
    machine: Machine
    cases: list[CaseResult]


class Spread(msgspec.Struct, frozen=True):
    """Minimum, median and maximum of several values."""

    least: float
    median: float
    most: float


def spread(values: list[float]) -> Spread:
    """Return minimum, median and maximum."""
    return Spread(min(values), statistics.median(values), max(values))


def ratios(case: CaseResult, figure: str, peer: str, of: str = "") -> Spread | None:
    """Return the ratios of our figure to the peer's figure of the same round; None without one, or if the peer's is 0.

    The peer's figure has the same name, or the name `of`.
    """
    ours, theirs = case.sides[OURS].get(figure, []), case.sides[peer].get(of or figure, [])
    if not ours or len(ours) != len(theirs) or 0 in theirs:
        return None
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def margins(case: CaseResult, goal: Target) -> Spread | None:
    """Return how many times better than its goal a figure is; `least` is the worst round. None without figures."""
    values = ratios(case, goal.figure, goal.peer, goal.of) if goal.peer else spread_of(case, goal.figure)
    if values is None:
        return None
    if goal.at_least:
        return Spread(*(value / goal.bound for value in (values.least, values.median, values.most)))
    return Spread(*(goal.bound / max(value, SMALLEST) for value in (values.most, values.median, values.least)))


def spread_of(case: CaseResult, figure: str, side: str = OURS) -> Spread | None:
    """Return a figure of a side over all rounds."""
    values = case.sides.get(side, {}).get(figure, [])
    return spread(values) if values else None


def target(goal: Goal) -> Target:
    """Return a goal for the results."""
    return Target(goal.figure, goal.bound, goal.at_least, goal.peer, goal.of)


def save(results: Results, path: Path) -> None:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
