"""What a pod says of its gang: each way to say it, several at once, and malformed labels."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.model.gang import (
    GANG_KEY,
    GANG_MIN_KEY,
    GANG_ROLE_KEY,
    GANG_ROLE_MIN_KEY,
    GANG_SPAN_KEY,
    GANG_TIMEOUT_KEY,
    GANG_TOPOLOGY_KEY,
    Gang,
    GangClaim,
    GangKey,
    GangSource,
    TopologyLevel,
)
from tests.gang_objects import POD_GROUP_LABEL, VOLCANO_GROUP, gang_labels
from tests.kube.api_objects import pod
from tests.objects import NOTHING

JOB_OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}


def key(source: GangSource, name: str) -> GangKey:
    return GangKey(source, "default", name)


def claim(
    labels: Mapping[str, str] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
    owner: Mapping[str, Any] | None = None,
    specs: SpecCache | None = None,
    **spec: Any,
) -> GangClaim | None:
    """Return the claim of a pod with these labels, annotations and controller."""
    owners = {"ownerReferences": [owner]} if owner is not None else {}
    document = pod(metadata={"labels": dict(labels), "annotations": dict(annotations), **owners}, spec=spec)
    read = msgspec.json.decode(json.dumps(document).encode(), type=PodDocument)
    return read_pod(read, specs or SpecCache()).gang


def said(labels: Mapping[str, str], annotations: Mapping[str, str] = NOTHING) -> Gang:
    found = claim(labels, annotations)
    assert found is not None
    assert found.said is not None
    return found.said


def test_pod_without_a_gang_has_no_claim() -> None:
    assert claim() is None
    assert claim({"app": "x"}, {"example.com/gang": "true"}) is None
    assert claim({GANG_MIN_KEY: "4", POD_GROUP_LABEL: ""}) is None


def test_reference_to_a_workload_of_kubernetes_1_35_makes_no_gang() -> None:
    assert claim(workloadRef={"name": "w", "podGroup": "workers", "podGroupReplicaKey": "0"}) is None


@pytest.mark.parametrize(
    ("labels", "annotations", "spec", "expected"),
    [
        ({POD_GROUP_LABEL: "g"}, {}, {}, GangSource.COSCHEDULING),
        ({}, {VOLCANO_GROUP: "g"}, {}, GangSource.VOLCANO),
        ({}, {"scheduling.volcano.sh/group-name": "g"}, {}, GangSource.VOLCANO),
        ({}, {}, {"schedulingGroup": {"podGroupName": "g"}}, GangSource.NATIVE),
    ],
)
def test_pod_names_its_pod_group(
    labels: Mapping[str, str], annotations: Mapping[str, str], spec: Any, expected: GangSource
) -> None:
    assert claim(labels, annotations, **spec) == GangClaim(key(expected, "g"))


def test_the_first_source_counts_and_the_claim_names_the_others() -> None:
    labels = {POD_GROUP_LABEL: "x", **gang_labels("l")}
    found = claim(labels, {VOLCANO_GROUP: "v", GANG_KEY: "true"}, JOB_OWNER, schedulingGroup={"podGroupName": "n"})
    assert found == GangClaim(
        key(GangSource.NATIVE, "n"),
        others=(
            key(GangSource.COSCHEDULING, "x"),
            key(GangSource.VOLCANO, "v"),
            key(GangSource.LABELS, "l"),
            key(GangSource.JOB, "j"),
        ),
    )


def test_volcano_task_is_the_role() -> None:
    found = claim({}, {VOLCANO_GROUP: "g", "volcano.sh/task-spec": "worker"})
    assert found == GangClaim(key(GangSource.VOLCANO, "g"), "worker")


@pytest.mark.parametrize(
    ("labels", "index"),
    [
        ({"batch.kubernetes.io/job-completion-index": "7"}, 7),
        ({"apps.kubernetes.io/pod-index": "0"}, 0),
        ({"batch.kubernetes.io/job-completion-index": "-1"}, -1),
        ({"batch.kubernetes.io/job-completion-index": "²"}, -1),
        ({"batch.kubernetes.io/job-completion-index": "9" * 30}, -1),
    ],
)
def test_rank_is_the_index_of_the_pod_in_its_job(labels: Mapping[str, str], index: int) -> None:
    found = claim({POD_GROUP_LABEL: "g", **labels})
    assert found is not None
    assert found.index == index


def test_labels_say_all_of_a_gang() -> None:
    annotations = {
        GANG_TIMEOUT_KEY: "600",
        GANG_SPAN_KEY: "true",
        GANG_TOPOLOGY_KEY: "Required:zone,Preferred:x.io/rack",
    }
    found = claim(gang_labels("g", "4", role="worker", role_minimum="3"), annotations)
    levels = (TopologyLevel("zone", required=True), TopologyLevel("x.io/rack", required=False))
    gang = Gang(key(GangSource.LABELS, "g"), 4, timeout_seconds=600, roles=(("worker", 3),), topology=levels, span=True)
    assert found == GangClaim(gang.key, "worker", said=gang)


def test_pods_with_equal_labels_share_their_gang() -> None:
    assert said(gang_labels("g", "4")) is said(gang_labels("g", "4"))


@pytest.mark.parametrize(
    ("labels", "annotations", "problem"),
    [
        ({GANG_KEY: "g"}, {}, f"metadata.labels[{GANG_MIN_KEY}]: is missing"),
        (
            gang_labels("g", "four"),
            {},
            f"metadata.labels[{GANG_MIN_KEY}]: must be a whole number from 1 to 5000, not 'four'",
        ),
        (gang_labels("g", "0"), {}, f"metadata.labels[{GANG_MIN_KEY}]: must be a whole number from 1 to 5000, not '0'"),
        (
            gang_labels("g", "5001"),
            {},
            f"metadata.labels[{GANG_MIN_KEY}]: must be a whole number from 1 to 5000, not '5001'",
        ),
        (
            gang_labels("g", "9" * 60),
            {},
            f"metadata.labels[{GANG_MIN_KEY}]: must be a whole number from 1 to 5000, not '99",
        ),
        ({**gang_labels("g"), GANG_ROLE_MIN_KEY: "2"}, {}, f"metadata.labels[{GANG_ROLE_KEY}]: is missing, and"),
        (
            gang_labels("g", role="w", role_minimum="x"),
            {},
            f"metadata.labels[{GANG_ROLE_MIN_KEY}]: must be a whole number",
        ),
        (
            gang_labels("g"),
            {GANG_TIMEOUT_KEY: "1m"},
            f"metadata.annotations[{GANG_TIMEOUT_KEY}]: must be a whole number from 0",
        ),
        (
            gang_labels("g"),
            {GANG_SPAN_KEY: "yes"},
            f'metadata.annotations[{GANG_SPAN_KEY}]: must be "true" or "false", not \'yes\'',
        ),
        (
            gang_labels("g"),
            {GANG_TOPOLOGY_KEY: "rack"},
            f"metadata.annotations[{GANG_TOPOLOGY_KEY}]: must be levels such as",
        ),
        (
            gang_labels("g"),
            {GANG_TOPOLOGY_KEY: "Required:a b"},
            f"metadata.annotations[{GANG_TOPOLOGY_KEY}].key: 'a b' is not",
        ),
        (
            gang_labels("g"),
            {GANG_TOPOLOGY_KEY: "Required:a," * 9},
            f"metadata.annotations[{GANG_TOPOLOGY_KEY}]: has 10 levels",
        ),
    ],
)
def test_malformed_label_makes_the_gang_invalid(
    labels: Mapping[str, str], annotations: Mapping[str, str], problem: str
) -> None:
    gang = said(labels, annotations)
    assert gang.key == key(GangSource.LABELS, "g")
    assert gang.invalid.startswith(f"the labels of gang default/g: {problem}")


@pytest.mark.parametrize("name", ["x" * 500, "a\u202eb"])
def test_text_that_is_no_name_is_escaped_and_short(name: str) -> None:
    found = claim({}, {VOLCANO_GROUP: name})
    assert found is not None
    assert found.key.name.isprintable()
    assert len(found.key.name) < 70


def test_job_pod_whose_template_asks_for_a_gang_has_a_claim_without_its_job() -> None:
    assert claim({}, {GANG_KEY: "true"}, JOB_OWNER) == GangClaim(key(GangSource.JOB, "j"))
    assert claim({}, {GANG_KEY: "true"}) is None
    assert claim({}, {GANG_KEY: "true"}, {**JOB_OWNER, "apiVersion": "batch.volcano.sh/v1alpha1"}) is None
    assert claim({}, {GANG_KEY: "true"}, {**JOB_OWNER, "controller": False}) is None


def test_pod_of_a_job_set_belongs_to_the_job_set_with_its_replicated_job_as_role() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "s", "jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    assert claim(labels, {GANG_KEY: "true"}, JOB_OWNER) == GangClaim(key(GangSource.JOB_SET, "s"), "workers")
    assert claim(labels, {GANG_KEY: "true"}) is None


def test_role_label_is_the_role() -> None:
    found = claim({**gang_labels("g"), GANG_ROLE_KEY: "ps"})
    assert found is not None
    assert (found.role, found.said and found.said.roles) == ("ps", ())
