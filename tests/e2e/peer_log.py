"""kube-scheduler as the peer of the differential test: its command line, and what its log says about a pod.

Source: the messages of kube-scheduler 1.36 in schedule_one.go (attempts and scores, at level 10), executor.go (victims)
and scheduling_queue.go (where a pod waits, at level 5).
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FLAGS: Final = ("--vmodule=schedule_one=10,executor=2,scheduling_queue=5,active_queue=5,backoff_queue=5",)
_ATTEMPT: Final = re.compile(r'"Attempting to schedule pod" pod="([^"]+)"')
_FAILED: Final = re.compile(r'"Unable to schedule pod; no fit; waiting" pod="([^"]+)" err=("(?:[^"\\]|\\.)*")')
_QUEUED: Final = re.compile(
    r'"Pod moved to an internal scheduling queue[^"]*" pod="([^"]+)" event="([^"]*)" queue="(\w+)"'
)
_BOUND: Final = re.compile(r'"Successfully bound pod to node" pod="([^"]+)"')
_RESTS: Final = "Unschedulable"
"""The queue from which only an event takes a pod."""
_SCORED: Final = re.compile(r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)')
_TOTAL: Final = re.compile(r'"Calculated node\'s final score for pod" pod="([^"]+)" node="([^"]+)" score=(-?\d+)')
_PREEMPTS: Final = re.compile(r'"Start the preemption asynchronously".* preemptor="([^"]+)".* numVictims=(\d+)')


@dataclass(frozen=True, slots=True)
class Scores:
    """What kube-scheduler gave the nodes that fit: totals, and the parts by plugin; empty where one node fits."""

    totals: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def best(self, chosen: str) -> list[str]:
        """Return the nodes of the highest total: the chosen one where it was the only one that fits."""
        if not self.totals:
            return [chosen]
        highest = max(self.totals.values())
        return sorted(node for node, total in self.totals.items() if total == highest)

    def apart(self, other: "Scores") -> dict[str, tuple[int | None, int | None]]:
        """Return node -> both totals where they differ, counted from the highest; a node that does not fit has none.

        What is equal for all nodes decides nothing: one scheduler adds it, the other does not.
        """
        if not self.totals:
            return {}
        tops = max(self.totals.values()), max(other.totals.values())
        found = {}
        for node in sorted({*self.totals, *other.totals}):
            each = self.totals.get(node), other.totals.get(node)
            mine, theirs = (None if one is None else one - top for one, top in zip(each, tops, strict=True))
            if mine != theirs:
                found[node] = mine, theirs
        return found


NO_SCORES: Final = Scores()


class PeerLog:
    """The log file of a running kube-scheduler, read once from front to end.

    A pod is `namespace/name`, and no two pods have the same.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._rest = ""
        self._totals: dict[str, dict[str, int]] = {}
        self._parts: dict[str, dict[str, dict[str, int]]] = {}
        self._victims: dict[str, int] = {}
        self._tries = Counter[str]()
        self._awaited: set[str] = set()
        """The pods that are being tried, or will be without a further event."""
        self._messages: dict[str, str] = {}
        self._preempting: dict[str, str] = {}

    def scores(self, pod: str) -> Scores:
        """Return the scores of the last attempt to place the pod."""
        self._read()
        return Scores(self._totals.get(pod, {}), self._parts.get(pod, {}))

    def tries(self, pod: str) -> int:
        """Return how often the pod was tried."""
        self._read()
        return self._tries[pod]

    def settled(self, pod: str) -> bool:
        """Return whether the pod was tried, and is tried again only after an event."""
        self._read()
        return pod in self._tries and pod not in self._awaited

    def message(self, pod: str) -> str:
        """Return why the last attempt failed; empty where it bound the pod."""
        self._read()
        return self._messages.get(pod, "")

    def preempting(self, pod: str) -> str:
        """Return why the attempt failed that chose the victims."""
        self._read()
        return self._preempting[pod]

    def victims(self, pod: str) -> int | None:
        """Return how many pods are evicted for this pod; None before the scheduler has begun."""
        self._read()
        return self._victims.get(pod)

    def _read(self) -> None:
        with self._path.open(errors="replace") as log:
            log.seek(self._at)
            text = self._rest + log.read()
            self._at = log.tell()
        *lines, self._rest = text.split("\n")
        for line in lines:
            self._note(line)

    def _note(self, line: str) -> None:
        if scored := _SCORED.search(line):
            pod, plugin, node, score = scored.groups()
            self._parts.setdefault(pod, {}).setdefault(node, {})[plugin] = int(score)
        elif total := _TOTAL.search(line):
            pod, node, score = total.groups()
            self._totals.setdefault(pod, {})[node] = int(score)
        elif preempts := _PREEMPTS.search(line):
            pod = preempts[1]
            self._victims[pod] = int(preempts[2])
            if pod in self._messages:
                self._preempting.setdefault(pod, self._messages[pod])
        else:
            self._note_attempt(line)

    def _note_attempt(self, line: str) -> None:
        if attempt := _ATTEMPT.search(line):
            pod = attempt[1]
            self._tries[pod] += 1
            self._awaited.add(pod)
            for kept in (self._totals, self._parts, self._messages):
                kept.pop(pod, None)
        elif failed := _FAILED.search(line):
            pod, self._messages[failed[1]] = failed[1], json.loads(failed[2])
            if pod in self._victims:
                self._preempting.setdefault(pod, self._messages[pod])
        elif queued := _QUEUED.search(line):
            pod, _, queue = queued.groups()
            (self._awaited.discard if queue == _RESTS else self._awaited.add)(pod)
        elif bound := _BOUND.search(line):
            self._awaited.discard(bound[1])
