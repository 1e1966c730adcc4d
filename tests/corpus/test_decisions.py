"""An engine decides as the one that recorded the corpus, but for the differences that `ACCEPTED` explains."""

import re
from collections.abc import Callable

import pytest

from aischeduler.engine.journal import Observed, as_lines, make_call, new_scheduler, read_call
from tests.corpus.record import journals

JOURNALS = 258
ACCEPTED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "claim in its own reason": (
        "The reason of a pod that makes room named what its own new claim takes, such as a host port.",
        lambda line: re.sub(rb'"0/\d+ nodes are available: [^"]*( preemption: nominated to node )', rb'"\1', line),
    ),
    "allocation in a Bind": (
        "A Bind says which host ports the pod has on its node.",
        lambda line: re.sub(rb',{"host_ports":\[.*\]}\]$', rb"]", line) if line.startswith(b'["Bind"') else line,
    ),
}
"""Name -> why an action differs, and what is left of its line for the comparison."""


def normal(lines: tuple[bytes, ...]) -> list[bytes]:
    """Return the lines without what is accepted to differ."""
    for _, left in ACCEPTED.values():
        lines = tuple(map(left, lines))
    return list(lines)


def test_corpus_has_decisions_of_every_kind() -> None:
    found = list(journals())
    text = b"\n".join(line for lines in found for line in lines)
    assert len(found) == JOURNALS
    decisions = {kind: text.count(b'["%s",' % kind) for kind in (b"Bind", b"Evict", b"Nominate", b"ReportWaiting")}
    assert sum(decisions.values()) >= 2000
    assert min(decisions.values()) >= 200


@pytest.mark.parametrize("part", range(6))
def test_engine_decides_as_the_one_that_recorded_the_corpus(part: int) -> None:
    for number, lines in enumerate(journals()):
        if number % 6 != part:
            continue
        scheduler = new_scheduler(lines[0])
        for at, line in enumerate(lines[1:], 2):
            call = read_call(at, line)
            actions = as_lines(make_call(scheduler, call))
            if not isinstance(call, Observed):
                assert normal(actions) == normal(call.actions), f"journal {number}, line {at}"
