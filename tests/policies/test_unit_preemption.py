"""Victims for a unit: enough for all of it, and none of them for nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import allocation_of
from aischeduler.model.pod import HostPort, Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies.eviction_order import Preemptor
from aischeduler.policies.preemption import NoCandidate, VictimRequest
from aischeduler.policies.unit_placement import all_fit_after_departures
from aischeduler.policies.unit_preemption import UnitCandidate, choose_unit_victims
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.running_pods import RunningFacts
from tests import packing_oracle
from tests.build import a_node, a_pod, replace
from tests.policies.crowd import PLUGINS, Crowd, Held, held, res
from tests.policies.test_unit_placement import a_unit

ROOM_MILLI = 400
PODS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([100, 200, 400]),
        st.sampled_from([0, 5, 20]),
        st.booleans(),
        st.sampled_from([0, 0, 0, 1, 2]),
    ),
    max_size=10,
)
"""Pods on nodes: node, CPU, priority, whether it is a borrower, and its unit (0: none)."""


def a_crowd(pods: list[tuple[int, int, int, bool, int]]) -> tuple[Crowd, dict[str, int]]:
    there: list[Held] = []
    units: dict[str, int] = {}
    for i, (node, cpu_milli, priority, borrower, unit) in enumerate(pods):
        if sum(one.pod.spec.request.amounts["cpu"] for one in there if one.node == f"n{node}") + cpu_milli > ROOM_MILLI:
            continue
        there.append(held(f"old-{i}", f"n{node}", res(cpu_milli), priority, borrower=borrower))
        units[f"old-{i}"] = unit
    crowd = Crowd((a_node(f"n{i}", cpu=f"{ROOM_MILLI}m", memory="4Gi") for i in range(4)), there)
    for one in there:
        facts = one.facts
        crowd.running.change(
            one.pod.uid,
            RunningFacts(facts.priority, facts.borrower, facts.evictable, facts.leaving, 1, unit=units[one.pod.uid]),
        )
    return crowd, units


@given(pods=PODS, cpu_milli=st.sampled_from([100, 300, 400]), count=st.integers(2, 3))
def test_victims_make_the_whole_unit_fit_and_none_goes_for_nothing(
    pods: list[tuple[int, int, int, bool, int]], cpu_milli: int, count: int
) -> None:
    crowd, units = a_crowd(pods)
    unit = a_unit(
        *(a_pod(f"p{i}", cpu=f"{cpu_milli}m", priority=10) for i in range(count)),
        required=count,
        placement=PlacementStrategy.PACK,
    )
    leaving = crowd.running.table["leaving"].copy()
    version = crowd.running.version
    found = choose_unit_victims(unit, crowd.runner, crowd.running, crowd.rows, crowd.budgets)
    assert (crowd.running.table["leaving"] == leaving).all()
    assert crowd.running.version == version
    if not isinstance(found, UnitCandidate):
        return
    groups = {(units[uid], "" if units[uid] else uid) for uid in found.victims}
    for spared in [None, *sorted(groups)]:
        staying = {uid for uid in found.victims if (units[uid], "" if units[uid] else uid) == spared}
        with crowd.running.trying():
            gone = crowd.running.slots_of(uid for uid in found.victims if uid not in staying)
            crowd.running.table["leaving"][gone] = True
            assert all_fit_after_departures(found.pods, crowd.runner, crowd.running) == (spared is None)


@given(pods=PODS)
def test_pods_of_a_unit_go_together_and_one_right_is_enough(pods: list[tuple[int, int, int, bool, int]]) -> None:
    crowd, units = a_crowd(pods)
    found = crowd.choose(VictimRequest(a_pod("p", cpu=f"{ROOM_MILLI}m").spec, Preemptor(10)))
    victims = getattr(found, "victims", ())
    for uid in victims:
        together = {other for other, unit in units.items() if unit and unit == units[uid]} or {uid}
        assert together <= {*victims}
        rightful = [crowd.pods[one] for one in together]
        assert any(one.borrower or one.pod.priority < 10 for one in rightful)


class CountingRunner(Runner):
    """Counts how often rules are asked about rows."""

    asked = 0

    def fits(self, spec: PodSpec, rows: Rows) -> Mask:
        self.asked += 1
        return super().fits(spec, rows)


def full_nodes(nodes: int, each: int, cpu_milli: int, *, priority: int = 0) -> Crowd:
    """Return nodes, each full of some pods."""
    there = [
        held(f"old-{n}-{i}", f"n{n}", res(cpu_milli), priority, started=1 + n)
        for n in range(nodes)
        for i in range(each)
    ]
    crowd = Crowd((a_node(f"n{n}", cpu=f"{each * cpu_milli}m", memory="4Gi") for n in range(nodes)), there)
    crowd.runner = CountingRunner(PLUGINS, crowd.table)
    return crowd


def asked_for(crowd: Crowd, *pods: Pod, priority: int = 10) -> tuple[UnitCandidate | NoCandidate, int]:
    """Return the victims for a unit, and how often the rules were asked meanwhile."""
    unit = replace(a_unit(*pods, required=len(pods), placement=PlacementStrategy.PACK), preemptor=Preemptor(priority))
    assert isinstance(crowd.runner, CountingRunner)
    crowd.runner.asked = 0
    found = choose_unit_victims(unit, crowd.runner, crowd.running, crowd.rows, crowd.budgets)
    return found, crowd.runner.asked


FEW_QUESTIONS = 150


@pytest.mark.parametrize(
    ("each", "victims", "cpu_milli"),
    [(4, 256, 100), (4, 128, 50), (2, 128, 50), (1, 128, 1)],
    ids=["one victim a pod", "a victim for two pods", "half of the victims", "more room than is needed"],
)
def test_large_gang_asks_no_more_than_a_small_one(each: int, victims: int, cpu_milli: int) -> None:
    crowd = full_nodes(128, each, 100)
    found, asked = asked_for(crowd, *(a_pod(f"p{n}", cpu=f"{cpu_milli}m", memory="1") for n in range(256)))
    assert isinstance(found, UnitCandidate)
    assert len(found.victims) <= victims
    assert asked <= FEW_QUESTIONS


def test_gang_of_different_pods_asks_few_questions() -> None:
    crowd = full_nodes(64, 8, 100)
    pods = [a_pod(f"p{n}", cpu=f"{36 + n}m", memory=f"{n + 1}") for n in range(64)]
    found, asked = asked_for(crowd, *pods)
    assert isinstance(found, UnitCandidate)
    assert len(found.victims) <= 64
    assert asked <= FEW_QUESTIONS


def test_gang_for_which_nothing_may_go_asks_few_questions() -> None:
    crowd = full_nodes(64, 8, 100, priority=10)
    found, asked = asked_for(crowd, *(a_pod(f"p{n}", cpu="10m", memory="1") for n in range(256)))
    assert isinstance(found, NoCandidate)
    assert asked <= FEW_QUESTIONS


def test_pods_claim_rooms_in_which_nothing_is_chosen_for_them_yet() -> None:
    """A pod that moves for a victim takes nothing along that was chosen on the row before."""
    ports = (HostPort("TCP", 80),)
    crowd = Crowd((a_node(f"n{i}", cpu="2") for i in range(3)), [held("old", "n0", res(2000), 0)])
    unit = a_unit(*(a_pod(f"p{n}", cpu="2", host_ports=ports) for n in range(3)), required=3)
    found = choose_unit_victims(
        replace(unit, preemptor=Preemptor(5)), crowd.runner, crowd.running, crowd.rows, crowd.budgets
    )
    assert isinstance(found, UnitCandidate)
    assert [one.allocation for one in found.pods] == [allocation_of(one.spec) for one in found.pods]
    assert sorted(crowd.table.names[one.row] for one in found.pods) == ["n0", "n1", "n2"]


@given(pods=PODS, sizes=st.lists(st.sampled_from([100, 200, 300, 400]), min_size=2, max_size=4))
def test_victims_are_found_exactly_where_the_unit_fits_without_all_that_may_go(
    pods: list[tuple[int, int, int, bool, int]], sizes: list[int]
) -> None:
    crowd, units = a_crowd(pods)
    may_go = [one for one in crowd.pods.values() if one.borrower or one.pod.priority < 10]
    names = {units[one.pod.uid] for one in may_go} - {0}
    gone = {one.pod.uid for one in may_go} | {uid for uid, unit in units.items() if unit in names}
    room = [
        ROOM_MILLI
        - sum(
            one.pod.spec.request.amounts["cpu"]
            for one in crowd.pods.values()
            if one.node == f"n{i}" and one.pod.uid not in gone
        )
        for i in range(4)
    ]
    lone = not names
    unit = a_unit(*(a_pod(f"p{n}", cpu=f"{size}m", memory="1") for n, size in enumerate(sizes)), required=len(sizes))
    found = choose_unit_victims(
        replace(unit, preemptor=Preemptor(10)), crowd.runner, crowd.running, crowd.rows, crowd.budgets
    )
    fits = packing_oracle.fits([(free,) for free in room], [(size,) for size in sizes])
    assert fits or not isinstance(found, UnitCandidate)
    assert isinstance(found, UnitCandidate) or not fits or not lone
    if isinstance(found, UnitCandidate):
        with crowd.running.trying():
            crowd.running.table["leaving"][crowd.running.slots_of(found.victims)] = True
            assert all_fit_after_departures(found.pods, crowd.runner, crowd.running)
