"""The cases of kube-scheduler's preemption, P1 to P29, by their names in its tests, on the engine.

The sizes of pods are hundreds of milli-CPU on nodes of 500m: SMALL 1, MEDIUM 2, LARGE 3.
P3, P9, P20, P21 and P28 are about other rules than room. P29 (how many nodes are tried) has no counterpart: all are.
"""

from dataclasses import dataclass

import pytest

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import CRITICAL_PRIORITY, Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, replace, spread
from tests.engine.session import Session, binds, evictions, nominations, reports

NEGATIVE, LOW, MID, HIGH, HIGHER = -100, 0, 100, 1000, 2000
SMALL, MEDIUM, LARGE, WHOLE = 1, 2, 3, 5
HOST = "kubernetes.io/hostname"
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def node(name: str, size: int = WHOLE, **given: object) -> Node:
    return a_node(name, cpu=f"{size}00m", labels={HOST: name}, **given)  # type: ignore[arg-type]


def pod(name: str, size: int, priority: int, on: str = "", started: int = 1, **given: object) -> Pod:
    made = a_pod(name, cpu=f"{size}00m", memory="0", priority=priority, node=on, **given)  # type: ignore[arg-type]
    return replace(made, started_seconds=started if on else 0)


def budget(name: str, allowed: int, disrupted: frozenset[str] = frozenset(), **labels: str) -> Seen:
    selector = label_selector("selector", labels, ())
    return Seen(DisruptionBudget("default", name, f"uid-{name}", selector, allowed, disrupted))


def pairs(**starts: tuple[int, int]) -> tuple[Pod, ...]:
    """Return two pods of MID priority on each node, started at these times."""
    return tuple(
        pod(f"{on}-{which}", MEDIUM, MID, on, started)
        for on, both in starts.items()
        for which, started in zip("ab", both, strict=True)
    )


@dataclass(frozen=True)
class Case:
    """Running pods on the nodes n1, n2, ... of 500m, an asker, the victims, and the nodes of which one is chosen."""

    row: str
    running: tuple[Pod, ...]
    asker: Pod
    victims: set[str]
    on: str
    budgets: tuple[Seen, ...] = ()


ASKER = pod("asker", WHOLE, HIGH)
CASES = [
    Case("P1", (pod("low", WHOLE, LOW, "n1"),), ASKER, {"low"}, "n1"),
    Case("P4", (pod("higher", WHOLE, HIGHER, "n1"), pod("low", WHOLE, LOW, "n2")), ASKER, {"low"}, "n2"),
    Case(
        "P6",
        (pod("low", SMALL, LOW, "n1"), pod("mid", LARGE, MID, "n1")),
        pod("asker", LARGE, HIGH),
        {"mid"},
        "n1",
    ),
    Case(
        "P7",
        (
            *(pod("mid-small", SMALL, MID, "n1"), pod("low-small", SMALL, LOW, "n1")),
            *(pod("mid-medium", MEDIUM, MID, "n1"), pod("high-small", SMALL, HIGH, "n1")),
        ),
        pod("asker", LARGE, HIGH),
        {"low-small", "mid-medium"},
        "n1",
    ),
    Case(
        "P8",
        (
            *(pod("low-5", SMALL, LOW, "n1", 5), pod("low-4", SMALL, LOW, "n1", 4)),
            *(pod("mid-medium", MEDIUM, MID, "n1"), pod("high-small", SMALL, HIGH, "n1")),
        ),
        pod("asker", LARGE, HIGH),
        {"low-5", "mid-medium"},
        "n1",
    ),
    Case(
        "P10",
        (
            *(pod("mid-1", LARGE, MID, "n1"), pod("mid-2", MEDIUM, MID, "n1")),
            *(pod("mid-3", LARGE, MID, "n2"), pod("low-1", MEDIUM, LOW, "n2")),
            *(pod("low-2", LARGE, LOW, "n3"), pod("low-3", MEDIUM, LOW, "n3")),
        ),
        ASKER,
        {"low-2", "low-3"},
        "n3",
    ),
    Case(
        "P11",
        (
            *(pod("mid-1", LARGE, MID, "n1"), pod("mid-2", MEDIUM, MID, "n1")),
            *(pod("mid-3", LARGE, MID, "n2"), pod("low-1", MEDIUM, LOW, "n2")),
            *(pod("mid-4", LARGE, MID, "n3"), pod("mid-5", MEDIUM, MID, "n3")),
        ),
        ASKER,
        {"mid-3", "low-1"},
        "n2",
    ),
    Case(
        "P12",
        (
            *(pod("mid-1", SMALL, MID, "n1"), pod("mid-2", SMALL, MID, "n1")),
            *(pod("negative-1", SMALL, NEGATIVE, "n1"), pod("negative-2", MEDIUM, NEGATIVE, "n1")),
            *(pod("mid-3", LARGE, MID, "n2"), pod("negative-3", MEDIUM, NEGATIVE, "n2")),
            *(pod("mid-4", MEDIUM, MID, "n3"), pod("negative-4", SMALL, NEGATIVE, "n3")),
            pod("low-1", MEDIUM, LOW, "n3"),
        ),
        ASKER,
        {"mid-3", "negative-3"},
        "n2",
    ),
    Case("P13, equal starts", pairs(n1=(2, 2), n2=(3, 3), n3=(1, 1)), ASKER, {"n2-a", "n2-b"}, "n2"),
    Case("P13, earliest starts", pairs(n1=(4, 2), n2=(5, 1), n3=(3, 6)), ASKER, {"n3-a", "n3-b"}, "n3"),
    Case(
        "P14",
        (
            *(pod("mid-1", MEDIUM, MID, "n1", 2), pod("low-1", MEDIUM, LOW, "n1", 9)),
            *(pod("mid-2", MEDIUM, MID, "n2", 6), pod("low-2", MEDIUM, LOW, "n2", 1)),
            *(pod("mid-3", MEDIUM, MID, "n3", 5), pod("low-3", MEDIUM, LOW, "n3", 9)),
        ),
        ASKER,
        {"mid-2", "low-2"},
        "n2",
    ),
    Case(
        "P15",
        (
            pod("mid-1", MEDIUM, MID, "n1", labels={"app": "x"}),
            pod("mid-2", MEDIUM, MID, "n1", labels={"app": "x"}),
        ),
        ASKER,
        {"mid-1", "mid-2"},
        "n1",
        (budget("x", 1, app="x"),),
    ),
    Case(
        "P16",
        (
            *(pod("low", MEDIUM, LOW, "n1", labels={"app": "x"}), pod("high", MEDIUM, HIGH, "n1")),
            pod("mid", WHOLE, MID, "n2", labels={"app": "x"}),
        ),
        pod("asker", WHOLE, HIGHER),
        {"mid"},
        "n2",
        (budget("x", 0, app="x"),),
    ),
    Case(
        "P17",
        (pod("low", MEDIUM, LOW, "n1", labels={"app": "x"}), pod("mid", MEDIUM, MID, "n1")),
        pod("asker", LARGE, HIGH),
        {"mid"},
        "n1",
        (budget("x", 0, app="x"),),
    ),
    Case(
        "P18",
        (
            pod("kept-1", WHOLE, LOW, "n1", labels={"app": "x"}),
            pod("kept-2", MEDIUM, LOW, "n2", labels={"app": "x"}),
            pod("kept-3", LARGE, LOW, "n2", labels={"app": "x"}),
            *(pod("mid-1", MEDIUM, MID, "n3"), pod("mid-2", SMALL, MID, "n3"), pod("mid-3", MEDIUM, MID, "n3")),
        ),
        ASKER,
        {"mid-1", "mid-2", "mid-3"},
        "n3",
        (budget("x", 0, app="x"),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.row)
def test_victims_and_node_are_those_of_kube_scheduler(case: Case) -> None:
    nodes = sorted({one.node_name for one in case.running})
    session = Session(*(node(name) for name in nodes), *case.running)
    session.tell(*case.budgets)
    session.see(case.asker)
    said = session.decide()
    assert (set(evictions(said)), nominations(said), binds(said)) == (case.victims, {"asker": case.on}, {})
    session.tell(*(gone(Pod, f"uid-{name}") for name in case.victims))
    assert binds(session.decide()) == {"asker": case.on}


def test_pod_that_a_budget_lists_as_disrupted_is_not_counted_again() -> None:
    """P15: of the two pods under a budget of one, one is being disrupted already; the other breaks nothing."""
    kept = [pod(name, WHOLE, MID, on, labels={"app": "x"}) for name, on in (("mid-1", "n1"), ("mid-2", "n2"))]
    session = Session(node("n1"), node("n2"), *kept)
    session.tell(budget("x", 0, frozenset({"mid-1"}), app="x"))
    session.see(ASKER)
    assert set(evictions(session.decide())) == {"mid-1"}


def test_no_pod_of_equal_priority_is_a_victim() -> None:
    """P2."""
    session = Session(node("n1"), pod("equal", WHOLE, HIGH, "n1"), ASKER)
    said = session.decide()
    assert (evictions(said), f"1 {NO_VICTIMS}" in reports(said)["asker"]) == ({}, True)


def test_node_that_no_eviction_makes_fit_is_counted_apart() -> None:
    """P3 and P5: nodes that are too small, and one whose pods are too important."""
    small = [a_node(f"small-{number}", cpu="200m") for number in range(2)]
    session = Session(*small, pod("asker", LARGE, HIGH))
    assert "0/2 nodes are available: 2 Insufficient cpu." in reports(session.decide())["asker"]
    mixed = Session(small[0], node("n1"), node("n2"), *(pod(f"r-{on}", WHOLE, HIGH, on) for on in ("n1", "n2")))
    mixed.see(pod("asker", LARGE, HIGH))
    said = reports(mixed.decide())["asker"]
    assert f"0/3 nodes are available: 1 {NOT_HELPFUL}, 2 {NO_VICTIMS}." in said


def test_pod_that_may_not_preempt_waits_ahead_of_lower_ones() -> None:
    """P19."""
    session = Session(node("n1"), pod("low", WHOLE, LOW, "n1"), pod("asker", WHOLE, HIGH, preempts=False))
    said = session.decide()
    assert (evictions(said), "preemptionPolicy=Never" in reports(said)["asker"]) == ({}, True)
    session.see(pod("later", WHOLE, MID, preempts=False))
    session.tell(gone(Pod, "uid-low"))
    assert list(binds(session.decide(20))) == ["asker"]


def test_no_room_is_made_for_an_affinity_to_a_victim() -> None:
    """P20."""
    term = PodAffinityTerm(HOST, label_selector("x", {"app": "db"}, ()), ("default",))
    session = Session(node("n1"), node("n2"), pod("db", WHOLE, LOW, "n1", labels={"app": "db"}))
    session.see(pod("asker", SMALL, HIGH, pod_affinity=pod_affinity(required=(term,))))
    assert evictions(session.decide()) == {}


def test_pods_that_keep_away_from_the_asker_are_the_only_victims() -> None:
    """P9."""
    term = PodAffinityTerm(HOST, label_selector("x", {"app": "db"}, ()), ("default",))
    away = pod_affinity(anti_required=(term,))
    session = Session(node("n1"), pod("other", SMALL, LOW, "n1"), pod("away", SMALL, LOW, "n1", pod_affinity=away))
    session.see(pod("asker", SMALL, HIGH, labels={"app": "db"}))
    assert set(evictions(session.decide())) == {"away"}


def test_no_second_eviction_while_the_victim_of_the_first_leaves() -> None:
    """P21."""
    low = pod("low", WHOLE, LOW, "n1")
    session = Session(node("n1"), node("n2"), low, pod("low-2", WHOLE, LOW, "n2"), ASKER)
    (victim,) = evictions(session.decide())
    on = {"low": low, "low-2": pod("low-2", WHOLE, LOW, "n2")}[victim]
    session.see(replace(on, terminating=True, grace_seconds=30))
    assert evictions(session.decide(2)) == {}
    gone = node(on.node_name)
    session.see(replace(gone, unschedulable=True))
    said = session.decide(2)
    assert len(evictions(said)) == 1  # its node became useless: another room is made


def test_claimed_room_is_closed_to_lower_pods_and_open_to_higher_ones() -> None:
    """P22 and P23."""
    low = pod("low", WHOLE, LOW, "n1")
    session = Session(node("n1"), low, ASKER)
    session.decide()
    session.see(*(pod(f"extra-{number}", SMALL, LOW) for number in range(20)))
    session.see(replace(low, terminating=True, grace_seconds=30))
    assert binds(session.decide()) == {}
    session.see(pod("higher", WHOLE, HIGHER))
    session.tell(gone(Pod, "uid-low"))
    said = session.decide(20)
    assert binds(said) == {"higher": "n1"}
    assert nominations(said)["asker"] == ""


@pytest.mark.parametrize("event", [gone(Node, "n1"), Seen(pod("taker", WHOLE, HIGHER, "n1"))])
def test_nomination_is_cleared_when_its_node_is_lost(event: Event) -> None:
    """P24."""
    session = Session(node("n1"), pod("low", WHOLE, LOW, "n1"), ASKER)
    session.decide()
    session.tell(event)
    assert nominations(session.decide(20)) == {"asker": ""}


@pytest.mark.parametrize("priority", [HIGH, CRITICAL_PRIORITY])
def test_only_the_lowest_pod_that_is_enough_is_evicted(priority: int) -> None:
    """P26."""
    card = "example.com/card"
    session = Session(*(a_node(name, extended={card: "3"}) for name in ("n1", "n2")))
    for name, on, its in (("low", "n1", LOW), ("mid", "n2", MID)):
        session.see(a_pod(name, node=on, priority=its, extended={card: "2"}))
    session.see(a_pod("asker", priority=priority, extended={card: "2"}))
    assert set(evictions(session.decide())) == {"low"}


def test_one_pod_of_each_lower_set_makes_room() -> None:
    """P27: sets of 200, 300 and 450 of 1,000 with the priorities 1, 2, 3; the asker wants 500 with 4."""
    sizes = {"one": (200, 1), "two": (300, 2), "three": (450, 3)}
    running = [
        a_pod(name, cpu=f"{milli}m", memory="0", priority=priority, node="n1")
        for name, (milli, priority) in sizes.items()
    ]
    session = Session(a_node("n1", cpu="1000m"), *running, a_pod("asker", cpu="500m", memory="0", priority=4))
    assert set(evictions(session.decide())) == {"one", "two"}


def test_victims_are_chosen_so_that_the_spread_holds_afterwards() -> None:
    """P28: high 9 of 10 on one node, low 3 x 3 on the other; mid 3 keep within a skew of 1."""
    session = Session(*(a_node(name, cpu="10", labels={"node": name}) for name in ("n1", "n2")))
    session.see(a_pod("high", cpu="9", memory="0", priority=HIGH, node="n1"))
    session.see(*(a_pod(f"low-{number}", cpu="3", memory="0", priority=LOW, node="n2") for number in range(3)))
    even = (spread("node", app="mid"),)
    session.see(
        *(
            a_pod(f"mid-{n}", cpu="3", memory="0", priority=MID, labels={"app": "mid"}, topology_spread=even)
            for n in range(3)
        )
    )
    said = session.decide()
    assert len(evictions(said)) == 1
    assert set(evictions(said)) < {"low-0", "low-1", "low-2"}
