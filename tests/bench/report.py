"""Puts results into the documentation: `python -m tests.bench.report RESULTS.json [RESULTS.json ...]`.

Of each case that there is, the tables and the picture in `docs/performance.md` show the last file that has it, the
latest first; all files are kept beside the page as they are.
"""

import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from tests.bench.__main__ import MODULES
from tests.bench.plot import svg
from tests.bench.results import CaseResult, Results, load
from tests.bench.tables import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


class ReportError(Exception):
    """Results that cannot be put into the documentation; the text is one sentence."""


def read(path: Path) -> Results:
    """Read results. Raises ReportError, also for figures of shrunk sizes."""
    try:
        found = load(path)
    except OSError as error:
        raise ReportError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ReportError(f"{path} is no file of results: {error}") from error
    if found.shrink != 1:
        raise ReportError(f"{path} holds figures of sizes divided by {found.shrink}, which say nothing")
    return found


def latest(runs: Sequence[Results]) -> list[tuple[Results, list[CaseResult]]]:
    """Return the runs, the last one first, with the cases that no later one has."""
    shown: set[str] = set()
    found = []
    for run in reversed(runs):
        cases = [case for case in run.cases if case.name not in shown]
        shown |= {case.name for case in cases}
        if cases:
            found.append((run, cases))
    return found


def section(runs: Sequence[Results]) -> str:
    """Return the generated part of the page."""
    parts = ["![How many times better than each goal](performance/goals.svg)\n"]
    for run, cases in latest(runs):
        machine = run.machine
        loads = f"{min(machine.loads):.1f} to {max(machine.loads):.1f}"
        parts.append(
            f"### {run.begun}\n\nCommit `{machine.commit}`, Python {machine.python}, {machine.cores} cores,"
            f" {machine.memory_gib:.0f} GiB; load averages during the run {loads}.\n"
        )
        parts += [markdown(case) for case in cases]
    return "\n".join(parts)


def replaced(page: str, text: str) -> str:
    """Return a page with its generated part replaced. Raises ReportError when it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReportError(f"the page has no part between {BEGIN.strip()} and {END.strip()}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def write(paths: Sequence[Path], docs: Path, names: Collection[str] | None = None) -> None:
    """Write the page, the picture and the files of results. Raises ReportError.

    Where there are `names`, cases of other names are left out.
    """
    found = [read(path) for path in paths]
    for results in found:
        results.cases = [case for case in results.cases if names is None or case.name in names]
    page = docs / "performance.md"
    text = replaced(page.read_text(), section(found))
    (docs / "performance").mkdir(exist_ok=True)
    for path, results in zip(paths, found, strict=True):
        kept = docs / "performance" / f"{results.begun.replace(':', '')}.json"
        if path.resolve() != kept.resolve():
            shutil.copyfile(path, kept)
    (docs / "performance" / "goals.svg").write_text(svg([case for _, cases in latest(found) for case in cases]))
    page.write_text(text)


def main(words: Sequence[str]) -> int:
    if not words:
        print("report: name at least one file of results", file=sys.stderr)
        return 2
    try:
        write([Path(word) for word in words], DOCS, {case.name for module in MODULES for case in module.cases(1)})
    except ReportError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
