"""The status of a Queue as it is written."""

import json
from typing import Any

import msgspec

from aischeduler.kube.crds import crd
from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.tenant_queue import read_queue
from aischeduler.kube.report.queue_writes import CARDS_SHOWN_MAX, columns, queue_status
from aischeduler.kube.report.status_writes import COLUMN_LENGTH_MAX, StatusWriter
from aischeduler.model.actions import Condition
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.tenant_queue import CardUse, QueueState
from aischeduler.sandbox.schema import errors
from tests.build import replace
from tests.kube.queue_reports import BUSY, CLOSED, DRAINING, EMPTY, READY, a_queue_report

T1 = StatusWriter("ai-scheduler", 1_767_323_045.25)
"""2026-01-02T03:04:05Z."""
T2 = replace(T1, now=T1.now + 10)
TIME_1, TIME_2 = "2026-01-02T03:04:05Z", "2026-01-02T03:04:15Z"
SCHEMA: Any = crd("queues")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]


def document(status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "status": status}


def test_status_has_the_numbers_as_quantities_and_as_columns() -> None:
    status = queue_status(a_queue_report(summary=BUSY, state=QueueState.CLOSED), {}, T1)
    (ready,) = status.pop("conditions")
    assert status == {
        "observedGeneration": 3,
        "scheduler": "ai-scheduler",
        "renewTime": TIME_1,
        "state": "Closed",
        "pods": 5,
        "pendingPods": 2,
        "used": {"cpu": "3", "memory": "3Gi", "nvidia.com/gpu": "6"},
        "pending": {"cpu": "500m"},
        "borrowed": {"cpu": "1500m", "nvidia.com/gpu": "2"},
        "cards": [
            {"name": "H200", "used": 0, "quota": 4},
            {"name": "RTX-4090", "used": 6, "quota": 8},
            {"name": "V100", "used": 1},
        ],
        "columns": {
            "cards": "H200 0/4,RTX-4090 6/8,V100 1",
            "cpu": "3/4",
            "memory": "3Gi/4Gi",
            "borrowed": "1.5 cpu, 2 nvidia.com/gpu",
        },
    }
    assert (ready["type"], ready["status"], ready["lastTransitionTime"]) == ("Ready", "True", TIME_1)


def test_parts_of_cards_are_in_quantities_and_texts_exactly_and_in_counts_rounded_up() -> None:
    share = {"nvidia.com/gpu/100": 50}
    summary = replace(EMPTY, used={"nvidia.com/gpu": 2, **share}, borrowed=share, cards=(CardUse("H200", 250, 4),))
    status = queue_status(a_queue_report(summary=summary), {}, T1)
    assert (status["used"], status["borrowed"]) == ({"nvidia.com/gpu": "2500m"}, {"nvidia.com/gpu": "500m"})
    assert status["cards"] == [{"name": "H200", "used": 3, "quota": 4}]
    assert (status["columns"]["cards"], status["columns"]["borrowed"]) == ("H200 2.5/4", "0.5 nvidia.com/gpu")


def test_columns_without_a_quota_have_only_what_is_used() -> None:
    assert columns(replace(BUSY, quota={}, cards=())) == {
        "cards": "-",
        "cpu": "3",
        "memory": "3Gi",
        "borrowed": "1.5 cpu, 2 nvidia.com/gpu",
    }
    assert columns(EMPTY) == {"cards": "-", "cpu": "0", "memory": "0", "borrowed": "-"}


def test_schema_accepts_the_status_of_a_queue_with_many_long_names() -> None:
    cards = tuple(CardUse(f"{number:0128d}", 100, None if number < 100 else 2) for number in range(200))
    things = {f"a.example/thing-{number}": 1 for number in range(100)}
    summary = replace(BUSY, cards=cards, used=things, pending=things, borrowed=things)
    status = queue_status(a_queue_report(summary=summary), {}, T1)
    assert errors(status, SCHEMA) == []
    assert len(status["cards"]) == CARDS_SHOWN_MAX
    assert sum("quota" in card for card in status["cards"]) == 100
    assert all(len(text) <= COLUMN_LENGTH_MAX for text in status["columns"].values())


def test_condition_keeps_its_time_while_its_status_is_the_same_and_draining_has_its_own() -> None:
    def since(first: Condition, then: Condition) -> str:
        before = queue_status(a_queue_report(conditions=(first,)), {}, T1)
        (found,) = queue_status(a_queue_report(conditions=(then,)), before, T2)["conditions"]
        time: str = found["lastTransitionTime"]
        return time

    refused = replace(CLOSED, reason=ConditionReason.NOT_ACCEPTED)
    assert since(READY, READY) == since(CLOSED, refused) == TIME_1
    assert since(DRAINING, replace(DRAINING, message="still")) == TIME_1
    assert since(READY, CLOSED) == since(CLOSED, DRAINING) == since(DRAINING, CLOSED) == TIME_2


def test_reader_knows_since_when_a_queue_drains_from_the_written_status() -> None:
    over = Condition("OverQuota", status=True, reason=ConditionReason.OVER_QUOTA, message="m")
    status = queue_status(a_queue_report(conditions=(DRAINING, over)), {}, T1)
    found = read_queue(msgspec.json.decode(json.dumps(document(status)), type=QueueDocument))
    assert found.draining_since_seconds == found.over_quota_since_seconds == int(T1.now)
