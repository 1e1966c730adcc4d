"""The checks of the record detect each fault."""

from typing import Any

import pytest

from tests.api_contract.world import Json
from tests.objects import node_object, pod_object
from tests.scenarios.watch_record import WatchRecord

MARK = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


class Told:
    """A watch of these objects, each as MODIFIED unless its `told` says otherwise."""

    def __init__(self, *objects: Json, ended: bool = False) -> None:
        self.ended = ended
        for one in objects:
            one["metadata"] = {"uid": "", "resourceVersion": ""} | one["metadata"]
        self._events = [{"type": one.pop("told", "MODIFIED"), "object": one} for one in objects]

    def next(self, seconds: float) -> Json | None:
        return self._events.pop(0) if self._events else None

    def close(self) -> None:
        """Do nothing: no connection is open."""


def a_pod(name: str, node: str, *, cpu: str = "3", told: str = "MODIFIED", **status: Any) -> Json:
    document = pod_object(name, cpu=cpu, node=node) | {"status": status, "told": told}
    document["metadata"]["uid"] = f"uid-{name}"
    return document


def verdict(*pods: Json) -> list[str]:
    """Return the faults of this record on a node of four CPUs."""
    record = WatchRecord(
        Told(*pods), Told(node_object("n", cpu="4"), node_object("m", cpu="4")), lambda document: document
    )
    record.look()
    return record.judge()


def test_overcommitted_node_is_detected() -> None:
    assert verdict(a_pod("a", "n"), a_pod("b", "m")) == []
    (found,) = verdict(a_pod("a", "n"), a_pod("b", "n"))
    assert found.startswith("n has ")
    assert "used since b: {'cpu': 6000}" in found


@pytest.mark.parametrize(
    "more",
    [
        {"initContainers": [{"resources": {"requests": {"cpu": "5"}}}]},
        {"initContainers": [{"resources": {"requests": {"cpu": "2"}}, "restartPolicy": "Always"}]},
        {"resources": {"requests": {"cpu": "5"}}},
        {"overhead": {"cpu": "2"}},
    ],
    ids=["init container", "sidecar", "of the pod", "overhead"],
)
def test_all_requests_of_a_pod_are_counted(more: Json) -> None:
    pod = a_pod("a", "n")
    pod["spec"] |= more
    (found,) = verdict(pod)
    assert "used since a: {'cpu': 5000}" in found


def test_room_of_pods_that_are_gone_or_finished_is_free() -> None:
    assert verdict(a_pod("a", "n"), a_pod("a", "n", told="DELETED"), a_pod("b", "n")) == []
    assert verdict(a_pod("a", "n"), a_pod("a", "n", phase="Succeeded"), a_pod("b", "n")) == []
    assert verdict(a_pod("a", "n"), a_pod("a", "n", phase="Running"), a_pod("b", "n")) != []


def test_pod_that_was_bound_twice_is_detected() -> None:
    assert verdict(a_pod("a", "n"), a_pod("a", "m")) == ["uid-a was bound to ['n', 'm']"]


def test_deletion_before_the_condition_is_detected() -> None:
    marked = a_pod("a", "n", conditions=[MARK])
    going = a_pod("a", "n", conditions=[MARK])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert verdict(marked, going) == []
    going = a_pod("a", "n", conditions=[MARK])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert verdict(a_pod("a", "n"), going) == ["a was deleted before its condition said why"]


def test_victims_are_returned_once_in_their_order() -> None:
    record = WatchRecord(
        Told(
            a_pod("b", "n", conditions=[MARK]), a_pod("a", "m", conditions=[MARK]), a_pod("b", "n", conditions=[MARK])
        ),
        Told(),
        lambda document: document,
    )
    record.look()
    assert record.victims() == ["b", "a"]


@pytest.mark.parametrize("pods_end", [True, False], ids=["pods", "nodes"])
def test_watch_that_has_ended_makes_the_record_invalid(pods_end: bool) -> None:
    record = WatchRecord(Told(ended=pods_end), Told(ended=not pods_end), lambda document: document)
    with pytest.raises(AssertionError, match="the record has ended"):
        record.look()


def test_record_is_complete_when_it_has_every_pod_and_node_as_it_is_now() -> None:
    old, new, other = (at("1", a_pod("a", "")), at("2", a_pod("a", "n")), at("3", a_pod("b", "n")))
    small, large = (at(version, node_object("n", cpu=cpu)) for version, cpu in (("4", "1"), ("5", "2")))
    behind = WatchRecord(Told(old), Told(small), lambda document: document)
    behind.look()
    assert behind.has_seen([])
    assert behind.has_seen([old, small])
    assert not behind.has_seen([new])
    assert not behind.has_seen([old, other])
    assert not behind.has_seen([old, large])


def at(version: str, document: Json) -> Json:
    """Return the object as of this resource version."""
    document["metadata"] |= {"uid": document["metadata"]["name"], "resourceVersion": version}
    return document
