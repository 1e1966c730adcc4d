"""A long random history of pools, gangs, budgets and refusals, checked all the time and whenever it rests.

`AI_SCHEDULER_HISTORY_SECONDS` sets how long it goes on; the seed of the run sets what happens.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests import seeds
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.crowd_invariants import judge_bindings
from tests.e2e.daemon import Daemon, Line
from tests.e2e.history_invariants import (
    Asked,
    GangsInPart,
    Rights,
    at_rest,
    eviction_storms,
    overbooked,
    told_statuses,
    unexcused,
)
from tests.e2e.random_history import RandomHistory
from tests.e2e.record import Record
from tests.e2e.refusals import AFTER_SECONDS, Refusals

SECONDS: Final = float(os.environ.get("AI_SCHEDULER_HISTORY_SECONDS", "120"))
CHAPTER_SECONDS: Final = min(150.0, SECONDS / 3)
"""How long the changes go on before a rest; the kind of eviction differs from one chapter to the next."""
CHAPTERS_LEAST: Final = 2
STEP_SECONDS: Final = 0.2
TOLD_EVERY_SECONDS: Final = 10.0
KILLED_EVERY_SECONDS: Final = (25.0, 60.0)
DOWN_STEPS_MAX: Final = 10
QUIET_SECONDS: Final = 3.0
REST_WITHIN_SECONDS: Final = 90.0
UNCHANGED_SECONDS: Final = 6.0
RESTARTS_MAX: Final = 5
"""How often a restart is compared until no controller interferes."""
FAULTS_SHOWN: Final = 8
COUNTERS: Final = ("invariant_violations", "internal_errors", "net_saves")
"""Counters of which each count is a bug."""
EVICT: Final = "apiVersion: config.resource.aibee.cn/v1alpha1\nkind: AiSchedulerConfiguration\neviction: Evict\n"

KINDS: Final = ("evict", "evict refused", "bind refused", "bind", "nominated", "wait")
"""The lines of the log that are kept of every run of the scheduler."""

Say = Callable[[str], None]


class Chapter:
    """One part of the history: changes, a rest, and the judgement of both."""

    def __init__(self, plane: ControlPlane, history: RandomHistory, record: Record, daemon: Daemon, say: Say) -> None:
        self.lines: dict[str, list[Line]] = {kind: [] for kind in KINDS}
        self.kills: list[float] = []
        self._plane, self._history, self._record, self._daemon, self._say = plane, history, record, daemon, say
        self._chance = seeds.random(f"history: kills {history.steps}")
        self._audit = plane.audit_log.stat().st_size
        self._wall_offset = time.time() - time.monotonic()

    def live(self, seconds: float) -> None:
        """Make changes, kill the scheduler now and then, and tell how far it is."""
        now = time.monotonic()
        end, told, killed = now + seconds, now, now + self._chance.uniform(*KILLED_EVERY_SECONDS)
        while (now := time.monotonic()) < end:
            self._history.step()
            if now >= told:
                told = now + TOLD_EVERY_SECONDS
                self.tell("")
            if now >= killed:
                killed = now + self._chance.uniform(*KILLED_EVERY_SECONDS)
                self.restart(self._chance.randrange(DOWN_STEPS_MAX))
            time.sleep(STEP_SECONDS * 2 * self._chance.random())

    def tell(self, more: str) -> None:
        """Say how much has happened, and check the counters of bugs."""
        assert self._counted() == []
        pods = self._record.now("pods").values()
        count = {kind: len(lines) + len(self._daemon.said(kind)) for kind, lines in self.lines.items()}
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        self._say(
            f"{self._history.steps} steps, {len(self._record.changes['pods'])} changes of pods, {len(pods)} pods,"
            f" {bound} bound, {count['evict']} evictions, {count['evict refused']} evictions and"
            f" {count['bind refused']} Bindings refused, {len(self.kills)} kills {more}"
        )

    def restart(self, steps: int = 0) -> None:
        """Kill the scheduler, make some changes without it, and start it again."""
        self._kill()
        for _ in range(steps):
            self._history.step()
        self._daemon.start()

    def _kill(self) -> None:
        assert self._counted() == []
        self._daemon.kill()
        self.kills.append(time.monotonic())
        for kind, lines in self.lines.items():
            lines.extend(self._daemon.said(kind))

    def rest(self, *, evicts: bool) -> None:
        """Let everything come to rest; then a restart changes nothing."""
        self._history.calm_down()
        time.sleep(AFTER_SECONDS)
        self._until_at_rest(evicts=True)
        self.restart()  # a pod whose eviction was refused would wait for up to five minutes
        self._until_at_rest(evicts=evicts)
        for _ in range(RESTARTS_MAX):
            if self._restart_changes_nothing():
                break
            self._until_at_rest(evicts=evicts)
        else:
            self._say("controllers made or deleted pods in every restart")
        self.tell("at rest")

    def _restart_changes_nothing(self) -> bool:
        """Restart the scheduler, which decides nothing; return False if controllers made or deleted pods meanwhile."""
        self._kill()
        self._record.wait_until_calm(QUIET_SECONDS, REST_WITHIN_SECONDS)
        before = self._placed()
        self._daemon.start()
        time.sleep(UNCHANGED_SECONDS)
        evicted, after = self._daemon.said("evict"), self._placed()
        owner_of = {uid: owner for uid, (*_, owner) in [*before.items(), *after.items()]}
        makes_successors = {owner_of.get(one["uid"]) for one in evicted} - {""}
        came_or_went = (before.keys() ^ after.keys()) - {one["uid"] for one in evicted}
        if any(owner_of[uid] not in makes_successors for uid in came_or_went):
            return False  # a gang may be whole, or room free, that was not
        assert [*self._daemon.said("bind"), *evicted] == [], "a restart decides"
        assert after == before
        return True

    def faults(self, gangs: GangsInPart, refusals: Refusals, *, evicts: bool) -> dict[str, list[str]]:
        """Return what did not hold, by what it is about."""
        record, asked = self._record, Asked.since(self._plane, self._audit)
        for namespace in self._history.namespaces:
            judge_bindings(self._plane, record.nodes_of(), namespace, self._audit, gangs=True)
        rights = Rights(record, self.lines["evict"], self._wall_offset, self.lines["evict refused"])
        late = gangs.faults(record, time.monotonic(), self.kills)
        storms = list(asked.storms())
        for about in storms:
            self._say("\n".join([about, *told_statuses(record, about)]))
        found: dict[str, Iterable[str]] = {
            "overbooked": overbooked(record),
            "wrong bindings": rights.wrong_bindings(),
            "wrong evictions": rights.faults(rooms=False),
            "evicted though whole": rights.of_whole_gangs(),
            "removed without a line": asked.untold(self.lines["evict"]),
            "removed while it waited": asked.of_waiting(record, self._wall_offset),
            "bound for another pool": rights.strangers(),
            "too many requests": storms,
            "too many evictions": eviction_storms(self.lines["evict"]),
            "deleted past the budgets": asked.deletions() if evicts else [],
            "gangs in part": unexcused(late, refusals.past),
        }
        self._say(
            f"judged {len(rights.evictions())} evictions, {len(rights.bound())} Bindings, {asked.refused()} refused"
        )
        return {what: faults[:FAULTS_SHOWN] for what, some in found.items() if (faults := list(some))}

    def keep(self, directory: Path) -> None:
        """Write the changes of all objects and the lines of the log into files, for whoever looks for a cause."""
        changes = sorted((one.at, kind, one) for kind, some in self._record.changes.items() for one in some)
        told: dict[str, list[Any]] = {
            "changes": [{"at": at, "kind": kind, "gone": one.gone, "is": one.document} for at, kind, one in changes],
            "kills": list(self.kills),
            "wall_offset": [self._wall_offset],
        }
        for name, lines in (
            told | {kind: lines + self._daemon.said(kind) for kind, lines in self.lines.items()}
        ).items():
            (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self._say(f"the changes and the lines are in {directory}")

    def _until_at_rest(self, *, evicts: bool) -> None:
        deadline = time.monotonic() + REST_WITHIN_SECONDS
        self._record.wait_until_calm(QUIET_SECONDS, REST_WITHIN_SECONDS)
        while found := at_rest(self._record, self._history.namespaces, evicts=evicts):
            assert time.monotonic() < deadline, "\n".join(found)
            time.sleep(1.0)
        self._record.wait_until_calm(QUIET_SECONDS, REST_WITHIN_SECONDS)

    def _placed(self) -> dict[str, tuple[str, str, str]]:
        """Return uid -> node, nominated node and uid of the owner of each pod."""
        return {
            pod["metadata"]["uid"]: (
                pod["spec"].get("nodeName", ""),
                pod["status"].get("nominatedNodeName", ""),
                next((one["uid"] for one in pod["metadata"].get("ownerReferences", ())), ""),
            )
            for pod in self._record.now("pods").values()
        }

    def _counted(self) -> list[str]:
        """Return the counters of bugs that are not zero."""
        samples = [one for name in COUNTERS for one in self._daemon.samples(f"ai_scheduler_{name}")]
        return [f"{one.name} {one.labels}: {one.value:.0f}" for one in samples if one.value]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_rule_holds_in_a_random_history_with_refusals_and_kills(
    control_plane: ControlPlane,
    namespace: str,
    pools_served: None,
    kubelets: Part,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    began, chapters = time.monotonic(), 0

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"{time.monotonic() - began:6.0f} s: {line}", flush=True)

    say(f"seed {seeds.seed()}, {SECONDS:.0f} s")
    config = tmp_path / "evict.yaml"
    config.write_text(EVICT)
    gangs = GangsInPart()
    with Refusals(control_plane) as refusals:
        history = RandomHistory(control_plane, namespace, refusals)
        history.begin()
        while time.monotonic() - began < SECONDS or chapters < CHAPTERS_LEAST:
            evicts = chapters % 2 == 1
            options = ("--config", str(config)) if evicts else ()
            with Record(control_plane) as record, Daemon(control_plane, None, *options, metrics=True) as daemon:
                daemon.start()
                history.follow(record)
                chapter = Chapter(control_plane, history, record, daemon, say)
                try:
                    chapter.live(CHAPTER_SECONDS)
                    chapter.rest(evicts=evicts)
                    assert chapter.faults(gangs, refusals, evicts=evicts) == {}
                except AssertionError:
                    chapter.keep(tmp_path)
                    raise
            chapters += 1
            say(f"{chapters} chapters hold, the last with eviction: {'Evict' if evicts else 'Delete'}")
