from collections.abc import Sequence

import numpy as np
import pytest

from aischeduler.model.pod import HostPort
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.running_pods import RunningFacts, RunningPods
from aischeduler.state.what_if import Clearing, Trial
from tests.build import a_node, a_request, a_spec, on_row

FACTS = RunningFacts(priority=0, borrower=False, evictable=True, leaving=False, started_seconds=1)
PORT, OTHER_PORT = HostPort("TCP", 80), HostPort("TCP", 443)
PLAIN = a_spec(request=a_request(cpu="1", memory="1Gi"))
CARD = a_spec(request=a_request(cpu="2", memory="1Gi", extended={"example.com/card": "3"}))
WEB = a_spec(request=a_request(cpu="1", memory="1Gi"), host_ports=(PORT,))
SECURE = a_spec(request=a_request(cpu="1", memory="1Gi"), host_ports=(OTHER_PORT,))


def a_world() -> tuple[NodeTable, RunningPods, Rows]:
    """Return u0 plain, u2 and u4 with ports on n0; u1 with GPUs and u3 with a port on n1."""
    table, pods = NodeTable(), RunningPods()
    for name in ("n0", "n1"):
        table.see(a_node(name))
    for number, spec in enumerate((PLAIN, CARD, WEB, WEB, SECURE)):
        row = table.row(f"n{number % 2}")
        table.add(on_row(spec, row))
        pods.add(f"u{number}", spec, row, FACTS)
    return table, pods, np.array(sorted(table.rows.values()), dtype=np.intp)


def test_removed_and_added_pods_count_as_in_the_node_table() -> None:
    table, pods, rows = a_world()
    with Clearing(WEB, table, pods, rows) as clearing:
        clearing.take_off(pods.slots_on(rows))
        assert not table.used.any()
        clearing.put_on(pods.slots_of(("u1", "u2")))
        expected = NodeTable()
        for name in ("n0", "n1"):
            expected.see(a_node(name))
        expected.add(on_row(CARD, expected.row("n1")))
        expected.add(on_row(WEB, expected.row("n0")))
        assert np.array_equal(table.used, expected.used)


def test_ports_that_the_preemptor_needs_are_freed_and_others_are_kept() -> None:
    table, pods, rows = a_world()
    with Clearing(WEB, table, pods, rows) as clearing:
        clearing.take_off(pods.slots_on(rows))
        assert table.ports.on == {table.rows["n0"]: {OTHER_PORT: 1}}
        clearing.put_on(pods.slots_of(("u3",)))
        assert table.ports.rows.rows(("TCP", 80)) == [table.rows["n1"]]


@pytest.mark.parametrize("asker", [PLAIN, WEB])
def test_everything_is_restored_even_after_a_failure(asker: object) -> None:
    table, pods, rows = a_world()
    used, scored, version = table.used.copy(), table.scored.copy(), table.version
    ports = {row: dict(counts) for row, counts in table.ports.on.items()}

    def fail() -> None:
        with Clearing(WEB if asker is WEB else PLAIN, table, pods, rows) as clearing:
            clearing.take_off(pods.slots_on(rows))
            clearing.put_on(pods.slots_of(("u2",)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert np.array_equal(table.used, used)
    assert np.array_equal(table.scored, scored)
    assert (table.version, table.ports.on) == (version, ports)
    assert table.ports.rows.rows(("TCP", 80)) == sorted(rows.tolist())


class FailingTable(NodeTable):
    """A table whose first tentative count raises before it changes anything."""

    failed = False

    def count_tentatively(self, pods: Sequence[AssignedPod], sign: int) -> None:
        if not self.failed:
            self.failed = True
            raise RuntimeError("a bug before the step")
        super().count_tentatively(pods, sign)


def test_step_of_a_trial_that_raised_leaves_a_torn_table_and_no_open_trial() -> None:
    table = FailingTable()
    table.see(a_node("n0"))
    with pytest.raises(RuntimeError, match="a bug before the step"), Trial(table) as trial:
        trial.place(on_row(WEB, table.row("n0")))
    assert table.tentative == {}
    assert table.torn
