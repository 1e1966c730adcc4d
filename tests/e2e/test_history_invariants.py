"""The checks of random histories find what they look for, and nothing else."""

import pytest

from tests.e2e.history_invariants import (
    IN_PART_SECONDS,
    ROUNDS_PER_MINUTE_MAX,
    WRITES_PER_SECOND_MAX,
    Asked,
    GangsInPart,
    Rights,
    at_rest,
    eviction_storms,
    most_within,
    overbooked,
)
from tests.e2e.record import Changes
from tests.gang_objects import gang_labels
from tests.objects import Json, node_object, pod_object, pool_object

LATE = IN_PART_SECONDS + 1


@pytest.fixture(autouse=True)
def clean_cluster() -> None:
    """Replace the fixture: no test here needs a cluster."""


def seen(pod: Json, node: str = "", phase: str = "Pending") -> Json:
    """Return a pod as the API server shows it."""
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["metadata"] |= {"uid": pod["metadata"]["name"]}
    pod["spec"] |= {"nodeName": node} if node else {}
    return pod | {"status": {"phase": phase, "conditions": [] if node else [waits]}}


def record_of(*pods: Json, nodes: int = 1) -> Changes:
    record = Changes()
    for number in range(nodes):
        record.hear("nodes", node_object(f"n{number}", cpu="4"), gone=False, at=0.0)
    record.hear("pools", pool_object("default"), gone=False, at=0.0)
    for pod in pods:
        record.hear("pods", pod, gone=False, at=1.0)
    return record


def of_a_gang(name: str, node: str = "", minimum: str = "2") -> Json:
    return seen(pod_object(name, labels=gang_labels("g", minimum)), node, "Running" if node else "Pending")


def line(beneficiary: str, decision: int, second: int) -> dict[str, str]:
    at = f"2026-01-02T03:04:{second:02d}.000000Z"
    return {"beneficiary": beneficiary, "beneficiary_uid": "u", "decision": str(decision), "timestamp": at}


def test_pod_beyond_the_room_of_its_node_is_found_and_one_in_the_room_of_a_gone_pod_is_not() -> None:
    full = [seen(pod_object(f"p{number}", cpu="2"), "n0", "Running") for number in range(2)]
    record = record_of(*full)
    assert overbooked(record) == []
    record.hear("pods", full[0], gone=True, at=2.0)
    record.hear("pods", seen(pod_object("next", cpu="2"), "n0"), gone=False, at=3.0)
    assert overbooked(record) == []
    record.hear("pods", seen(pod_object("third", cpu="1"), "n0"), gone=False, at=4.0)
    assert overbooked(record) == ["n0 has too little cpu since third"]


def test_waiting_pod_for_which_its_pool_has_room_or_without_a_reason_is_found() -> None:
    assert at_rest(record_of(seen(pod_object("big", cpu="5"))), ["default"], evicts=False) == []
    assert at_rest(record_of(seen(pod_object("p"))), ["default"], evicts=False) == ["p waits, default has room on n0"]
    silent = seen(pod_object("big", cpu="5")) | {"status": {}}
    assert at_rest(record_of(silent), ["default"], evicts=False) == ["big waits without a reason"]


def test_waiting_pod_whose_room_a_borrower_has_is_found_unless_budgets_count() -> None:
    record = record_of(seen(pod_object("guest", cpu="4", pool="other"), "n0", "Running"), seen(pod_object("owner")))
    record.hear("pools", pool_object("other", labels={"no": "node"}), gone=False, at=0.0)
    expected = ["owner waits, default can take back room on n0"]
    assert at_rest(record, ["default"], evicts=False) == expected
    assert at_rest(record, ["default"], evicts=True) == []


def test_waiting_gang_of_equal_pods_that_fits_is_found_and_one_that_does_not_fit_is_not() -> None:
    gang = [of_a_gang(f"g{number}") for number in range(2)]
    assert at_rest(record_of(*gang), ["default"], evicts=False) == ["the gang g waits, 2 of its pods fit at home"]
    large = [seen(pod_object(f"g{number}", cpu="3", labels=gang_labels("g", "2"))) for number in range(2)]
    assert at_rest(record_of(*large), ["default"], evicts=False) == []


def test_gang_in_part_for_too_long_is_found_unless_it_lost_a_pod_or_the_scheduler_was_killed() -> None:
    part = [of_a_gang("g0", "n0"), of_a_gang("g1")]
    assert GangsInPart().faults(record_of(*part), IN_PART_SECONDS, []) == []
    assert GangsInPart().faults(record_of(*part), 1.0 + LATE, []) == ["default/g was on nodes in part for 76 s"]
    assert GangsInPart().faults(record_of(*part), 1.0 + LATE, [30.0]) == []
    lost = record_of(*part, of_a_gang("g2", "n0"))
    lost.hear("pods", of_a_gang("g2", "n0"), gone=True, at=2.0)
    assert GangsInPart().faults(lost, 3.0 + LATE, []) == []


def test_too_many_moments_within_a_time_are_counted() -> None:
    assert most_within([], 1.0) == 0
    assert most_within([3.0, 0.0, 0.5, 1.0, 1.4], 1.0) == 3


def test_decisions_count_once_each_against_the_most_evictions_for_a_pod() -> None:
    few = [line("default/p", number % ROUNDS_PER_MINUTE_MAX, number) for number in range(3 * ROUNDS_PER_MINUTE_MAX)]
    assert eviction_storms(few) == []
    many = [line("default/p", number, number) for number in range(ROUNDS_PER_MINUTE_MAX + 1)]
    assert eviction_storms(many) == ["11 evictions in a minute for default/p u"]


def test_many_requests_about_one_object_and_removals_without_a_line_are_found() -> None:
    asked = Asked({"delete pods default/p": [(number / 20, 422) for number in range(WRITES_PER_SECOND_MAX + 1)]})
    assert list(asked.storms()) == ["delete pods default/p: 11 requests within 1 s"]
    assert asked.refused() == 11
    assert asked.deletions() == asked.untold([]) == ["delete pods default/p"]
    assert asked.untold([{"namespace": "default", "pod": "p"}]) == []


def test_removal_of_a_pod_that_waits_is_found_and_that_of_a_pod_whose_binding_is_seen_soon_is_not() -> None:
    record = record_of(seen(pod_object("p")), seen(pod_object("waits")))
    record.hear("pods", seen(pod_object("p"), "n0"), gone=False, at=5.2)
    asked = Asked({f"delete pods default/{name}": [(105.0, 200)] for name in ("p", "waits", "gone")})
    assert list(asked.of_waiting(record, 100.0)) == ["delete pods default/waits"]


def test_only_a_pod_that_the_record_saw_waiting_was_bound_in_it() -> None:
    record = record_of(seen(pod_object("before"), "gone", "Running"), seen(pod_object("p")))
    record.hear("pods", seen(pod_object("p"), "n7"), gone=False, at=9.0)
    assert list(Rights(record, [], 0.0).wrong_bindings()) == ["p on n7: there is no such node"]
