"""What two schedulers say about the same pod on the same cluster, whether they agree, and the report if not.

Invariants:
- Both messages are compared as a whole, but for the name of the pool in ours and for the clause on device claims in
  kube-scheduler's, which no pod has.
- Of equally good nodes each may be chosen: those of kube-scheduler's highest total score.
"""

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import yaml

from aischeduler.model.names import DEFAULT_POOL
from tests import seeds
from tests.e2e.peer_features import Feature
from tests.e2e.peer_log import NO_SCORES, Scores
from tests.e2e.peer_probes import Probe
from tests.e2e.peer_states import State

OUR_POOL: Final = f"pool {DEFAULT_POOL}: "
WITHOUT_CLAIMS: Final = re.compile(r" (?:no new claims to deallocate|still not schedulable),?")
NOMINATED: Final = re.compile(r" preemption: nominated to node \S+, waits for (\d+) evicted pods?\.?")
"""A clause of ours; kube-scheduler says nothing about a preemption that is under way."""
LEAVING: Final = re.compile(r" preemption: nominated to node \S+, waits for pods that are leaving\.?$")
"""A clause of ours; kube-scheduler searches victims beside pods that are leaving, and the states leave it none."""
NO_VICTIMS: Final = re.compile(r" preemption: .* No preemption victims found for incoming pod.*$")
OUR_CLAIM: Final = re.compile(r"^spec\.volumes\[\d+\]\.\w+: (.*); the pod is held$")
"""The reason of ours for a claim that allows no node."""
THEIR_CLAIM: Final = re.compile(
    r"^0/\d+ nodes are available: ((?:persistentvolume|pod has unbound immediate).*?)\.(?: preemption: .*| not found)?$"
)
"""That of kube-scheduler, which speaks of all nodes, and of a preemption that it cannot judge."""
REPORTS_MAX: Final = int(os.environ.get("AI_SCHEDULER_REPORTS", "5"))
"""How many disagreements are told in full."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a pod: its node, or the message, and the nominated node with the names of the victims.

    A preemption has no message where the pod was bound as soon as its victims terminated.
    """

    node: str = ""
    message: str = ""
    nominated: str = ""
    victims: tuple[str, ...] = ()
    scores: Scores = NO_SCORES
    tries: int = 1
    """How often kube-scheduler tried the pod."""

    @property
    def sentence(self) -> str:
        """The message as kube-scheduler writes it for a pod without device claims."""
        text = NOMINATED.sub("", WITHOUT_CLAIMS.sub("", self.message)).removeprefix(OUR_POOL).rstrip(". ")
        return THEIR_CLAIM.sub(r"\1", OUR_CLAIM.sub(r"\1", text))


def our_victims(message: str) -> int | None:
    """Return how many pods this scheduler evicts for a pod with this message; None where it evicts none."""
    found = NOMINATED.search(message)
    return int(found[1]) if found else None


def differences(ours: Verdict, theirs: Verdict) -> list[str]:
    """Return in what the verdicts differ; empty where both schedulers agree."""
    if bool(ours.node) != bool(theirs.node):
        return ["one binds, the other does not"]
    if ours.node:
        best = theirs.scores.best(theirs.node)
        found = [] if ours.node in best else [f"{ours.node} is not among the best nodes {best}"]
        alone = Scores({theirs.node: 0})  # kube-scheduler scores no node where only one fits
        if apart := ours.scores.apart(theirs.scores if theirs.scores.totals else alone):
            found.append(f"other scores {apart}")
        return found
    if LEAVING.search(ours.message) and not theirs.victims:
        same = LEAVING.sub("", ours.sentence).rstrip(". ") == NO_VICTIMS.sub("", theirs.sentence).rstrip(". ")
        return [] if same else ["other messages"]
    found = []
    told = all(one.message for one in (ours, theirs)) or not (ours.nominated and theirs.nominated)
    if told and ours.sentence != theirs.sentence:
        found.append("other messages")
    if ours.nominated != theirs.nominated:
        found.append("other nominated nodes")
    if sorted(ours.victims) != sorted(theirs.victims):
        found.append("other victims")
    return found


def report(state: State, probe: Probe, ours: Verdict, theirs: Verdict) -> str:
    """Return all that is needed to see a disagreement again."""
    lines = [
        f"==== {probe.name} of seed {seeds.seed()}: {', '.join(differences(ours, theirs))}",
        f"features: {', '.join(probe.features)}; of the state: {', '.join(sorted(state.features))}",
    ]
    for side, verdict in (("ours", ours), ("kube-scheduler", theirs)):
        told = f"node {verdict.node}" if verdict.node else verdict.message
        evicts = bool(verdict.nominated or verdict.victims)
        preempts = f"; nominated {verdict.nominated}, victims {sorted(verdict.victims)}" if evicts else ""
        lines.append(f"{side}: {told}{preempts}")
    for node, total in sorted(theirs.scores.totals.items(), key=lambda one: (-one[1], one[0])):
        lines.append(f"  {total:4d} {node} {dict(theirs.scores.parts.get(node, {}))}")
    documents = [probe.pod, *state.nodes, *state.running, *state.others]
    return "\n".join(
        [*lines, "---", yaml.safe_dump_all(documents, default_flow_style=None, sort_keys=False, width=160)]
    )


@dataclass
class Tally:
    """The counts of a round, by feature: probes, bound ones, and those that evict; and the disagreements in words.

    `scored` are the probes of which the scores of several nodes were compared, `retried` those that kube-scheduler
    tried more than once before its verdict.
    """

    probes: Counter[Feature] = field(default_factory=Counter)
    bound: Counter[Feature] = field(default_factory=Counter)
    scored: Counter[Feature] = field(default_factory=Counter)
    evicting: Counter[Feature] = field(default_factory=Counter)
    apart: Counter[Feature] = field(default_factory=Counter)
    total: int = 0
    retried: int = 0
    reports: list[str] = field(default_factory=list)

    def note(self, state: State, probe: Probe, ours: Verdict, theirs: Verdict) -> None:
        """Count a probe, and keep the report of a disagreement."""
        self.total += 1
        self.scored.update(probe.features if ours.scores.totals and theirs.scores.totals else ())
        self.retried += theirs.tries > 1
        self.probes.update(probe.features)
        self.bound.update(probe.features if theirs.node else ())
        self.evicting.update(probe.features if theirs.nominated else ())
        if differences(ours, theirs):
            self.apart.update(probe.features)
            self.reports.append(report(state, probe, ours, theirs))

    def told(self) -> str:
        """Return the disagreements, the first ones in full."""
        heads = [one.partition("---\n")[0] for one in self.reports[REPORTS_MAX:]]
        return "\n".join([f"{len(self.reports)} of {self.total} probes differ", *self.reports[:REPORTS_MAX], *heads])

    def __str__(self) -> str:
        counts = f"{self.total} probes, {len(self.reports)} disagreements, {self.retried} tried again"
        lines = [f"{counts}; by feature (probes, bound, with scores, evicting, apart):"]
        for feature in sorted(self.probes):
            each = (self.probes, self.bound, self.scored, self.evicting, self.apart)
            lines.append(f"  {feature:24s}" + "".join(f"{counter[feature]:6d}" for counter in each))
        return "\n".join(["", *lines])
