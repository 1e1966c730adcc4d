"""The benchmarks: `python -m tests.bench [--full] [--case PATTERN] [--rounds N] [--shrink N] [--out PATH] [--list]`.

Exit status: 0 if every case has figures, 1 if a case is void, 2 if nothing could run.
"""

import argparse
import fnmatch
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.bench.arena import MissingAssetsError, the_binaries
from tests.bench.cases import (
    backlog,
    devices,
    elastic,
    elastic_beside_pods,
    elastic_pass,
    explaining,
    gang_over_full_nodes,
    gangs,
    observing,
    parked,
    pathological,
    placement,
    proposing,
    restart,
    scale,
    shapes,
    steps,
    tail,
    tenants,
    volume_shapes,
)
from tests.bench.results import Machine, Results, save
from tests.bench.rounds import play
from tests.bench.spec import Case
from tests.bench.tables import print_case
from tests.controlplane.part import PartError

MODULES = (
    steps,
    scale,
    pathological,
    parked,
    observing,
    proposing,
    restart,
    backlog,
    tail,
    tenants,
    explaining,
    gangs,
    gang_over_full_nodes,
    devices,
    placement,
    shapes,
    volume_shapes,
    elastic,
    elastic_beside_pods,
    elastic_pass,
)
ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
ROUNDS_MAX = 50
SHORT_ROUNDS = 2
SHRINK_MAX = 100


class UsageError(Exception):
    """The request cannot run; the text is one sentence."""


def whole_number(text: str, least: int, most: int, what: str) -> int:
    """Return the value of an option. Raises UsageError."""
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise UsageError(f"{what} must be a whole number from {least} to {most}, not {text!r}")
    return int(text)


def chosen(cases: Sequence[Case], patterns: Sequence[str], *, full: bool) -> list[Case]:
    """Return the cases to run. Raises UsageError for a pattern that matches no case."""
    if not patterns:
        return [case for case in cases if full or case.short]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(case.name, pattern) for case in cases):
            raise UsageError(f"no case matches {pattern!r}; `--list` shows all")
    return [case for case in cases if any(fnmatch.fnmatchcase(case.name, pattern) for pattern in patterns)]


def the_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    said = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, check=False)
    cores = os.cpu_count() or 1
    load = [round(os.getloadavg()[0], 2)]
    return Machine(cores, round(memory, 1), platform.python_version(), said.stdout.decode().strip(), load)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Benchmarks that print ratios.")
    parser.add_argument("--full", action="store_true", help="all cases, not only the short set")
    parser.add_argument(
        "--case", action="append", default=[], metavar="PATTERN", help="only the cases whose names match"
    )
    parser.add_argument("--rounds", metavar="N", help=f"rounds of each case, 1 to {ROUNDS_MAX}")
    parser.add_argument(
        "--shrink", default="1", metavar="N", help="divide all sizes by N, to test the benchmark itself"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="PATH", help="file for the results as JSON")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    return parser.parse_args(words)


def run(words: Sequence[str], console: Console) -> int:
    """Run the chosen cases; return the exit status. Raises UsageError and MissingAssetsError."""
    asked = arguments(words)
    shrink = whole_number(asked.shrink, 1, SHRINK_MAX, "--shrink")
    rounds = whole_number(asked.rounds, 1, ROUNDS_MAX, "--rounds") if asked.rounds else None
    cases = chosen(
        [case for module in MODULES for case in module.cases(shrink)], asked.case, full=asked.full or asked.list
    )
    if asked.list:
        for case in cases:
            console.print(f"{case.name:32} {case.about}", highlight=False)
        return 0
    if any(case.needs_server for case in cases):
        the_binaries()
    try:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.open("a").close()  # unlike touch(), this fails for a folder
    except OSError as error:
        raise UsageError(f"results cannot be written to {asked.out}: {error.strerror}") from error
    results = Results(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), shrink, the_machine(), [])
    for case in cases:
        found = play(
            case,
            rounds or (case.rounds if asked.full else min(case.rounds, SHORT_ROUNDS)),
            lambda line: console.print(f"[dim]{line}[/dim]", highlight=False),
        )
        results.cases.append(found)
        print_case(console, found)
        results.machine.loads.append(round(os.getloadavg()[0], 2))
        save(results, asked.out)
    console.print(f"\nresults: {asked.out}", highlight=False)
    return 1 if any(case.void for case in results.cases) else 0


def main(words: Sequence[str]) -> int:
    try:
        return run(words, Console(width=140))
    except (UsageError, MissingAssetsError) as error:
        print(f"bench: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("bench: interrupted; the finished cases are saved", file=sys.stderr)
    except PartError as error:
        print(f"bench: the control plane did not start: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
