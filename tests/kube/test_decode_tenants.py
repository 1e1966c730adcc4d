"""What pods say of their tenant, who made them, and since when they are on their nodes."""

from typing import Any

import pytest

from aischeduler.model.pod import Pod
from aischeduler.model.tenant_queue import QUEUE_KEY, VOLCANO_QUEUE_KEY
from aischeduler.model.workload import CARD_REQUEST_KEY, PREEMPTABLE_KEY, SERVICE_TYPE_KEY, TenantTerms
from tests.kube import api_objects
from tests.kube.test_decode import decode_pod

TIME = "2026-11-28T10:00:07Z"
SECONDS = 1_795_860_007
PLACED = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": TIME}
READY = {"type": "Ready", "status": "False", "lastProbeTime": None, "lastTransitionTime": "2026-11-28T11:00:00Z"}


def a_pod(annotations: dict[str, str] | None = None, **metadata: Any) -> Pod:
    said = {"annotations": annotations} if annotations is not None else {}
    return decode_pod(api_objects.pod(metadata={**said, **metadata}))


def bound(*conditions: dict[str, Any]) -> Pod:
    return decode_pod(api_objects.pod(spec={"nodeName": "n"}, status={"conditions": list(conditions)}))


@pytest.mark.parametrize(
    ("annotations", "labels", "expected"),
    [
        (None, {}, None),
        ({}, {"app": "web"}, None),
        ({"example.com/else": "x", QUEUE_KEY: "", SERVICE_TYPE_KEY: ""}, {}, None),
        ({CARD_REQUEST_KEY: '{"A100": 1}'}, {}, None),
        ({QUEUE_KEY: "a", VOLCANO_QUEUE_KEY: "b"}, {}, TenantTerms(queue="a")),
        ({QUEUE_KEY: "", VOLCANO_QUEUE_KEY: "b"}, {}, TenantTerms(queue="b")),
        ({SERVICE_TYPE_KEY: "trainng"}, {}, TenantTerms(service_type="trainng")),
        ({PREEMPTABLE_KEY: "true"}, {PREEMPTABLE_KEY: "false"}, TenantTerms(preemptable=True)),
        ({}, {PREEMPTABLE_KEY: "false"}, TenantTerms(preemptable=False)),
        ({PREEMPTABLE_KEY: "False"}, {}, TenantTerms(preemptable=False)),
        (None, {PREEMPTABLE_KEY: "1"}, TenantTerms(preemptable=True)),
        (None, {PREEMPTABLE_KEY: "false"}, TenantTerms(preemptable=False)),
        (
            {QUEUE_KEY: "a", PREEMPTABLE_KEY: "no"},
            {PREEMPTABLE_KEY: "false"},
            TenantTerms(queue="a", invalid=f"metadata.annotations[{PREEMPTABLE_KEY}]: must be true or false, not 'no'"),
        ),
        (
            None,
            {PREEMPTABLE_KEY: "No"},
            TenantTerms(invalid=f"metadata.labels[{PREEMPTABLE_KEY}]: must be true or false, not 'No'"),
        ),
    ],
)
def test_annotations_count_before_labels_and_our_own_before_those_of_volcano(
    annotations: dict[str, str] | None, labels: dict[str, str], expected: TenantTerms | None
) -> None:
    assert a_pod(annotations, labels=labels).terms == expected


@pytest.mark.parametrize("text", ["q" * 254, "a\n\x1b[31m", "\0"])
def test_text_that_cannot_be_the_name_of_a_queue_is_shortened_and_escaped(text: str) -> None:
    terms = a_pod({QUEUE_KEY: text, SERVICE_TYPE_KEY: text}).terms
    assert terms is not None
    assert terms.queue == terms.service_type
    assert terms.queue.isprintable()
    assert len(terms.queue) < 100
    assert terms.invalid == ""


def test_equal_terms_are_one_object() -> None:
    first, second = (a_pod({QUEUE_KEY: "a", SERVICE_TYPE_KEY: "training"}) for _ in range(2))
    assert first.terms is second.terms


def test_owner_is_the_controller_of_whatever_kind() -> None:
    made = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    assert a_pod(ownerReferences=[other, made]).owner == "Job/train"
    assert a_pod(ownerReferences=[other]).owner == ""


@pytest.mark.parametrize(
    "conditions",
    [
        [READY, PLACED],
        [PLACED, READY],
        [{"type": "PodScheduled", "observedGeneration": 3, **PLACED}],
        [dict(reversed(PLACED.items()))],
        [READY | {"reason": "PodScheduled", "message": '"type":"PodScheduled","status":"True"'}, PLACED],
        [PLACED | {"lastProbeTime": "2026-01-01T00:00:00Z"}, READY | {"reason": "PodScheduled"}],
        [PLACED | {"lastTransitionTime": "2026-11-28T12:00:07+02:00"}],
    ],
)
def test_time_of_placement_is_read_wherever_its_condition_stands(conditions: list[dict[str, Any]]) -> None:
    found = bound(*conditions)
    assert found.placed_seconds == SECONDS
    assert found.unready == any(condition["type"] == "Ready" for condition in conditions)


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        [READY],
        [PLACED | {"status": "False"}],
        [{"type": "PodScheduled", "status": "True"}],
        [PLACED | {"lastTransitionTime": "yesterday"}],
        [READY | {"reason": "PodScheduled"}],
    ],
)
def test_pod_without_the_time_of_its_placement_has_none(conditions: list[dict[str, Any]]) -> None:
    assert bound(*conditions).placed_seconds == 0


def test_pod_without_a_node_is_not_placed() -> None:
    assert decode_pod(api_objects.pod(status={"conditions": [PLACED]})).placed_seconds == 0
