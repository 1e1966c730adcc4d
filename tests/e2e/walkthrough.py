"""A document with commands and their output, as steps to run and compare.

Invariants:
- A command is a line of a `console` block that begins with `$ `; its output follows it.
- The comparison ignores what differs between runs or versions of kubectl: the ends of pod names, uids, times, ages,
  widths of columns, the namespace of deleted objects. Everything else must match.
"""

import re
from dataclasses import dataclass
from itertools import groupby

PROMPT = "$ "
FENCE = "```"
LOOKS = re.compile(r"(kubectl (get|describe|explain)|ai-scheduler pools)\b")
VARYING = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"(?<=[a-z]-)(\d+-)?[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "RANDOM"),
    (re.compile(r"(?<![\w.])(\d+[ydhms])+( \(x\d+ over (\d+[ydhms])+\))?(?![\w.])"), "AGE"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1NUMBER"),
    (re.compile(r'(?<=" deleted) from \S+ namespace$'), ""),
    (re.compile("─+"), "─"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command and its output; `line` is its line in the document, `section` the heading above it."""

    line: int
    section: str
    command: str
    output: str

    @property
    def looks(self) -> bool:
        """Whether the command is read-only, so that it can be repeated."""
        return LOOKS.match(self.command) is not None


def read_steps(text: str) -> list[Step]:
    """Return the steps of a document in order."""
    steps: list[Step] = []
    section, language = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(FENCE):
            language = line.removeprefix(FENCE) if not language else ""
        elif not language:
            section = line if line.startswith("#") else section
        elif language == "console" and line.startswith(PROMPT):
            steps.append(Step(number, section, line.removeprefix(PROMPT), ""))
        elif language == "console":
            last = steps.pop()
            steps.append(Step(last.line, last.section, last.command, f"{last.output}{line}\n"))
    return steps


def comparable(output: str) -> list[str]:
    """Return the lines of an output without the parts that vary; rows with random names have no order."""
    lines = [_without_varying(line) for line in output.strip().splitlines()]
    runs = groupby(lines, lambda line: "RANDOM" in line)
    return [line for named, run in runs for line in (sorted(run) if named else run)]


def _without_varying(line: str) -> str:
    for pattern, name in VARYING:
        line = pattern.sub(name, line)
    return line.strip()
