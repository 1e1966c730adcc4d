"""What a run of the benchmark found, as it is kept: every run's figures, so that any ratio can be taken from them."""

import statistics
from pathlib import Path

import msgspec

from tests.bench.spec import OURS, Goal

SMALLEST = 1e-9
"""Stands for 0 where something is divided by it."""


class Target(msgspec.Struct, frozen=True):
    """A `Goal` as it is kept."""

    figure: str
    bound: float
    at_least: bool
    peer: str
    of: str = ""


class CaseResult(msgspec.Struct):
    """One case: side -> figure -> its value in each round. Without figures, `void` says why."""

    name: str
    about: str
    sides: dict[str, dict[str, list[float]]]
    goals: list[Target]
    void: str = ""


class Machine(msgspec.Struct, frozen=True):
    """On what it ran; `loads` are the machine's load averages over one minute at start and end."""

    cores: int
    memory_gib: float
    python: str
    commit: str
    loads: list[float]


class Results(msgspec.Struct):
    """One run of the benchmark. `shrink` divides the sizes: above 1 the figures are for trying the harness only."""

    begun: str
    shrink: int
    machine: Machine
    cases: list[CaseResult]


class Spread(msgspec.Struct, frozen=True):
    """The least, the middle and the largest of several values."""

    least: float
    median: float
    most: float


def spread(values: list[float]) -> Spread:
    """Return min, median and max."""
    return Spread(min(values), statistics.median(values), max(values))


def ratios(case: CaseResult, figure: str, peer: str, of: str = "") -> Spread | None:
    """Return ours over the peer's, round by round; None where either has no such figure or the peer's is 0.

    The peer's figure is the same one, or else the one that `of` names.
    """
    ours, theirs = case.sides[OURS].get(figure, []), case.sides[peer].get(of or figure, [])
    if not ours or len(ours) != len(theirs) or 0 in theirs:
        return None
    return spread([one / other for one, other in zip(ours, theirs, strict=True)])


def margins(case: CaseResult, goal: Target) -> Spread | None:
    """Return how many times better than its goal a figure is, from the worst round to the best; None without one."""
    values = ratios(case, goal.figure, goal.peer, goal.of) if goal.peer else spread_of(case, goal.figure)
    if values is None:
        return None
    if goal.at_least:
        return Spread(*(value / goal.bound for value in (values.least, values.median, values.most)))
    return Spread(*(goal.bound / max(value, SMALLEST) for value in (values.most, values.median, values.least)))


def spread_of(case: CaseResult, figure: str, side: str = OURS) -> Spread | None:
    """Return a figure of a side over the rounds."""
    values = case.sides.get(side, {}).get(figure, [])
    return spread(values) if values else None


def target(goal: Goal) -> Target:
    """Return a goal as it is kept."""
    return Target(goal.figure, goal.bound, goal.at_least, goal.peer, goal.of)


def save(results: Results, path: Path) -> None:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def load(path: Path) -> Results:
    """Read what `save` wrote; raises OSError and msgspec.MsgspecError."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
