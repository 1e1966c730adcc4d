import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.policies.gang_losses import lost_with
from aischeduler.state.pod_records import NOWHERE
from aischeduler.state.requests import AMOUNT_MAX
from aischeduler.state.running_pods import RESOURCES_MIN, ROWS_ONE_BY_ONE, SLOTS_FIRST, RunningFacts, RunningPods, Spare
from tests.build import a_request, a_spec, replace

HOME = RunningFacts(priority=5, borrower=False, evictable=True, leaving=False, started_seconds=7, home=1, ours=True)
LOAN = RunningFacts(priority=-5, borrower=True, evictable=False, leaving=True, started_seconds=0, home=2, ours=False)

PLAIN = a_spec(request=a_request(cpu="1", memory="1Gi"))
CARD = a_spec(request=a_request(cpu="2", memory="1Gi", extended={"example.com/card": "3"}))
WEB = a_spec(request=a_request(cpu="1", memory="1Gi"), host_ports=(HostPort("TCP", 80),))
SPECS = (PLAIN, CARD, WEB)


def seen(pods: RunningPods) -> dict[str, tuple[int, PodSpec, RunningFacts]]:
    """Return row, spec and facts of every pod from the columns."""
    found = {}
    for slot in np.flatnonzero(pods.table["row"] != NOWHERE).tolist():
        pod = pods.table[slot]
        facts = RunningFacts(**{name: pod[name].item() for name in RunningFacts.__struct_fields__})
        found[pods.uid_of(slot)] = (int(pod["row"]), pods.specs.spec(int(pod["spec"])), facts)
    return found


def test_a_pod_is_on_its_row_with_its_facts() -> None:
    pods = RunningPods()
    pods.add("a", PLAIN, 3, HOME)
    pods.add("b", CARD, 3, LOAN)
    assert seen(pods) == {"a": (3, PLAIN, HOME), "b": (3, CARD, LOAN)}
    pods.change("a", LOAN)
    assert seen(pods) == {"a": (3, PLAIN, LOAN), "b": (3, CARD, LOAN)}
    pods.remove("a")
    assert seen(pods) == {"b": (3, CARD, LOAN)}
    assert len(pods) == 1


def test_pods_become_borrowers_and_home_pods_as_their_rows_change_pools() -> None:
    pods = RunningPods()
    for uid, row in (("a", 0), ("b", 0), ("c", 1)):
        pods.add(uid, PLAIN, row, replace(HOME, home=2 if uid == "b" else 1))
    pods.follow_pools(np.array([0], dtype=np.intp), np.array([2, 2], dtype=np.int32))
    assert {uid: facts.borrower for uid, (_, _, facts) in seen(pods).items()} == {"a": True, "b": False, "c": False}


def test_the_pods_of_a_row_come_in_the_order_of_their_uids() -> None:
    pods = RunningPods()
    for uid in ("c", "a", "b"):
        pods.add(uid, PLAIN, 1, HOME)
    assert pods.on_row(1) == ("a", "b", "c")
    assert pods.on_row(2) == ()


def test_few_rows_and_many_rows_are_looked_up_with_one_result() -> None:
    pods = RunningPods()
    for number in range(4 * ROWS_ONE_BY_ONE):
        pods.add(f"u{number}", PLAIN, number, HOME)
    rows = np.arange(0, 4 * ROWS_ONE_BY_ONE, 2, dtype=np.intp)
    at_once = pods.slots_on(rows)
    one_by_one = np.concatenate([pods.slots_on(rows[i : i + 1]) for i in range(len(rows))])
    assert sorted(at_once.tolist()) == sorted(one_by_one.tolist())
    assert {pods.uid_of(slot) for slot in at_once.tolist()} == {f"u{row}" for row in rows.tolist()}
    assert pods.slots_on(np.array([], dtype=np.intp)).tolist() == []


def test_unknown_pods_have_no_slots() -> None:
    pods = RunningPods()
    pods.add("a", PLAIN, 1, HOME)
    assert [pods.uid_of(slot) for slot in pods.slots_of(("b", "a")).tolist()] == ["a"]


def test_a_spec_is_forgotten_with_its_last_pod() -> None:
    pods = RunningPods()
    for number in range(10 * SLOTS_FIRST):
        spec = a_spec(request=a_request(cpu=f"{number + 1}m", memory="1Gi"))
        pods.add("u", spec, 0, HOME)
        pods.remove("u")
    assert len(pods.specs.amounts) == SLOTS_FIRST
    assert len(pods.table) == SLOTS_FIRST


def test_enormous_amounts_count_as_in_the_node_table() -> None:
    pods = RunningPods()
    pods.add("a", a_spec(request=a_request(cpu="1", memory="8Ei")), 0, HOME)
    assert pods.specs.amounts.max() == AMOUNT_MAX + 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=250))
def test_table_equals_a_plain_dictionary_after_any_history(steps: list[tuple[int, int, int, bool]]) -> None:
    pods, expected = RunningPods(), dict[str, tuple[int, PodSpec, RunningFacts]]()
    for number, row, choice, loan in steps:
        uid, facts = f"u{number}", LOAN if loan else HOME
        if uid not in expected:
            spec = SPECS[choice % len(SPECS)]
            expected[uid] = (row, spec, facts)
            pods.add(uid, spec, row, facts)
            continue
        old_row, spec, old_facts = expected[uid]
        if choice == 0:
            del expected[uid]
            pods.remove(uid)
        elif choice == 1:
            expected[uid] = (row, spec, old_facts)
            pods.remove(uid)
            pods.add(uid, spec, row, old_facts)
        else:
            expected[uid] = (old_row, spec, facts)
            pods.change(uid, facts)
    assert seen(pods) == expected
    for row in range(5):
        assert pods.on_row(row) == tuple(sorted(uid for uid, pod in expected.items() if pod[0] == row))


def test_specs_are_found_by_the_ports_that_they_take() -> None:
    pods = RunningPods()
    for uid, spec in (("a", PLAIN), ("b", WEB)):
        pods.add(uid, spec, 0, HOME)
    elsewhere = HostPort("TCP", 80, "10.0.0.1")
    assert [pods.specs.spec(number) for number in pods.specs.holding((elsewhere,)).tolist()] == [WEB]
    assert pods.specs.holding((HostPort("UDP", 80),)).tolist() == []
    pods.remove("b")
    assert pods.specs.holding((elsewhere,)).tolist() == []


def a_unit_of_three() -> RunningPods:
    pods = RunningPods()
    for turn, uid in enumerate("abc"):
        pods.add(uid, PLAIN, turn, replace_facts(unit=7))
    pods.add("single", PLAIN, 3, HOME)
    return pods


def replace_facts(**fields: int) -> RunningFacts:
    return msgspec.structs.replace(HOME, **fields)


def lost(pods: RunningPods, *uids: str) -> list[str]:
    return [pods.uid_of(slot) for slot in lost_with(pods, pods.slots_of(uids).tolist())]


def test_all_other_pods_of_a_unit_are_lost_with_more_than_it_can_spare() -> None:
    pods = a_unit_of_three()
    assert sorted(lost(pods, "a")) == ["b", "c"]
    pods.set_spare(7, Spare(1))
    assert lost(pods, "a") == []
    assert lost(pods, "a", "b") == ["c"]
    with pods.trying():
        pods.table["leaving"][pods.slots_of(["b"])] = True
        assert lost(pods, "a") == ["c"]
    assert lost(pods, "a") == []


def test_change_of_a_pod_is_noted_for_its_unit_however_many_pods_that_has() -> None:
    pods = RunningPods()
    for turn in range(1000):
        pods.add(f"p{turn}", PLAIN, turn, replace_facts(unit=7))
    before = pods.version
    pods.change("p0", replace_facts(unit=7, priority=1))
    assert pods.version - before <= 2
    assert pods.changed_since(before) == list(range(1000))


def test_change_of_one_pod_of_a_unit_is_a_change_of_the_rows_of_all() -> None:
    pods = a_unit_of_three()
    version = pods.version
    pods.change("b", replace_facts(unit=7, priority=1))
    assert pods.changed_since(version) == [0, 1, 2]
    version = pods.version
    pods.set_spare(7, Spare(1))
    assert pods.changed_since(version) == [0, 1, 2]
    version = pods.version
    pods.remove("c")
    assert pods.changed_since(version) == [0, 1, 2]
    pods.change("b", HOME)
    assert lost(pods, "a") == []


def test_pods_that_count_as_gone_for_a_search_leave_no_trace() -> None:
    pods = a_unit_of_three()
    before, version = pods.table.copy(), pods.version
    with pods.trying():
        pods.table["leaving"][pods.slots_of(["a", "single", "unknown"])] = True
    assert (pods.table == before).all()
    assert pods.version == version


def test_resources_that_no_pod_requests_any_more_are_dropped_and_amounts_stay() -> None:
    pods = RunningPods()
    pods.add("card", CARD, 0, HOME)
    for number in range(10 * RESOURCES_MIN):
        spec = a_spec(request=a_request(cpu="1", extended={f"example.com/unique-{number}": "1"}))
        pods.add("one", spec, 1, HOME)
        pods.remove("one")
    specs = pods.specs
    assert len(specs.resources) <= RESOURCES_MIN + 2
    amounts = specs.amounts[pods.table["spec"][pods.slots_of(["card"])[0]]]
    found = {name: int(amounts[column]) for name, column in specs.resources.items() if amounts[column]}
    assert found == dict(CARD.request.taken)
