"""The bound of units by amounts: what is kept is what is counted anew, and no unit that a search places is refused."""

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.policies.eviction_order import Preemptor
from aischeduler.policies.unit_capacity import UnitCapacity
from aischeduler.policies.unit_placement import UnitPlacement, place_unit
from aischeduler.policies.unit_preemption import UnitCandidate, choose_unit_victims
from aischeduler.state.claims import Claims
from aischeduler.state.ledger import Ledger
from aischeduler.state.units import shape_of
from aischeduler.state.what_if import Trial
from tests.build import a_node, a_pod, on_row, replace
from tests.policies.crowd import Crowd, Held, held, res
from tests.policies.test_unit_placement import a_unit

POOL, NODES, PRIORITY = 0, 4, 10
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["come", "go", "cordon", "look", "look in a trial"]),
        st.integers(0, NODES - 1),
        st.sampled_from([100, 200, 300]),
        st.sampled_from([0, 20]),
    ),
    max_size=25,
)


def answers(capacity: UnitCapacity) -> list[bool]:
    """Return what the bound says of units of one to six pods of each size, of two sizes, and with evictions or not."""
    specs = [a_pod("p", cpu=f"{size}m").spec for size in (100, 250)]
    units = [[spec] * count for spec in specs for count in range(1, 7)] + [specs * count for count in range(1, 4)]
    return [
        capacity.may_hold(shape_of(unit), pool, priority)
        for unit in units
        for pool in (POOL, None)
        for priority in (None, PRIORITY)
    ]


def a_crowd() -> Crowd:
    crowd = Crowd((a_node(f"n{i}", cpu="600m", memory="4Gi") for i in range(NODES)), ())
    crowd.table.pool[crowd.rows] = POOL
    crowd.table.pool_version += 1
    return crowd


def come(crowd: Crowd, one: Held) -> None:
    """Put a pod on its node."""
    crowd.pods[one.pod.uid] = one
    row = crowd.table.rows[one.node]
    crowd.table.add(on_row(one.pod, row))
    crowd.running.add(one.pod.uid, one.pod.spec, row, one.facts)


@given(changes=CHANGES)
def test_kept_counts_are_those_of_a_new_look(changes: list[tuple[str, int, int, int]]) -> None:
    crowd = a_crowd()
    nodes, claims = crowd.table, Claims(crowd.table, Ledger(), lambda _: None)
    kept = UnitCapacity(crowd.runner, crowd.running, claims)

    def check() -> None:
        assert answers(kept) == answers(UnitCapacity(crowd.runner, crowd.running, claims))

    for turn, (what, node, cpu_milli, priority) in enumerate(changes):
        row, there = nodes.rows[f"n{node}"], list(crowd.pods.values())
        if what == "come":
            come(crowd, held(f"old-{turn}", f"n{node}", res(cpu_milli), priority))
        elif what == "go" and there:
            crowd.forget(there[node % len(there)])
        elif what == "cordon":
            was = nodes.nodes[row]
            assert was is not None
            nodes.see(replace(was, unschedulable=not was.unschedulable))
        elif what == "look":
            check()
        else:
            with Trial(nodes, [on_row(one.pod, nodes.rows[one.node]) for one in there[:node]]) as trial:
                trial.place(on_row(a_pod("new", cpu=f"{cpu_milli}m"), row))
                check()
    check()


@given(
    pods=st.lists(
        st.tuples(st.integers(0, NODES - 1), st.sampled_from([100, 300, 600]), st.sampled_from([0, 20])), max_size=12
    ),
    sizes=st.lists(st.sampled_from([100, 200, 300, 600]), min_size=1, max_size=6),
)
def test_unit_that_a_search_places_is_not_refused(pods: list[tuple[int, int, int]], sizes: list[int]) -> None:
    crowd = a_crowd()
    for turn, (node, cpu_milli, priority) in enumerate(pods):
        come(crowd, held(f"old-{turn}", f"n{node}", res(cpu_milli), priority))
    made = (a_pod(f"p{i}", cpu=f"{size}m", priority=PRIORITY) for i, size in enumerate(sizes))
    unit = replace(a_unit(*made, required=len(sizes)), preemptor=Preemptor(PRIORITY))
    capacity = UnitCapacity(crowd.runner, crowd.running, Claims(crowd.table, Ledger(), lambda _: None))
    shape = shape_of([ask.spec for ask in unit.asks])
    if isinstance(place_unit(unit, crowd.runner, crowd.rows), UnitPlacement):
        assert capacity.may_hold(shape, POOL)
    if isinstance(choose_unit_victims(unit, crowd.runner, crowd.running, crowd.rows, crowd.budgets), UnitCandidate):
        assert capacity.may_hold(shape, POOL, PRIORITY)
