from contextlib import suppress
from copy import deepcopy

import numpy as np

from aischeduler.model.allocation import Allocation
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort
from aischeduler.model.volumes import PodVolumes, VolumeChoice
from aischeduler.state.kept import StatePart, reading
from aischeduler.state.node_table import ALWAYS, COLUMNS_MIN, FEW_ROWS, UNOFFERED, WIDTH_FIRST, Change, NodeTable
from aischeduler.state.requests import AMOUNT_MAX
from aischeduler.state.what_if import Trial
from tests.build import a_node, a_pod, a_taint, on_row, replace


def free(table: NodeTable, row: int) -> dict[str, int]:
    room = table.room(row)
    return {resource: max(0, int(room[column])) for resource, column in table.columns.items()}


def test_seeing_the_same_node_again_changes_nothing() -> None:
    table = NodeTable()
    table.see(a_node("n", labels={"a": "1"}))
    version = table.version
    assert table.see(a_node("n", labels={"a": "1"})) == (0, Change.NONE)
    assert table.version == version


def test_each_change_is_named() -> None:
    table = NodeTable()
    assert table.see(a_node("n", cpu="4"))[1] & Change.JOINED
    assert table.see(a_node("n", cpu="5"))[1] == Change.ROOM
    assert table.see(a_node("n", cpu="3"))[1] == Change.NONE
    assert table.see(a_node("n", cpu="3", labels={"a": "1"}))[1] == Change.LABELS
    assert table.see(a_node("n", cpu="3", labels={"a": "1"}, taints=(a_taint(),)))[1] == Change.TAINTS
    node = a_node("n", cpu="3", labels={"a": "1"}, taints=(a_taint(),), unschedulable=True)
    assert table.see(node)[1] == Change.CORDON


def test_free_room_is_allocatable_less_used() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n", cpu="4", memory="8Gi", gpu=2, pods=10))
    pod = a_pod(cpu="1500m", memory="2Gi", gpu=2)
    table.add(on_row(pod.spec, row))
    assert free(table, row) == {
        "cpu": 2500,
        "memory": 6 * 2**30,
        "ephemeral-storage": 0,
        "pods": 9,
        "nvidia.com/gpu": 0,
    }
    table.see(a_node("n", cpu="1", memory="8Gi", gpu=0, pods=10))
    assert free(table, row)["cpu"] == 0
    assert free(table, row)["nvidia.com/gpu"] == 0


def test_a_gone_node_stays_as_a_stub_until_its_pods_are_gone() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n"))
    spec = a_pod().spec
    table.add(on_row(spec, row))
    table.forget("n")
    assert not table.alive[row]
    assert table.rows == {"n": row}
    table.remove(on_row(spec, row))
    table.release_stub(row)
    assert table.rows == {}


def test_a_recreated_node_keeps_nothing_of_the_old_one() -> None:
    table = NodeTable()
    table.see(a_node("n", cpu="64", gpu=8, labels={"a": "1"}, taints=(a_taint(),)))
    table.forget("n")
    row, change = table.see(a_node("n", cpu="1"))
    assert change & Change.JOINED
    assert free(table, row)["cpu"] == 1000
    assert free(table, row)["nvidia.com/gpu"] == 0
    assert table.taints.values() == ()


def test_a_pod_on_a_node_that_was_never_seen_counts_when_the_node_comes() -> None:
    table = NodeTable()
    table.add(on_row(a_pod(cpu="1").spec, table.row("late")))
    row, _ = table.see(a_node("late", cpu="4"))
    assert free(table, row)["cpu"] == 3000


def test_the_table_grows_and_keeps_what_it_holds() -> None:
    table = NodeTable()
    names = [f"n{i:03}" for i in range(WIDTH_FIRST + 5)]
    for name in names:
        row, _ = table.see(a_node(name, cpu="2", labels={"name": name}))
        table.add(on_row(a_pod(cpu="1").spec, row))
    assert [free(table, table.rows[name])["cpu"] for name in names] == [1000] * len(names)
    assert [int(table.ranks()[table.rows[name]]) for name in names] == list(range(len(names)))


def test_an_amount_beyond_every_machine_never_fits_and_never_overflows() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n", memory="9223372036854775807Ei"))
    spec = a_pod(memory="9223372036854775807Ei").spec
    assert free(table, row)["memory"] == AMOUNT_MAX
    for _ in range(100):
        table.add(on_row(spec, row))
    assert free(table, row)["memory"] == 0
    assert (table.used >= 0).all()


def test_changed_rows_are_returned_or_none_if_they_are_no_longer_kept() -> None:
    table = NodeTable()
    rows = [table.see(a_node(f"n{i}"))[0] for i in range(3)]
    version = table.version
    table.add(on_row(a_pod().spec, rows[2]))
    table.add(on_row(a_pod().spec, rows[0]))
    table.add(on_row(a_pod().spec, rows[2]))
    assert table.changed_since(version) == sorted({rows[0], rows[2]})
    for _ in range(5 * table.width):
        table.touch(rows[1])
    assert table.changed_since(version) is None


def test_a_trial_restores_every_bit() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n", gpu=1))
    resident = a_pod("resident", cpu="1").spec
    table.add(on_row(resident, row))
    before = (table.used.copy(), table.scored.copy())
    with Trial(table) as trial:
        trial.remove([on_row(resident, row)])
        with Trial(table) as inner:
            inner.place(on_row(a_pod(cpu="4", gpu=1).spec, row))
            assert free(table, row)["cpu"] == 0
        assert free(table, row)["cpu"] == 4000
        assert list(table.tentative) == [row]
    after = (table.used, table.scored)
    assert all(np.array_equal(b, a[..., : b.shape[-1]]) for b, a in zip(before, after, strict=True))


def test_pods_removed_together_count_as_one_by_one_and_are_restored_to_the_bit() -> None:
    table = NodeTable()
    rows = [table.see(a_node(f"n{number}", gpu=8))[0] for number in range(3)]
    kinds = [a_pod(cpu="1", gpu=1, host_ports=(HostPort("TCP", 80),)).spec, a_pod(cpu="500m").spec]
    pods = [(kinds[number % 2], rows[number // 2 % 3]) for number in range(3 * FEW_ROWS)]
    for spec, row in pods:
        table.add(on_row(spec, row))
    before = (table.used.copy(), table.scored.copy(), deepcopy(table.ports.on))
    gone = pods[: 2 * FEW_ROWS + 5]
    with Trial(table) as single:
        for spec, row in gone:
            single.remove([on_row(spec, row)])
        expected = (table.used.copy(), table.scored.copy(), deepcopy(table.ports.on))
    with Trial(table) as trial:
        version = table.version
        trial.remove(on_row(spec, row) for spec, row in gone)
        assert sorted(table.tentative) == rows
        found = (table.used, table.scored, table.ports.on)
        assert all(np.array_equal(a, b) for a, b in zip(found[:2], expected[:2], strict=True))
        assert found[2] == expected[2]
    assert all(np.array_equal(a, b) for a, b in zip((table.used, table.scored), before[:2], strict=True))
    assert table.ports.on == before[2]
    assert (table.version, table.tentative) == (version, {}), "a trial leaves no trace"


def test_pods_of_one_spec_free_what_each_has_for_itself() -> None:
    table, spec = NodeTable(), a_pod().spec
    row, _ = table.see(a_node("n"))
    plain, with_port = on_row(spec, row), replace(on_row(spec, row), allocation=Allocation((HostPort("TCP", 80),)))
    table.add(plain)
    table.add(with_port)
    with Trial(table) as trial:
        trial.remove([plain, with_port])
        assert table.ports.on == {}
    assert table.ports.on == {row: {HostPort("TCP", 80): 1}}


def test_kept_results_from_before_a_trial_hold_after_it_and_no_others() -> None:
    read, table, choice = (
        reading(StatePart.ROWS, StatePart.CHOICES),
        NodeTable(),
        VolumeChoice(("default", "c"), "uid", "v", ""),
    )
    row, _ = table.see(a_node("n"))
    before, volumes = read(table), Allocation((), PodVolumes("default"), (choice,))
    seen = [before]
    with Trial(table) as trial:
        trial.place(on_row(a_pod().spec, row))
        seen.append(read(table))
        with Trial(table) as inner:
            inner.place(replace(on_row(a_pod().spec, row), allocation=volumes))
            seen.append(read(table))
        assert read(table) == seen[1]
        trial.put_back()
        assert read(table) == before
        trial.place(on_row(a_pod().spec, row))
        seen.append(read(table))
    assert read(table) == before
    assert len({*seen}) == 4


def test_trial_that_an_exception_ends_leaves_no_trace() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n", cpu="4"))
    version = table.version
    with suppress(ValueError), Trial(table) as trial:
        trial.place(on_row(a_pod(cpu="1").spec, row))
        raise ValueError
    assert (free(table, row)["cpu"], table.changed_since(version), table.tentative) == (4000, [], {})
    assert not table.torn


def test_a_node_without_allocatable_has_nothing() -> None:
    table = NodeTable()
    row, _ = table.see(Node("n"))
    assert not any(free(table, row).values())


def test_a_resource_that_is_only_requested_has_no_column() -> None:
    table = NodeTable()
    table.see(a_node("n"))
    for number in range(100):
        table.request(a_pod(extended={f"example.com/x{number}": "1", f"example.com/y{number}": "2"}).spec)
    assert tuple(table.columns) == ALWAYS
    assert {len(table.used), len(table.allocatable), len(table.capacity)} == {UNOFFERED + 1}


def test_requests_are_read_again_once_a_node_offers_the_resource() -> None:
    table, spec = NodeTable(), a_pod(extended={"example.com/x": "3", "example.com/y": "2"}).spec
    assert table.request(spec)[UNOFFERED] == 3
    row, change = table.see(a_node("n", extended={"example.com/x": "5"}))
    assert change & Change.ROOM
    asked = table.request(spec)
    assert (asked[table.columns["example.com/x"]], asked[UNOFFERED]) == (3, 2)
    table.see(a_node("n", extended={"example.com/x": "5", "example.com/y": "4"}))
    table.add(on_row(spec, row))
    assert table.request(spec)[UNOFFERED] == 0
    assert (free(table, row)["example.com/x"], free(table, row)["example.com/y"]) == (2, 2)


def test_resources_of_pods_on_a_row_have_columns_for_one_pod_or_many() -> None:
    table = NodeTable()
    rows = [table.see(a_node(f"n{number}"))[0] for number in range(2)]
    one, many = a_pod(extended={"example.com/x": "1"}).spec, a_pod(extended={"example.com/y": "1"}).spec
    table.add(on_row(one, rows[0]))
    table.count_tentatively([on_row(many, row) for row in rows * FEW_ROWS], 1)
    assert int(table.used[table.columns["example.com/x"], rows[0]]) == 1
    assert table.used[table.columns["example.com/y"], rows].tolist() == [FEW_ROWS, FEW_ROWS]
    assert not table.used[UNOFFERED].any()


def test_a_node_with_zero_of_a_new_resource_helps_no_pod() -> None:
    table = NodeTable()
    table.see(a_node("n"))
    assert table.see(a_node("n", extended={"example.com/x": "0"}))[1] == Change.NONE


def test_amounts_are_read_by_name() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n", cpu="4", memory="1Gi", pods=7, extended={"example.com/x": "3"}))
    assert table.named(table.allocatable[:, row]) == {
        "cpu": 4000,
        "memory": 2**30,
        "ephemeral-storage": 0,
        "pods": 7,
        "example.com/x": 3,
    }


def test_columns_of_resources_of_the_past_are_dropped_and_all_amounts_stay() -> None:
    table, card = NodeTable(), {"example.com/card": "4"}
    table.see(a_node("n", cpu="4", extended=card))
    row = table.rows["n"]
    pod = a_pod(cpu="1", extended={"example.com/card": "1"})
    for number in range(3 * COLUMNS_MIN):
        table.see(a_node("other", extended={f"example.com/unique-{number}": "1"}))
    table.add(on_row(pod, row))
    room = free(table, row)
    table.forget("other")
    for number in range(10 * COLUMNS_MIN):
        table.see(a_node("another", extended={f"example.com/unique-{number}": "1"}))
    assert len(table.columns) <= 2 * COLUMNS_MIN
    assert len(table.used) == len(table.columns) + 1
    assert {name: amount for name, amount in free(table, row).items() if amount} == {
        name: amount for name, amount in room.items() if amount
    }
    table.remove(on_row(pod, row))
    assert not table.used.any()


def test_no_column_is_dropped_while_a_trial_is_open() -> None:
    table = NodeTable()
    table.see(a_node("n", cpu="4"))
    for number in range(2 * COLUMNS_MIN):
        table.add(on_row(a_pod(extended={f"example.com/unique-{number}": "1"}), table.rows["n"]))
        table.remove(on_row(a_pod(extended={f"example.com/unique-{number}": "1"}), table.rows["n"]))
    columns = dict(table.columns)
    with Trial(table) as trial:
        trial.place(on_row(a_pod(cpu="1"), table.rows["n"]))
        table.see(a_node("n", cpu="5"))
        assert table.columns == columns
    table.see(a_node("n", cpu="4"))
    assert len(table.columns) == len(ALWAYS)
