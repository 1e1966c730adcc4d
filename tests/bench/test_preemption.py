"""CPU of a choice of victims over many full nodes, and of keeping the table that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.pod import HostPort
from aischeduler.model.selectors import label_selector
from aischeduler.policies.preemption import Candidate, NoCandidate, Preemptor
from aischeduler.state.running import RunningFacts, RunningPods
from tests.bench.board import cpu_seconds, micros, show, times
from tests.build import a_node, a_request, a_spec
from tests.policies.crowd import Crowd, Held, held, preemptor

pytestmark = pytest.mark.bench

NODES = 1_000
PODS_EACH = 8
GOAL_SECONDS = 0.020
DECISIONS = 20
RECORDS = 20_000
BUDGETS = 20
GPU_POD = a_request(cpu="4", memory="32Gi", gpu=1)
WHOLE_NODE = a_request(cpu="16", memory="64Gi", gpu=8)
APP = (("app", "web"),)


def a_crowd(
    one_pod: Callable[[int, int], Held], nodes: int = NODES, budgets: tuple[DisruptionBudget, ...] = ()
) -> Crowd:
    """Return full nodes; `one_pod` makes the pod of a number on the node of a number."""
    return Crowd(
        [a_node(f"node-{n:05}", cpu="64", memory="512Gi", gpu=PODS_EACH) for n in range(nodes)],
        [one_pod(n, i) for n in range(nodes) for i in range(PODS_EACH)],
        budgets,
    )


def plain(node: int, number: int) -> Held:
    priority = (node * 7 + number * 3) % 50
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, priority, started=1 + node * PODS_EACH + number)


def alike(node: int, number: int) -> Held:
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, 0, started=5)


def protected(node: int, number: int) -> Held:
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, number, started=1 + node + number, labels=APP)


def loan(node: int, number: int) -> Held:
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, 2_000, started=1 + node + number, borrower=True)


def with_port(node: int, number: int) -> Held:
    ports = (HostPort("TCP", 8000 + number),)
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, number, started=1 + node + number, host_ports=ports)


def strong(node: int, number: int) -> Held:
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, 2_000, started=1 + node + number)


def leaving_of_one(node: int, number: int) -> Held:
    return held(f"{node}-{number}", f"node-{node:05}", GPU_POD, number, leaving=node == NODES // 2)


@dataclass(frozen=True, slots=True)
class Choices:
    """The same choice made over and over."""

    crowd: Crowd
    asked: Preemptor

    def make(self) -> None:
        for _ in range(DECISIONS):
            self.crowd.choose(self.asked)


def test_cpu_of_a_choice_of_victims() -> None:
    budget = DisruptionBudget("default", "web", "", label_selector("s", dict(APP), ()), 1_000)
    whole, one = preemptor(WHOLE_NODE, 1_000), preemptor(GPU_POD, 1_000)
    cases: list[tuple[str, Crowd, Preemptor, type[Candidate | NoCandidate]]] = [
        ("a whole node", a_crowd(plain), whole, Candidate),
        ("one card", a_crowd(plain), one, Candidate),
        ("a whole node of pods that are all equal", a_crowd(alike), whole, Candidate),
        ("a whole node of lent room", a_crowd(loan), whole, Candidate),
        ("every pod under a budget", a_crowd(protected, budgets=(budget,)), whole, Candidate),
        ("every pod with a host port", a_crowd(with_port), whole, Candidate),
        (
            "one of those ports",
            a_crowd(with_port),
            preemptor(GPU_POD, 1_000, host_ports=(HostPort("TCP", 8003),)),
            Candidate,
        ),
        ("one node being left", a_crowd(leaving_of_one), whole, Candidate),
        ("nobody may go", a_crowd(strong), whole, NoCandidate),
        ("one node of eight pods", a_crowd(plain, nodes=1), whole, Candidate),
        ("5,000 nodes", a_crowd(plain, nodes=5_000), whole, Candidate),
    ]
    rows = []
    for name, crowd, asked, answer in cases:
        assert isinstance(crowd.choose(asked), answer)
        taken = cpu_seconds(partial(Choices, crowd, asked), Choices.make, 3) / DECISIONS
        rows.append([name, f"{taken * 1e3:.2f}", times(GOAL_SECONDS, taken)])
    show(
        f"A choice of victims over {NODES:,} nodes of {PODS_EACH} pods each; the goal is {GOAL_SECONDS * 1e3:.0f} ms",
        ["asker", "ms a choice", "goal / taken"],
        rows,
    )


def a_budget(
    number: int, allowed: int = 1, app: str = "db", disrupted: frozenset[str] = frozenset()
) -> DisruptionBudget:
    return DisruptionBudget(
        "default", f"budget-{number}", "", label_selector("s", {"app": app}, ()), allowed, disrupted
    )


def test_cpu_of_a_choice_after_news_of_a_budget() -> None:
    """All pods are in one namespace of many budgets; a choice was made before, but for the first row."""
    budgets = tuple(a_budget(number) for number in range(BUDGETS))
    whole = preemptor(WHOLE_NODE, 1_000)

    def unknown() -> Crowd:
        return a_crowd(protected, budgets=budgets)

    def known() -> Crowd:
        crowd = unknown()
        crowd.choose(whole)
        return crowd

    def choose_after(*news: DisruptionBudget) -> Callable[[Crowd], None]:
        def work(crowd: Crowd) -> None:
            for budget in news:
                crowd.budgets.see(budget)
            assert isinstance(crowd.choose(whole), Candidate)

        return work

    cases = [
        ("the first choice of all", unknown, choose_after()),
        ("nothing new", known, choose_after()),
        ("a budget allows another number", known, choose_after(a_budget(0, allowed=2))),
        ("a budget has counted a pod", known, choose_after(a_budget(0, disrupted=frozenset(("7-7",))))),
        ("a budget selects all pods now", known, choose_after(a_budget(0, app="web"))),
    ]
    rows = []
    for name, prepare, work in cases:
        taken = cpu_seconds(prepare, work, 3)
        rows.append([name, f"{taken * 1e3:.2f}", times(GOAL_SECONDS, taken)])
    show(
        f"A choice of victims among {NODES * PODS_EACH:,} pods and {BUDGETS} budgets, with the news before it",
        ["news", "ms", "goal / taken"],
        rows,
    )


def test_cpu_of_keeping_running_pods() -> None:
    """What each bind and each end of a pod pays."""
    spec = a_spec(request=GPU_POD)
    facts = RunningFacts(priority=0, borrower=False, evictable=True, leaving=False, started_seconds=0)
    uids = [f"{number:036}" for number in range(RECORDS)]

    def add(pods: RunningPods) -> None:
        for number, uid in enumerate(uids):
            pods.add(uid, spec, number % NODES, facts)

    def full() -> RunningPods:
        pods = RunningPods()
        add(pods)
        return pods

    def remove(pods: RunningPods) -> None:
        for uid in uids:
            pods.remove(uid)

    def change(pods: RunningPods) -> None:
        for uid in uids:
            pods.change(uid, facts)

    rows = np.arange(NODES, dtype=np.intp)
    show(
        f"Keeping {RECORDS:,} running pods",
        ["step", "µs each"],
        [
            ["add", micros(cpu_seconds(RunningPods, add), RECORDS)],
            ["change", micros(cpu_seconds(full, change), RECORDS)],
            ["remove", micros(cpu_seconds(full, remove), RECORDS)],
            ["find all on the rows of a pool", micros(cpu_seconds(full, lambda pods: pods.slots_on(rows)), 1)],
        ],
    )
