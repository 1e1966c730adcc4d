"""What must hold for every large set of pods, checked on its whole record and on the API server's audit log."""

from collections.abc import Mapping, Sequence

from tests.controlplane.plane import ControlPlane
from tests.real.bindings import bindings
from tests.real.history import History


def judge(plane: ControlPlane, history: History, namespace: str) -> None:
    """No pod went to a second node or by a second Binding, and there was always room on nodes that never changed."""
    judge_bindings(plane, history.nodes_of(), namespace)
    assert history.overcommitted() == []


def judge_bindings(plane: ControlPlane, nodes_of: Mapping[str, Sequence[str]], namespace: str) -> None:
    """No pod went to a second node, as its record by uid says, or by a second Binding."""
    moved = {uid: nodes for uid, nodes in nodes_of.items() if len(nodes) > 1}
    assert moved == {}
    accepted = [one for one in bindings(plane, namespace) if one.status == 201]
    assert accepted != []
    unseen = [one for one in accepted if list(nodes_of.get(one.uid, ())) != [one.node]]
    assert unseen == [], "the record is not whole"
    assert len({one.uid for one in accepted}) == len(accepted)
    assert len({one.decision for one in accepted}) == len(accepted)
