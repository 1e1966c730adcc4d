import json
from typing import Any

import pytest

from aischeduler.kube.report import pool_writes, status_writes
from aischeduler.kube.report.status_writes import COLUMN_LENGTH_MAX
from aischeduler.model.actions import Condition
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, CardCount
from tests.build import replace
from tests.kube.pool_reports import EMPTY, NOTHING, WRITER, a_report

NVIDIA, SHARE = "nvidia.com/gpu", "nvidia.com/gpu/100"
T1 = replace(WRITER, now=1_000_000_000.0)
T2 = replace(WRITER, now=1_000_000_030.0)
T1_TEXT, T2_TEXT = "2001-09-09T01:46:40Z", "2001-09-09T01:47:10Z"
GI = 1024**3


def amounts(**given: int) -> dict[str, int]:
    names = {"cpu": CPU, "memory": MEMORY, "storage": EPHEMERAL_STORAGE, "pods": PODS, "gpu": GPU, "nvidia": NVIDIA}
    return {**NOTHING, **{names[name]: amount for name, amount in given.items()}}


BUSY = replace(
    EMPTY,
    nodes=3,
    pods=7,
    pending_pods=12,
    capacity=amounts(cpu=96_000, memory=512 * GI, pods=330, gpu=8, nvidia=8),
    allocatable=amounts(cpu=95_500, memory=512 * GI, pods=330, gpu=8, nvidia=8),
    used=amounts(cpu=12_250, memory=34 * GI, pods=7, gpu=3, nvidia=3),
    own=amounts(cpu=4_250, memory=30 * GI, pods=5, gpu=1, nvidia=1),
    shared=amounts(cpu=8_000, memory=4 * GI, pods=2, gpu=2, nvidia=2),
    pending=amounts(cpu=500, memory=100_000_000, pods=12),
    sharing=False,
)


def document(status: Any = None) -> dict[str, Any]:
    metadata = {"name": "cpu", "uid": "u-cpu", "resourceVersion": "7"}
    return {"metadata": metadata} if status is None else {"metadata": metadata, "status": status}


def test_status_holds_counts_and_quantities_under_real_names() -> None:
    status = pool_writes.pool_status(a_report(generation=3, summary=BUSY), {}, T1)
    assert (status["observedGeneration"], status["nodes"], status["pods"], status["pendingPods"]) == (3, 3, 7, 12)
    assert (status["scheduler"], status["renewTime"]) == ("ai-scheduler", T1_TEXT)
    assert (status["preemption"], status["borrowing"], status["sharing"]) == (True, True, False)
    assert status["gpus"] == dict.fromkeys(pool_writes.AMOUNTS, 0) | {
        "capacity": 8,
        "allocatable": 8,
        "used": 3,
        "own": 1,
        "shared": 2,
    }
    assert status["allocatable"] == {
        "cpu": "95500m",
        "ephemeral-storage": "0",
        "memory": "512Gi",
        "nvidia.com/gpu": "8",
        "pods": "330",
    }
    assert status["pending"] == {"cpu": "500m", "ephemeral-storage": "0", "memory": "100000000", "pods": "12"}
    assert sorted(status) == sorted(
        [
            *("observedGeneration", "scheduler", "renewTime", "nodes", "pods", "pendingPods", "columns", "conditions"),
            *("preemption", "borrowing", "sharing", "gpus", "cardsByType"),
            *("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending"),
        ]
    )


@pytest.mark.parametrize(
    ("name", "amount", "text"),
    [
        ("cpu", 0, "0"),
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 0, "0"),
        ("memory", 1000, "1000"),
        ("memory", 1536 * 1024, "1536Ki"),
        ("memory", 3 * 1024**6, "3Ei"),
        ("memory", 5 * 1024**7, "5120Ei"),
        ("hugepages-2Mi", 4 * 1024**2, "4Mi"),
        ("nvidia.com/gpu", 2048, "2048"),
    ],
)
def test_quantity_is_exact_and_short(name: str, amount: int, text: str) -> None:
    assert status_writes.quantities({name: amount}, {}) == {name: text}


def test_columns_are_ready_made_texts() -> None:
    assert pool_writes.columns(a_report(summary=BUSY)) == {
        "cpu": "12.25/95.5",
        "memory": "34Gi/512Gi",
        "gpu": "3/8",
        "shared": "8 cpu, 2 gpu",
        "borrowed": "-",
        "flags": "p✓ b✓ s✗",
        "own": "4.25 cpu, 1 gpu",
        "system": "-",
        "free": "-",
        "cards": "-",
    }


def test_parts_of_gpus_are_in_quantities_and_texts_exactly_and_in_counts_rounded_up() -> None:
    used = {**amounts(gpu=2, nvidia=2), SHARE: 250}
    summary = replace(BUSY, used=used, own=used, shared={**NOTHING, SHARE: 50}, cards=(CardCount("A100", 8, 450),))
    status = pool_writes.pool_status(a_report(summary=summary), {}, T1)
    assert (status["used"][NVIDIA], status["shared"][NVIDIA]) == ("4500m", "500m")
    assert SHARE not in status["used"]
    assert (status["gpus"]["used"], status["gpus"]["shared"]) == (5, 1)
    assert status["cardsByType"] == [{"type": "A100", "total": 8, "used": 5}]
    assert {name: status["columns"][name] for name in ("gpu", "shared", "own", "cards")} == {
        "gpu": "4.5/8",
        "shared": "0.5 gpu",
        "own": "4.5 gpu",
        "cards": "A100 4.5/8",
    }


def test_cards_are_a_list_and_a_text_that_names_as_many_types_as_fit() -> None:
    cards = tuple(CardCount(f"RTX-{number}000-ADA", 8, 700) for number in range(9))
    report = a_report(summary=replace(BUSY, cards=cards))
    status = pool_writes.pool_status(report, {}, status_writes.StatusWriter("ai-scheduler", 0.0))
    assert status["cardsByType"][8] == {"type": "RTX-8000-ADA", "total": 8, "used": 7}
    text = status["columns"]["cards"]
    assert text == ", ".join(f"RTX-{number}000-ADA 7/8" for number in range(6)) + ", ..."
    assert len(text) <= COLUMN_LENGTH_MAX
    assert pool_writes.cards_text(cards[:2], COLUMN_LENGTH_MAX) == "RTX-0000-ADA 7/8, RTX-1000-ADA 7/8"


def test_columns_of_an_empty_pool_are_zeros() -> None:
    columns = pool_writes.columns(a_report())
    assert (columns["cpu"], columns["memory"], columns["gpu"]) == ("0/0", "0/0", "0/0")
    assert (columns["shared"], columns["borrowed"], columns["flags"]) == ("-", "-", "p✓ b✓ s✓")


@pytest.mark.parametrize(
    ("lent", "text"),
    [
        (amounts(cpu=500, memory=GI, pods=1), "0.5 cpu"),
        (amounts(memory=3 * GI // 2, pods=1), "1.5Gi memory"),
        (amounts(pods=4), "4 pods"),
        (amounts(gpu=1, pods=1), "1 gpu"),
    ],
)
def test_loans_are_shown_by_their_scarcest_resources(lent: dict[str, int], text: str) -> None:
    assert pool_writes.columns(a_report(summary=replace(EMPTY, borrowed=lent)))["borrowed"] == text


@pytest.mark.parametrize(
    ("memory", "text"),
    [(1023, "1023"), (1024, "1Ki"), (100_000_000, "95.4Mi"), (1023 * 1024**2, "1023Mi"), (2048 * 1024**6, "2048Ei")],
)
def test_memory_in_columns_is_rounded_to_one_decimal(memory: int, text: str) -> None:
    summary = replace(EMPTY, used=amounts(memory=memory))
    assert pool_writes.columns(a_report(summary=summary))["memory"] == f"{text}/0"


def test_flags_of_a_pool_whose_spec_is_refused_are_refused() -> None:
    why = "spec.placement: no such thing"
    refused = Condition("Accepted", status=False, reason=ConditionReason.INVALID_SPEC, message=why)
    assert pool_writes.columns(a_report(conditions=(refused,)))["flags"] == "refused"


def test_condition_keeps_its_transition_time() -> None:
    def since(report: Any, before: Any) -> str:
        status = pool_writes.pool_status(report, before, T2)
        time: str = status["conditions"][0]["lastTransitionTime"]
        return time

    before = pool_writes.pool_status(a_report(generation=1), {}, T1)
    reworded = Condition("Accepted", status=True, reason=ConditionReason.VALID, message="still fine")
    turned = Condition("Accepted", status=False, reason=ConditionReason.INVALID_SPEC, message="no")
    assert since(a_report(generation=2), before) == T1_TEXT
    assert since(a_report(conditions=(reworded,)), before) == T1_TEXT
    assert since(a_report(conditions=(turned,)), before) == T2_TEXT


def test_status_that_is_stored_already_or_of_another_object_of_the_name_is_not_written() -> None:
    report = a_report(summary=BUSY)
    stored = pool_writes.pool_status(report, {}, T1)
    assert status_writes.status_patch(pool_writes.pool_status, report, document(stored), T2) is None
    assert status_writes.status_patch(pool_writes.pool_status, replace(report, uid="another"), document(), T2) is None


def test_unchanged_status_is_renewed_once_a_minute_and_nothing_else_is_written() -> None:
    report = a_report(summary=BUSY)
    stored = pool_writes.pool_status(report, {}, T1)
    later = replace(T1, now=T1.now + status_writes.RENEW_SECONDS)
    patch = status_writes.status_patch(pool_writes.pool_status, report, document(stored), later)
    assert patch is not None
    assert json.loads(patch)["status"] == {"renewTime": "2001-09-09T01:47:40Z"}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ({"scheduler": "a", "renewTime": T1_TEXT}, "a"),
        ({"scheduler": "a", "renewTime": "2001-09-09T01:43:41Z"}, "a"),
        ({"scheduler": "a", "renewTime": "2001-09-09T01:43:40Z"}, ""),
        ({"scheduler": "a", "renewTime": "9999-09-09T01:43:40Z"}, ""),
        ({"scheduler": "a", "renewTime": "soon"}, ""),
        ({"scheduler": 5, "renewTime": T1_TEXT}, ""),
        ({"scheduler": "a"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_status_is_held_by_the_scheduler_that_it_names_until_that_stops_renewing_it(status: Any, name: str) -> None:
    assert status_writes.status_holder(status, T1.now) == name


def test_patch_is_for_the_version_that_was_read_and_has_only_changes() -> None:
    stored = pool_writes.pool_status(a_report(summary=BUSY), {}, T1)
    patch = status_writes.status_patch(
        pool_writes.pool_status, a_report(summary=replace(BUSY, pods=8)), document(stored), T2
    )
    assert patch is not None
    assert json.loads(patch) == {"metadata": {"resourceVersion": "7"}, "status": {"pods": 8, "renewTime": T2_TEXT}}


def test_patch_removes_an_amount_that_is_gone() -> None:
    stored = pool_writes.pool_status(a_report(summary=BUSY), {}, T1)
    stored["odd"] = {"from": "another version"}
    without = replace(BUSY, shared=amounts(cpu=8_000, memory=4 * GI, pods=2, gpu=2))
    patch = status_writes.status_patch(pool_writes.pool_status, a_report(summary=without), document(stored), T2)
    assert patch is not None
    assert json.loads(patch)["status"] == {
        "odd": None,
        "shared": {"nvidia.com/gpu": None},
        "renewTime": T2_TEXT,
    }


@pytest.mark.parametrize("status", [{"used": "odd", "conditions": [5]}, {"columns": None}])
def test_invalid_stored_status_is_replaced(status: Any) -> None:
    patch = status_writes.status_patch(pool_writes.pool_status, a_report(summary=BUSY), document(status), T1)
    assert patch is not None
    assert json.loads(patch)["status"]["columns"]["cpu"] == "12.25/95.5"


def test_new_pool_has_only_its_switches() -> None:
    assert json.loads(pool_writes.new_pool("default")) == {
        "apiVersion": "resource.aibee.cn/v1alpha1",
        "kind": "Pool",
        "metadata": {"name": "default"},
        "spec": {},
    }
    switched = json.loads(pool_writes.new_pool("default", ("disableSharing",)))
    assert switched["spec"] == {"disableSharing": True}
    assert pool_writes.pools_path() == "/apis/resource.aibee.cn/v1alpha1/pools"
