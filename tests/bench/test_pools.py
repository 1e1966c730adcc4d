"""CPU of pools at work in the core alone: evicting, borrowing, editing, waking up and summing up."""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Evict, Nominate
from aischeduler.model.events import Event, NodeSeen, PodGone, PodSeen, PoolSeen
from aischeduler.model.pod import Pod
from aischeduler.policies.borrowing import Lender, choose_lender
from tests.bench.board import micros, show, times
from tests.build import a_node, a_pod, a_pool, replace
from tests.watched import answers

pytestmark = pytest.mark.bench

DEFAULT = "default"
PODS_EACH = 8
DECISIONS = 50

PREEMPTION_NODES = 1_000
PREEMPTION_GOAL_SECONDS = 0.020
BORROW_POOLS, BORROW_NODES = 50, 5_000
BORROW_GOAL_SECONDS = 0.001
MOVED_NODES = 1_000
MOVE_GOAL_SECONDS, CALL_GOAL_SECONDS = 0.100, 0.020
PARKED_PODS = 20_000
CLASSES = (1, 100, 1_000)
WOKEN = (0, 1, 10, 100)
EVENTS_EACH = 5
SUMMED_NODES = 2_500
ASKED_OFTEN = 1_000


def scheduler_of(events: Iterable[Event]) -> Scheduler:
    """Return a scheduler that has seen all this, and that has told what it had to tell of its pools."""
    scheduler = Scheduler(default_profile(), "bench")
    for event in events:
        scheduler.observe(event, 0.0)
    finish(scheduler)
    gc.collect()
    gc.freeze()  # as the daemon does when it has listed the cluster
    return scheduler


def finish(scheduler: Scheduler) -> list[Action]:
    """Decide until nobody has anything to decide."""
    said: list[Action] = []
    while ready := scheduler.ready(0.0):
        for pool in ready:
            actions = scheduler.decide(pool, 0.0, 32)
            for event in answers(actions):
                scheduler.observe(event, 0.0)
            said += actions
    return said


def seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def millis(taken: float) -> str:
    return f"{taken * 1e3:.2f}"


def full_nodes(count: int, pool: str = "", label: str = "") -> Iterable[Event]:
    """Nodes of eight GPUs, each with a pod; the pods' priorities and ages differ."""
    for number in range(count):
        name = f"{label}node-{number:05d}"
        labels = {"team": label} if label else {}
        yield NodeSeen(a_node(name, cpu="64", memory="512Gi", gpu=PODS_EACH, labels=labels))
        for one in range(PODS_EACH):
            running = a_pod(f"{name}-{one}", cpu="4", memory="32Gi", gpu=1, pool=pool, node=name, phase="Running")
            started = 1 + number * PODS_EACH + one
            yield PodSeen(replace(running, priority=(number * 7 + one * 3) % 50, started_seconds=started))


def decide_each(scheduler: Scheduler, pool: str, pods: Sequence[Pod]) -> tuple[list[float], list[Action]]:
    """Let pods come one by one; return the CPU of the decision about each, and what was decided."""
    taken, said = [], []
    for pod in pods:
        scheduler.observe(PodSeen(pod), 0.0)
        before = time.process_time()
        actions = scheduler.decide(pool, 0.0, 1)
        for event in answers(actions):
            scheduler.observe(event, 0.0)
            actions += scheduler.decide(pool, 0.0, 1)
        taken.append(time.process_time() - before)
        said += actions
    return taken, said


def row(name: str, taken: Sequence[float], goal: float) -> list[str]:
    """Return median and worst, and how far within the goal the median is."""
    median = statistics.median(taken)
    return [name, millis(median), millis(max(taken)), times(goal, median)]


def test_cpu_of_a_decision_that_evicts() -> None:
    rows = []
    for name, gpu, cpu, lent in (
        ("a whole node of eight", PODS_EACH, "32", False),
        ("one card", 1, "4", False),
        ("a whole node of lent room", PODS_EACH, "32", True),
    ):
        home = [PoolSeen(a_pool("tenant", disable_sharing=True))] if lent else []
        scheduler = scheduler_of([*home, *full_nodes(PREEMPTION_NODES, pool="tenant" if lent else "")])
        asked = a_pod("p", cpu=cpu, memory="64Gi", gpu=gpu, priority=100)
        pods = [replace(asked, uid=f"u{n}", name=f"p{n}", created_seconds=n) for n in range(DECISIONS)]
        taken, said = decide_each(scheduler, DEFAULT, pods)
        assert sum(isinstance(action, Nominate) for action in said) == DECISIONS
        assert sum(isinstance(action, Evict) for action in said) == DECISIONS * gpu
        rows.append(row(name, taken, PREEMPTION_GOAL_SECONDS))
    show(
        f"Decisions that evict, {PREEMPTION_NODES:,} full nodes, {PREEMPTION_NODES * PODS_EACH:,} running pods; "
        f"the goal is {millis(PREEMPTION_GOAL_SECONDS)} ms",
        ["asker", "ms, median", "ms, worst", "goal / median"],
        rows,
    )


def test_cpu_of_a_decision_to_borrow() -> None:
    lenders = [f"lender-{number:02d}" for number in range(BORROW_POOLS - 1)]
    pools = [a_pool(name, labels={"team": name}) for name in lenders]
    events: list[Event] = [PoolSeen(pool) for pool in (*pools, a_pool("home"))]
    for number in range(BORROW_NODES):
        team = lenders[number % len(lenders)]
        events.append(NodeSeen(a_node(f"node-{number:05d}", cpu="64", memory="512Gi", gpu=8, labels={"team": team})))
        own = a_pod(f"own-{number}", cpu="16", memory="64Gi", gpu=2, pool=team, node=f"node-{number:05d}")
        events.append(PodSeen(own))
    scheduler = scheduler_of(events)
    asked = a_pod("p", cpu="4", memory="32Gi", gpu=1, pool="home")
    pods = [replace(asked, uid=f"u{n}", name=f"p{n}", created_seconds=n) for n in range(DECISIONS)]
    home, abroad, choosing = [], [], []
    cluster = scheduler._cluster
    for pod in pods:
        scheduler.observe(PodSeen(pod), 0.0)
        home.append(seconds(partial(scheduler.decide, "home", 0.0, 1)))
        (lender,) = [name for name, places in scheduler.waiting().items() if places]
        before = time.process_time()
        said = scheduler.decide(lender, 0.0, 1)
        abroad.append(time.process_time() - before)
        assert [action.borrowed for action in said if isinstance(action, Bind)] == [True]
        ask = cluster.ask(asked.spec, "home")
        before = time.process_time()
        found = choose_lender(cluster.borrowing, "home", ask, ("home",))
        choosing.append(time.process_time() - before)
        assert isinstance(found, Lender)
    show(
        f"Borrowing, {BORROW_POOLS} pools, {BORROW_NODES:,} nodes; the goal is {millis(BORROW_GOAL_SECONDS)} ms",
        ["step", "ms, median", "ms, worst", "goal / median"],
        [
            row("decide at home: no node, a lender", home, BORROW_GOAL_SECONDS),
            row("decide at the lender: a node", abroad, BORROW_GOAL_SECONDS),
            row("choose_lender alone, after one row changed", choosing, BORROW_GOAL_SECONDS),
        ],
    )


def before_an_edit(parked: int, home: str) -> Scheduler:
    """1,000 full nodes of pool `a`, and pods of 20 classes that are too large for what is left of them."""
    pools = (a_pool("a", labels={"team": "a"}), a_pool("b", labels={"team": "b"}), a_pool("c"))
    waiting = (a_pod(f"w{n}", cpu=f"{40_000 + n % 20}m", memory="1Gi", pool=home, created=n) for n in range(parked))
    return scheduler_of(
        [
            *(PoolSeen(pool) for pool in pools),
            *full_nodes(MOVED_NODES, pool="a", label="a"),
            *(PodSeen(pod) for pod in waiting),
        ]
    )


def edit(scheduler: Scheduler) -> tuple[float, list[float]]:
    """Move the nodes from `a` to `b`; return the CPU of that, and of each call until all is decided that follows."""
    gains, loses = a_pool("b", labels={"team": "a"}, generation=2), a_pool("a", labels={"team": "b"}, generation=2)
    edits = [seconds(partial(scheduler.observe, PoolSeen(pool), 0.0)) for pool in (gains, loses)]
    calls = list(edits)
    while ready := scheduler.ready(0.0):
        calls += [seconds(partial(scheduler.decide, pool, 0.0, 1)) for pool in ready]
    return sum(edits), calls


def test_cpu_of_an_edit_that_moves_nodes() -> None:
    rows = []
    for name, parked, home in (
        ("nobody", 0, "a"),
        ("2,000 pods of 20 classes in the pool that gains", 2_000, "b"),
        ("2,000 pods of 20 classes in a pool that borrows", 2_000, "c"),
    ):
        totals, longest = [], []
        for _ in range(3):
            scheduler = before_an_edit(parked, home)
            total, calls = edit(scheduler)
            totals.append(total)
            longest.append(max(calls))
            assert {pool.name: pool.nodes for pool in scheduler.summary()}["b"] == MOVED_NODES
        total, call = statistics.median(totals), statistics.median(longest)
        rows.append(
            [name, millis(total), times(MOVE_GOAL_SECONDS, total), millis(call), times(CALL_GOAL_SECONDS, call)]
        )
    show(
        f"Two edits that move {MOVED_NODES:,} nodes with {PODS_EACH} pods each from one pool to another; the goals are "
        f"{millis(MOVE_GOAL_SECONDS)} ms in all and {millis(CALL_GOAL_SECONDS)} ms for one call",
        ["who waits", "ms, both edits", "goal / taken", "ms, longest call", "goal / taken"],
        rows,
    )


def a_queue(classes: int) -> Scheduler:
    """20,000 parked pods of one CPU; some nodes are taken whole, and one such pod leaves room for so many of them."""
    events: list[Event] = []
    for count in WOKEN:
        for number in range(EVENTS_EACH):
            cpu, name = f"{count}500m", f"node-{count}-{number}"
            events.append(NodeSeen(a_node(name, cpu=cpu, memory="4096Gi", pods=200)))
            events.append(PodSeen(a_pod(f"taker-{count}-{number}", cpu=cpu, memory="1Gi", node=name)))
    kinds = [a_pod(f"kind-{n}", cpu="1", memory=f"{64 + n}Mi") for n in range(classes)]
    parked = (
        replace(kinds[n % classes], uid=f"u{n:05d}", name=f"p{n:05d}", created_seconds=n) for n in range(PARKED_PODS)
    )
    return scheduler_of([*events, *(PodSeen(pod) for pod in parked)])


@dataclass(frozen=True, slots=True)
class Woken:
    """What one pod that left set in motion: CPU of the event and of the decisions, and how many these were."""

    told_seconds: float
    decided_seconds: float
    attempts: int


def let_go(scheduler: Scheduler, count: int, number: int) -> Woken:
    """Let one pod go that leaves room for so many others."""
    before = scheduler.tally.attempts.total()
    told = seconds(partial(scheduler.observe, PodGone(f"uid-taker-{count}-{number}"), 0.0))
    start = time.process_time()
    said = finish(scheduler)
    decided = time.process_time() - start
    assert sum(isinstance(action, Bind) for action in said) == count
    return Woken(told, decided, scheduler.tally.attempts.total() - before)


def test_cpu_of_waking_up_by_who_can_use_the_room() -> None:
    rows = []
    for classes in CLASSES:
        scheduler = a_queue(classes)
        assert scheduler.waiting()[DEFAULT] == {"parked": PARKED_PODS}
        for count in WOKEN:
            found = [let_go(scheduler, count, number) for number in range(EVENTS_EACH)]
            told = statistics.median(one.told_seconds for one in found)
            decided = statistics.median(one.decided_seconds for one in found)
            attempts = statistics.median(one.attempts for one in found)
            each = micros(told + decided, count) if count else "-"
            rows.append([f"{classes:,}", f"{count}", f"{attempts:.0f}", micros(told, 1), micros(decided, 1), each])
    show(
        f"One pod leaves, {PARKED_PODS:,} pods are parked; the cost is to follow those who can use the room",
        ["classes", "can use it", "attempts", "µs, the event", "µs, the decisions", "µs for each that can"],
        rows,
    )


def ask_often(scheduler: Scheduler) -> None:
    """Ask what a loop asks between its slices."""
    for _ in range(ASKED_OFTEN):
        scheduler.next_wakeup()
        scheduler.ready(0.0)


def test_cpu_of_summing_up_and_of_asking_what_is_next() -> None:
    rows = []
    for pools in (1, 50, 100):
        names = [f"pool-{number:03d}" for number in range(pools)]
        events: list[Event] = [PoolSeen(a_pool(name, labels={"team": name})) for name in names]
        for number in range(SUMMED_NODES):
            team, node = names[number % pools], f"node-{number:05d}"
            events.append(NodeSeen(a_node(node, cpu="64", memory="512Gi", gpu=8, labels={"team": team})))
            for one in range(PODS_EACH):
                home = names[(number + (one == 0)) % pools]
                events.append(PodSeen(a_pod(f"{node}-{one}", cpu="4", gpu=1, pool=home, node=node)))
        events += [PodSeen(a_pod(f"w{n}", cpu="900", pool=names[n % pools], created=n)) for n in range(1_000)]
        scheduler = scheduler_of(events)
        summary = statistics.median(seconds(scheduler.summary) for _ in range(20))
        asked = seconds(partial(ask_often, scheduler)) / ASKED_OFTEN
        assert sum(pool.pods for pool in scheduler.summary()) == SUMMED_NODES * PODS_EACH
        rows.append([f"{pools}", f"{SUMMED_NODES * PODS_EACH:,}", millis(summary), micros(asked, 1)])
    show(
        "All pools in numbers, and what a loop asks between its slices",
        ["pools", "running pods", "ms, summary()", "µs, next_wakeup() and ready()"],
        rows,
    )
