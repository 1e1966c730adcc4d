"""An engine decides as the one that recorded the corpus, but for the differences that `ACCEPTED` explains."""

import json
import re
from collections.abc import Callable
from itertools import zip_longest

import pytest

from aischeduler.engine.journal import Call, Decided, Observed, as_lines, make_call, new_scheduler, read_call
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.names import CLUSTER, DEFAULT_POOL
from tests.golden.record import journals

JOURNALS = 258


def without_pod(refresh: list[object]) -> bytes:
    """Return a Refresh without the pod that those of the corpus name."""
    kind, pool, *_, selector, nodes, namespaces = refresh
    return json.dumps([kind, pool, selector, nodes, namespaces]).encode()


ACCEPTED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "claim in its own reason": (
        "The reason of a pod that makes room named what its own new claim takes, such as a host port.",
        lambda line: re.sub(rb'"0/\d+ nodes are available: [^"]*( preemption: nominated to node )', rb'"\1', line),
    ),
    "allocation in a Bind": (
        "A Bind says which host ports the pod has on its node.",
        lambda line: re.sub(rb',{"host_ports":\[.*\]}\]$', rb"]", line) if line.startswith(b'["Bind"') else line,
    ),
    "attempts in a Bind": (
        "An attempt that waits for a refresh is no failed one.",
        lambda line: re.sub(rb",\d+\]$", b"]", line) if line.startswith(b'["Bind"') else line,
    ),
    "cards in a status": (
        "A status counts the cards of a Pool by type; there is none in the corpus.",
        lambda line: line.replace(b',"cards":[]}]', b"}]") if line.startswith(b'["ReportPool"') else line,
    ),
    "pod of a Refresh": (
        "A Refresh names no pod: nothing is written to a pod before an eviction.",
        lambda line: without_pod(json.loads(line)) if line.startswith(b'["Refresh"') else line,
    ),
    "evictions that go together": (
        "An Evict says how many evictions of its decision go together.",
        lambda line: re.sub(rb",\d+\]$", b"]", line) if line.startswith(b'["Evict"') else line,
    ),
    "scheduler of a Warn": (
        "A Warn about a pod names the pod's scheduler, which reports its event; about another object it names none.",
        lambda line: re.sub(rb',"(ai-scheduler)?"\]$', b"]", line) if line.startswith(b'["Warn"') else line,
    ),
}
"""Name -> why an action differs, and what is left of its line for the comparison."""

READS_OF_POOLS = (b'["ListPools"', b'["ReadPool"', b'["Refresh","",')
"""A read lists all Pools, and one is under way at a time. In the corpus each Pool was read by itself."""

OFFERED_LATER = (
    "a pool offers its changed rows in its own decisions, so the pool that decides first may take a pod first"
)
ACCEPTED_FROM: dict[int, tuple[int, str]] = {
    137: (69, f"{OFFERED_LATER}: a row joined another pool before it was offered, and the pod stayed at home"),
    220: (98, f"{OFFERED_LATER}: a pod that would have been lent to takes a row of the pool that decides first"),
    221: (98, f"{OFFERED_LATER}: a pod that would have been lent to takes a row of the pool that decides first"),
}
"""Journal -> the line from which its actions may differ, and why. What follows was the answer to other actions."""


def decided(scheduler: Scheduler, call: Call) -> tuple[bytes, ...]:
    """Make a call and return its lines. In the corpus, the decision of the default pool did the work of no pool too."""
    if not isinstance(call, Decided) or call.pool != DEFAULT_POOL:
        return as_lines(make_call(scheduler, call))
    return as_lines([*scheduler.decide(CLUSTER, call.now, call.limit), *make_call(scheduler, call)])


def normal(lines: tuple[bytes, ...]) -> list[bytes]:
    """Return the lines without what is accepted to differ."""
    lines = tuple(line for line in lines if not line.startswith(READS_OF_POOLS))
    for _, left in ACCEPTED.values():
        lines = tuple(map(left, lines))
    return [line for line, after in zip_longest(lines, lines[1:], fillvalue=b"") if not clears_refused(line, after)]


def clears_refused(line: bytes, after: bytes) -> bool:
    """Say whether an action clears the node of a pod whose Binding the next one reports as refused: it has no claim."""
    if not line.startswith(b'["Nominate"'):
        return False
    _, uid, node, _, decision = json.loads(line)
    told = b'["ReportWaiting","%s",' % uid.encode()
    return not node and after.startswith(told) and b'"binding to node ' in after and decision.encode() in after


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
        accepted_from, _ = ACCEPTED_FROM.get(number, (len(lines) + 1, ""))
        for at, line in enumerate(lines[1:], 2):
            call = read_call(at, line)
            actions = decided(scheduler, call)
            if not isinstance(call, Observed) and at < accepted_from:
                assert normal(actions) == normal(call.actions), f"journal {number}, line {at}"
