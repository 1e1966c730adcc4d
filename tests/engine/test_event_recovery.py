"""An event whose handling raised still counts: its object is stored as the event shows it."""

from collections.abc import Callable
from typing import Any

import pytest

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pool_events import EDITS_MAX, WINDOW_SECONDS
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    Event,
    Seen,
    gone,
)
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import label_selector
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.state.claims import Claim, Claims
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import PodState
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, evictions, fail_once

BUG = "a bug in a step"
BUDGET = DisruptionBudget("default", "b", "u", label_selector("spec.selector", {"app": "p"}, ()), disruptions_allowed=0)
SERVICE = PodSet("Service", "default", "web", label_selector("spec.selector", {"app": "p"}, ()))
CLAIM, VOLUME = VolumeClaim("default", "data"), Volume("pv")


def fail_at(monkeypatch: pytest.MonkeyPatch, session: Session, event: Event) -> None:
    """Make the engine raise while it handles the event."""
    fail_once(monkeypatch, "scheduler", "object_changed")
    with pytest.raises(ValueError, match=BUG):
        session.tell(event)
    session.scheduler.look()


@pytest.mark.parametrize(
    ("before", "event", "known"),
    [
        ((), Seen(Namespace("team", {"of": "a"})), lambda c: c.nodes.pod_counts.namespaces == {"team": {"of": "a"}}),
        ((Seen(Namespace("team", {})),), gone(Namespace, "team"), lambda c: c.nodes.pod_counts.namespaces == {}),
        (
            (Seen(BUDGET),),
            gone(DisruptionBudget, "default", "b"),
            lambda c: not c.budgets.protects("uid-p"),
        ),
        ((), Seen(BUDGET), lambda c: c.budgets.protects("uid-p")),
        ((), Seen(SERVICE), lambda c: bool(c.pod_sets.by_key)),
        ((Seen(SERVICE),), gone(PodSet, *SERVICE.key), lambda c: not c.pod_sets.by_key),
        ((), Seen(CLAIM), lambda c: list(c.nodes.storage.claims.values()) == [CLAIM]),
        ((Seen(CLAIM),), gone(VolumeClaim, *CLAIM.key), lambda c: not c.nodes.storage.claims),
        ((), Seen(VOLUME), lambda c: list(c.nodes.storage.volumes.values()) == [VOLUME]),
        ((Seen(VOLUME),), gone(Volume, "pv"), lambda c: not c.nodes.storage.volumes),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_object_of_an_event_counts_although_its_handling_failed(
    before: tuple[Event, ...],
    event: Event,
    known: Callable[[Cluster], bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_node("n"), a_pod("p", node="n", phase="Running", labels={"app": "p"}))
    session.tell(*before)
    assert not known(session.scheduler.cluster)
    fail_at(monkeypatch, session, event)
    assert known(session.scheduler.cluster)


def test_edit_that_is_kept_for_the_end_of_its_window_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("a", labels={"pool": "a"}))
    for generation in range(2, EDITS_MAX + 2):
        session.see(a_pool("a", labels={"pool": "a"}, generation=generation))
    fail_once(monkeypatch, "scheduler", "object_changed")
    with pytest.raises(ValueError, match=BUG):
        session.see(a_pool("a", labels={"pool": "a"}, generation=99, disable_borrowing=True))
    session.decide(WINDOW_SECONDS)
    assert session.scheduler.cluster.pools.pools["a"].disable_borrowing


def test_default_pool_that_is_deleted_has_its_default_spec_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("default", disable_sharing=True))
    fail_at(monkeypatch, session, gone(Pool, "default"))
    assert not session.scheduler.cluster.pools.pools["default"].disable_sharing


def test_old_event_of_a_pod_that_is_bound_now_removes_it_from_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = a_pod("p", node="n", phase="Running")
    session = Session(a_node("n"), bound)
    fail_once(monkeypatch, "pod_events", "_unbound")
    with pytest.raises(ValueError, match=BUG):
        session.see(replace(bound, node_name=""))
    assert session.scheduler.cluster.records["uid-p"].state is PodState.BOUND


def test_row_that_was_counted_incompletely_costs_no_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", cpu="4", labels={"pool": "a"}), a_pod("guest", cpu="3", pool="b", node="n"))
    session.see(a_pod("small", cpu="1", pool="b", node="n"))
    session.see(a_pod("owner", cpu="4", pool="a", host_ports=(HostPort("TCP", 80, "0.0.0.0"),)))
    assert evictions(session.decide()) != {}
    counted = NodeTable.count_tentatively

    def failing(table: NodeTable, *args: Any) -> None:
        monkeypatch.undo()
        counted(table, *args)
        raise ValueError(BUG)

    session.tell(gone(Pod, "uid-small"))
    monkeypatch.setattr(NodeTable, "count_tentatively", failing)
    session.scheduler.decide("a", session.now, 1)
    session.scheduler.look()
    assert session.scheduler.cluster.claims.of("uid-owner") is not None


def test_claim_that_ended_incompletely_no_longer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", cpu="4", labels={"pool": "a"}), a_pod("guest", cpu="4", pool="b", node="n"))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    forget = Claims.forget

    def failing(claims: Claims, claim: Claim) -> None:
        monkeypatch.undo()
        forget(claims, claim)
        raise ValueError(BUG)

    monkeypatch.setattr(Claims, "forget", failing)
    with pytest.raises(ValueError, match=BUG):
        session.tell(gone(Pod, "uid-owner"))
    session.scheduler.look()
