"""kube-scheduler as the peer of the differential test: its command line, and what its log says about a pod.

Source: the messages of kube-scheduler 1.36 in schedule_one.go (scores, at level 10) and executor.go (victims).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FLAGS: Final = ("--vmodule=schedule_one=10,executor=2",)
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

    def scores(self, pod: str) -> Scores:
        """Return the scores of the last attempt to place the pod."""
        self._read()
        return Scores(self._totals.get(pod, {}), self._parts.get(pod, {}))

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
            self._victims[preempts[1]] = int(preempts[2])
