"""The invariants of every large set of pods, checked on its record and on the API server's audit log."""

from collections.abc import Mapping, Sequence

from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.history import History


def judge(plane: ControlPlane, history: History, namespace: str) -> None:
    """Check that no pod has a second node or Binding, and that no node was overcommitted; nodes must not change."""
    judge_bindings(plane, history.nodes_of(), namespace)
    assert history.overcommitted() == []


def judge_bindings(
    plane: ControlPlane, nodes_of: Mapping[str, Sequence[str]], namespace: str, since: int = 0, *, gangs: bool = False
) -> None:
    """Check that no pod, by uid, has a second node in the record or a second accepted Binding.

    The audit log is read from this byte on. The pods of a gang are bound by one decision.
    """
    moved = {uid: nodes for uid, nodes in nodes_of.items() if len(nodes) > 1}
    assert moved == {}
    accepted = [one for one in bindings(plane, namespace, since) if one.status == 201]
    assert accepted != []
    unseen = [one for one in accepted if list(nodes_of.get(one.uid, ())) != [one.node]]
    assert unseen == [], "the record is incomplete"
    assert len({one.uid for one in accepted}) == len(accepted)
    assert gangs or len({one.decision for one in accepted}) == len(accepted)
