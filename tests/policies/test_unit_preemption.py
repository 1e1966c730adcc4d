"""Victims for a unit: enough for all of it, and none of them for nothing."""

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies.preemption import Preemptor
from aischeduler.policies.unit_placement import all_fit_after_departures
from aischeduler.policies.unit_preemption import UnitCandidate, choose_unit_victims
from aischeduler.state.running_pods import RunningFacts
from tests.build import a_node, a_pod
from tests.policies.crowd import Crowd, Held, held, res
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
    found = crowd.choose(Preemptor(a_pod("p", cpu=f"{ROOM_MILLI}m").spec, 10))
    victims = getattr(found, "victims", ())
    for uid in victims:
        together = {other for other, unit in units.items() if unit and unit == units[uid]} or {uid}
        assert together <= {*victims}
        rightful = [crowd.pods[one] for one in together]
        assert any(one.borrower or one.pod.priority < 10 for one in rightful)
