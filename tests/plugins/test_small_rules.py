"""NodePorts, NodeUnschedulable and SchedulingGates: rows N11, N12 and Q6 of kube-scheduler's own cases."""

import pytest

from aischeduler.model.pod import HostPort, Toleration
from aischeduler.plugins.node_ports import NodePorts
from aischeduler.plugins.node_unschedulable import TAINT_KEY, NodeUnschedulable
from aischeduler.plugins.scheduling_gates import SchedulingGates
from tests.build import a_node, a_pod, on_row
from tests.plugins.table import a_table, passing


@pytest.mark.parametrize(
    ("taken", "wanted", "free"),
    [
        (HostPort("TCP", 80), HostPort("TCP", 80, "127.0.0.1"), False),
        (HostPort("TCP", 80, "127.0.0.1"), HostPort("TCP", 80), False),
        (HostPort("TCP", 80, "127.0.0.1"), HostPort("TCP", 80, "127.0.0.2"), True),
        (HostPort("TCP", 80), HostPort("UDP", 80), True),
        (HostPort("TCP", 80), HostPort("TCP", 81), True),
    ],
)
def test_n11_port_is_taken_once_per_protocol_and_address(taken: HostPort, wanted: HostPort, free: bool) -> None:
    table = a_table(a_node("n"), pods=(a_pod("r", host_ports=(taken,), node="n"),))
    assert (passing(NodePorts(), a_pod(host_ports=(wanted,)), table) == ["n"]) is free


def test_a_port_is_free_again_when_its_last_pod_is_gone() -> None:
    first = a_pod("a", host_ports=(HostPort("TCP", 80, "10.0.0.1"),), node="n")
    second = a_pod("b", host_ports=(HostPort("TCP", 80, "10.0.0.2"),), node="n")
    table = a_table(a_node("n"), pods=(first, second))
    wants = a_pod(host_ports=(HostPort("TCP", 80),))
    table.remove(on_row(first.spec, table.rows["n"]))
    assert passing(NodePorts(), wants, table) == []
    table.remove(on_row(second.spec, table.rows["n"]))
    assert passing(NodePorts(), wants, table) == ["n"]


@pytest.mark.parametrize(
    ("tolerations", "passes"),
    [
        ((), False),
        ((Toleration(TAINT_KEY, "Exists", "", "NoSchedule"),), True),
        ((Toleration("", "Exists"),), True),
        ((Toleration(TAINT_KEY, "Exists", "", "NoExecute"),), False),
        ((Toleration(TAINT_KEY, "Equal", "", ""),), True),
        ((Toleration(TAINT_KEY, "Equal", "x", ""),), False),
    ],
)
def test_n12_cordoned_node_takes_only_pods_that_tolerate_it(tolerations: tuple[Toleration, ...], passes: bool) -> None:
    table = a_table(a_node("n", unschedulable=True))
    assert (passing(NodeUnschedulable(), a_pod(tolerations=tolerations), table) == ["n"]) is passes


def test_gates_hold_and_are_named() -> None:
    assert SchedulingGates().holds(a_pod(gates=("quota", "image"))) == "waiting for scheduling gates: [quota image]"
    assert SchedulingGates().holds(a_pod()) == ""
