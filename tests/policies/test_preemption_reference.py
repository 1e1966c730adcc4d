"""The search over all rows at once equals a search of one node at a time in plain Python."""

from collections.abc import Iterable, Sequence
from random import Random  # noqa: TID251 - Hypothesis hands over the chance that it chose

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.framework.node_view import NodeView
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort
from aischeduler.model.selectors import label_selector
from aischeduler.policies.preemption import Candidate, VictimRequest
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_request, a_taint, on_row, replace
from tests.policies.crowd import HIGH, LOW, MID, NEGATIVE, PLUGINS, Crowd, Held, held, preemptor

PORTS = (HostPort("TCP", 80), HostPort("TCP", 80, "10.0.0.1"), HostPort("UDP", 80))
REQUESTS = (
    a_request(cpu="1", memory="1Gi"),
    a_request(cpu="2", memory="1Gi", gpu=1),
    a_request(cpu="500m", memory="4Gi", gpu=2),
    a_request(cpu="1", memory="2Gi", extended={"example.com/card": "1"}),
)
NODES = ("n1", "n2", "n3")


def fits(asked: VictimRequest, node: Node, pods: Iterable[Held]) -> bool:
    """Return whether every filter passes the one node with only these pods on it."""
    table = NodeTable()
    row, _ = table.see(node)
    for one in pods:
        table.add(on_row(one.pod, row))
    masks = [rule.filter(asked.spec, NodeView(table, np.array([row], dtype=np.intp))) for rule in PLUGINS.filters]
    return all(mask is None or mask[0] for mask in masks)


def started(one: Held) -> int:
    return one.pod.started_seconds or 10**9


def importance(one: Held) -> tuple[bool, int, int, str]:
    return one.borrower, -one.pod.priority, started(one), one.pod.uid


def split_by_budgets(pods: Sequence[Held], budgets: Sequence[DisruptionBudget]) -> tuple[list[Held], list[Held]]:
    """Return the pods whose eviction breaks a budget, and the others."""
    left = {budget.name: budget.disruptions_allowed for budget in budgets}
    breaking: list[Held] = []
    others: list[Held] = []
    for one in pods:
        breaks = False
        for budget in budgets:
            if budget.covers(one.pod):
                left[budget.name] -= 1
                breaks |= left[budget.name] < 0
        (breaking if breaks else others).append(one)
    return breaking, others


def on_node(
    asked: VictimRequest, node: Node, pods: Sequence[Held], budgets: Sequence[DisruptionBudget]
) -> tuple[list[Held], int] | None:
    """Return the victims on one node, the least important first, and how many break a budget."""
    staying = [one for one in pods if not one.leaving]
    if fits(asked, node, staying):
        return [], 0
    potential = [
        one
        for one in sorted(staying, key=importance)
        if one.evictable and (one.borrower or one.pod.priority < asked.preemptor.priority)
    ]
    staying = [one for one in staying if one not in potential]
    if not potential or not fits(asked, node, staying):
        return None
    victims: list[Held] = []
    violations = 0
    breaking, others = split_by_budgets(potential, budgets)
    for one in [*breaking, *others]:
        if fits(asked, node, [*staying, one]):
            staying.append(one)
        else:
            victims.append(one)
            violations += one in breaking
    return sorted(victims, key=importance, reverse=True), violations


def cost(victims: Sequence[Held], violations: int) -> tuple[int, ...]:
    """Return the cost of a node; the smallest is chosen."""
    if not victims:
        return (-1,)
    priorities = [-(2**40) if one.borrower else one.pod.priority for one in victims]
    weight = sum(0 if one.borrower else one.pod.priority + 2**31 for one in victims)
    oldest = min(started(one) for one, p in zip(victims, priorities, strict=True) if p == max(priorities))
    return violations, max(priorities), weight, len(victims), -oldest


def chosen(
    asked: VictimRequest, nodes: Sequence[Node], pods: Sequence[Held], budgets: Sequence[DisruptionBudget]
) -> tuple[str, tuple[str, ...], int] | None:
    found = []
    for node in nodes:
        answer = on_node(asked, node, [one for one in pods if one.node == node.name], budgets)
        if answer is not None:
            victims, violations = answer
            uids = tuple(one.pod.uid for one in victims)
            found.append((cost(victims, violations), node.name, uids, violations))
    return min(found)[1:] if found else None


def a_held(draw: st.DrawFn, number: int) -> Held:
    return held(
        f"p{draw(st.integers(0, 9))}-{number}",
        draw(st.sampled_from(NODES)),
        draw(st.sampled_from(REQUESTS)),
        draw(st.sampled_from((NEGATIVE, LOW, LOW, MID, HIGH))),
        started=draw(st.integers(0, 3)),
        borrower=draw(st.booleans()),
        evictable=draw(st.sampled_from((True, True, True, True, False))),
        leaving=draw(st.sampled_from((False, False, False, False, True))),
        host_ports=draw(st.sampled_from(((), (), (), PORTS[:1], PORTS[1:2], PORTS[2:]))),
        labels=draw(st.sampled_from(((), (("app", "a"),), (("app", "a"), ("tier", "b"))))),
        namespace=draw(st.sampled_from(("default", "other"))),
    )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest]:
    nodes = [
        a_node(
            name,
            cpu=draw(st.sampled_from(("2", "4"))),
            memory="8Gi",
            gpu=draw(st.sampled_from((0, 3))),
            pods=draw(st.sampled_from((3, 110))),
            extended={"example.com/card": "1"},
            taints=draw(st.sampled_from(((), (), (), (a_taint(),)))),
        )
        for name in draw(st.permutations(NODES))
    ]
    pods = [a_held(draw, number) for number in range(draw(st.integers(0, 20)))]
    budgets = [
        DisruptionBudget(
            "default",
            name,
            "",
            label_selector("s", {name: value}, ()),
            draw(st.integers(0, 2)),
            frozenset(draw(st.lists(st.sampled_from([one.pod.name for one in pods] or [""]), max_size=1))),
        )
        for name, value in draw(st.sampled_from(((), (("app", "a"),), (("app", "a"), ("tier", "b")))))
    ]
    asked = preemptor(
        draw(st.sampled_from(REQUESTS)),
        draw(st.sampled_from((LOW, MID, HIGH))),
        host_ports=draw(st.sampled_from(((), (), PORTS[:1]))),
    )
    return nodes, pods, budgets, asked


@settings(max_examples=150, deadline=None)
@given(crowds())
def test_the_choice_equals_that_of_one_node_at_a_time(
    world: tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest],
) -> None:
    nodes, pods, budgets, asked = world
    crowd = Crowd(nodes, pods, budgets)
    used, ports = crowd.table.used.copy(), {row: dict(held) for row, held in crowd.table.ports.on.items()}
    answer = crowd.choose(asked)
    expected = chosen(asked, nodes, pods, budgets)
    if isinstance(answer, Candidate):
        assert (crowd.table.names[answer.row], answer.victims, answer.violations) == expected
    else:
        assert expected is None
        assert sum(answer.reasons.values()) >= len(nodes) == answer.nodes
    for node in nodes:
        there = [one for one in pods if one.node == node.name and not one.leaving]
        assert crowd.fits_after_departures(asked, node.name) == fits(asked, node, there)
    assert (crowd.table.used[: len(used)] == used).all()
    assert crowd.table.ports.on == ports


@settings(max_examples=60, deadline=None)
@given(crowds(), st.randoms(use_true_random=False))
def test_neither_the_order_of_pods_nor_earlier_ones_matter(
    world: tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest],
    chance: Random,
) -> None:
    nodes, pods, budgets, asked = world
    first = Crowd(nodes, pods, budgets)
    chance.shuffle(nodes)
    chance.shuffle(pods)
    second = Crowd(nodes, [*(replace_uid(one) for one in pods), *pods], budgets)
    for one in pods:
        again = replace_uid(one)
        second.table.remove(on_row(again.pod, second.table.row(one.node)))
        second.running.remove(again.pod.uid)
    answers = []
    for crowd in (first, second):
        answer = crowd.choose(asked)
        if isinstance(answer, Candidate):
            answers.append(str((crowd.table.names[answer.row], answer.victims, answer.violations)))
        else:
            answers.append(answer.message)
    assert answers[0] == answers[1]


def replace_uid(one: Held) -> Held:
    return replace(one, pod=replace(one.pod, uid=f"earlier-{one.pod.uid}"))
