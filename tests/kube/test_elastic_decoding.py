"""Jobs, JobSets, Deployments and StatefulSets that ask to be elastic, and what is wrong with those that are not."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.elastic import ScaledDocument, read_job_elastic, read_job_set_elastic, read_scaled_elastic
from aischeduler.kube.decode.elastic_terms import ElasticAnnotations, read_notes, read_terms
from aischeduler.kube.decode.gang_objects import read_job, read_job_set
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.job_documents import JobDocument, JobSetDocument
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.model.elastic import (
    ALLOWED_INSTANCES_KEY,
    COMPLETIONS_KEY,
    ELASTIC_JOB_KEY,
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
    RESIZED_AT_KEY,
    SERVICE_KEY,
    SIZE_KEY,
    ElasticJob,
    ElasticTerms,
    PriorityLevel,
)
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import objects_of
from aischeduler.model.gang import GANG_KEY
from aischeduler.model.workload import Workload

Json = dict[str, Any]
BOTH = {MIN_INSTANCES_KEY: "2", MAX_INSTANCES_KEY: "8"}
TERMS = ElasticTerms(2, 8, by_priority=True)
KINDS = ("Job", "JobSet", "Deployment", "StatefulSet")
INDEXED = {"completionMode": "Indexed", "parallelism": 4, "completions": 4}
JOB_SET = {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": INDEXED}}]}
SPECS: Mapping[str, Json] = {
    "Job": INDEXED,
    "JobSet": JOB_SET,
    "Deployment": {"replicas": 4},
    "StatefulSet": {"replicas": 4},
}
AT = "2026-01-02T03:04:05.250000Z"
AT_SECONDS = 1_767_323_045.25


def resources() -> dict[str, Any]:
    return {one.kind: one for one in (*gang_resources(GangOwners()), *pod_set_resources())}


def an_object(
    annotations: Mapping[str, str] = BOTH, *, version: int = 7, spec: Any = None, status: Any = None, **metadata: Any
) -> Json:
    named = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": {**named, "annotations": dict(annotations), **metadata}, "spec": spec, "status": status}


def workload(kind: str, document: Json) -> Workload | None:
    """Return what the engine hears of an object of this kind; None for a Deployment of which it hears nothing."""
    return next(iter(objects_of(resources()[kind].read(json.dumps(document).encode()), Workload)), None)


def read(
    kind: str, annotations: Mapping[str, str] = BOTH, *, spec: Any = None, status: Any = None, **metadata: Any
) -> ElasticJob | None:
    found = workload(kind, an_object(annotations, spec=spec or SPECS[kind], status=status, **metadata))
    return found.elastic if found is not None else None


def elastic(kind: str, annotations: Mapping[str, str] = BOTH, **parts: Any) -> ElasticJob:
    found = read(kind, annotations, **parts)
    assert found is not None
    return found


def problem(kind: str, annotations: Mapping[str, str] = BOTH, **parts: Any) -> tuple[EventReason, str]:
    found = elastic(kind, annotations, **parts).problem
    assert found is not None
    return found.reason, found.message


def invalid(key: str, text: str) -> str:
    """Return what is wrong with this annotation beside a good minimum and maximum."""
    reason, message = problem("Job", {**BOTH, key: text})
    assert reason is EventReason.INVALID_ELASTIC
    assert message.startswith(f"metadata.annotations[{key}]: ")
    return message.partition(": ")[2]


def terms(**more: str) -> ElasticTerms:
    """Return the terms with further annotations, named by their key without its prefix."""
    found = elastic("Job", BOTH | {f"resource.aibee.cn/{key.replace('_', '-')}": text for key, text in more.items()})
    assert found.problem is None
    return found.terms


def test_elastic_object_of_each_kind() -> None:
    assert elastic("Job") == ElasticJob(TERMS, 4, "7", ordered=True, completions_follow=True)
    assert elastic("JobSet") == ElasticJob(TERMS, 4, "7", ordered=True, completions_follow=True, part="w")
    assert elastic("Deployment") == ElasticJob(TERMS, 4, "7")
    assert elastic("StatefulSet") == ElasticJob(TERMS, 4, "7", ordered=True)


@pytest.mark.parametrize("kind", KINDS)
def test_object_without_a_size_has_one_instance(kind: str) -> None:
    bare = {"replicatedJobs": [{"name": "w"}]} if kind == "JobSet" else {"x": 1}
    assert elastic(kind, spec=bare).size == 1


@pytest.mark.parametrize("kind", [*KINDS, "ReplicaSet", "DaemonSet"])
@pytest.mark.parametrize(
    "annotations", [{}, {FREEZING_WINDOW_KEY: "?", SIZE_KEY: "4"}, {MIN_INSTANCES_KEY: "", MAX_INSTANCES_KEY: ""}]
)
def test_object_that_names_neither_minimum_nor_maximum_is_not_elastic(kind: str, annotations: dict[str, str]) -> None:
    found = workload(kind, an_object(annotations, spec=SPECS.get(kind)))
    assert found is None if kind == "Deployment" else found is not None and found.elastic is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "DaemonSet"])
def test_replica_set_with_the_annotations_of_its_deployment_is_not_elastic(kind: str) -> None:
    found = workload(kind, an_object(spec={"replicas": 4}))
    assert found is not None
    assert found.elastic is None


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (MIN_INSTANCES_KEY, "", f"is missing, and {MAX_INSTANCES_KEY} needs it"),
        (MAX_INSTANCES_KEY, "", f"is missing, and {MIN_INSTANCES_KEY} needs it"),
        (MIN_INSTANCES_KEY, "0", "must be a whole number from 1 to 5000, not '0'"),
        (MIN_INSTANCES_KEY, "-2", "must be a whole number from 1 to 5000, not '-2'"),
        (MIN_INSTANCES_KEY, "+2", "must be a whole number from 1 to 5000, not '+2'"),
        (MIN_INSTANCES_KEY, " 2", "must be a whole number from 1 to 5000, not ' 2'"),
        (MIN_INSTANCES_KEY, "2.0", "must be a whole number from 1 to 5000, not '2.0'"),
        (MIN_INSTANCES_KEY, "\u0662", "must be a whole number from 1 to 5000, not '\\u0662'"),
        (MIN_INSTANCES_KEY, "two\nlines", "must be a whole number from 1 to 5000, not 'two\\nlines'"),
        (MIN_INSTANCES_KEY, "9", "must be at most 8, the maximum in resource.aibee.cn/max-instances, not 9"),
        (MAX_INSTANCES_KEY, "5001", "must be a whole number from 1 to 5000, not '5001'"),
        (MAX_INSTANCES_KEY, "9" * 300, "must be a whole number from 1 to 5000, not '9"),
        (ALLOWED_INSTANCES_KEY, "1,,2", "must be whole numbers such as 1,2,4,8, not '1,,2'"),
        (ALLOWED_INSTANCES_KEY, "2,4,", "must be whole numbers such as 1,2,4,8, not '2,4,'"),
        (ALLOWED_INSTANCES_KEY, "2,-4", "must be whole numbers such as 1,2,4,8, not '2,-4'"),
        (ALLOWED_INSTANCES_KEY, "[2,4]", "must be whole numbers such as 1,2,4,8, not '[2,4]'"),
        (ALLOWED_INSTANCES_KEY, "2," * 2048 + "2", "is longer than 4096 characters"),
        (FREEZING_WINDOW_KEY, "-5m", "must be a duration such as 30s, 5m, 1h30m or 0, not '-5m'"),
        (FREEZING_WINDOW_KEY, "5", "must be a duration such as 30s, 5m, 1h30m or 0, not '5'"),
        (FREEZING_WINDOW_KEY, "5 m", "must be a duration such as 30s, 5m, 1h30m or 0, not '5 m'"),
        (FREEZING_WINDOW_KEY, "1d", "must be a duration such as 30s, 5m, 1h30m or 0, not '1d'"),
        (FREEZING_WINDOW_KEY, "0" * 100, "must be a duration"),
        (FREEZING_WINDOW_KEY, "9999999999h", "must be a duration such as 30s, 5m, 1h30m or 0, not '9999999999h'"),
        (PRIORITY_LEVEL_KEY, "normal", "'normal' is not one of Experiment, Offline, Normal, Production"),
        (PRIORITY_LEVEL_KEY, "High", "'High' is not one of Experiment, Offline, Normal, Production"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_bad_annotation_makes_the_object_inelastic_and_is_named(key: str, text: str, why: str) -> None:
    assert invalid(key, text).startswith(why)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", ()),
        ("4,2,8,4", (2, 4, 8)),
        (" 4 , 6 ", (2, 4, 6)),
        ("8", (2, 8)),
    ],
)
def test_allowed_sizes_are_sorted_and_the_minimum_is_one_of_them(text: str, allowed: tuple[int, ...]) -> None:
    found = elastic("Job", BOTH | {ALLOWED_INSTANCES_KEY: text})
    assert (found.terms.allowed, found.ignored) == (allowed, "")


def test_allowed_sizes_outside_of_minimum_and_maximum_are_ignored_and_named() -> None:
    path = f"metadata.annotations[{ALLOWED_INSTANCES_KEY}]: "
    found = elastic("Job", BOTH | {ALLOWED_INSTANCES_KEY: "0,1,4,16"})
    assert (found.problem, found.terms.allowed) == (None, (2, 4))
    bounds = f"outside {MIN_INSTANCES_KEY} 2 to {MAX_INSTANCES_KEY} 8"
    assert found.ignored == f"{path}0, 1, 16 have no effect {bounds}"
    assert elastic("Job", BOTH | {ALLOWED_INSTANCES_KEY: "9"}).ignored == f"{path}9 has no effect {bounds}"
    many = ",".join(map(str, range(20, 40)))
    assert "27 and 12 more have no effect" in elastic("Job", BOTH | {ALLOWED_INSTANCES_KEY: many}).ignored


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("0", 0),
        ("0s", 0),
        ("+5m", 300),
        ("1.5h", 5400),
        (".5m", 30),
        ("90000ms", 90),
        ("30s5m", 330),
        ("7\u00b5s", 7e-6),
    ],
)
def test_freezing_window_is_a_duration_of_go(text: str, seconds: float) -> None:
    assert terms(freezing_window=text).freezing_window_seconds == pytest.approx(seconds)


def test_weight_is_that_of_the_level_before_the_priority_of_the_pods() -> None:
    assert [terms(priority_level=level).weight for level in PriorityLevel] == [10, 100, 1000, 10_000]
    said = ElasticAnnotations(min_instances="2", max_instances="8")
    plain = read_terms(said).terms
    assert [plain.weighed(priority).weight for priority in (0, 50, -3, 2_000_000)] == [1000, 50, 1, 9_999]
    leveled = ElasticAnnotations(min_instances="2", max_instances="8", priority_level="Offline")
    assert read_terms(leveled).terms.weighed(50).weight == 100


def test_equal_annotations_give_one_object() -> None:
    assert elastic("Job").terms is elastic("StatefulSet").terms


def test_what_the_scheduler_wrote_last_is_read() -> None:
    notes = {SIZE_KEY: "6", RESIZED_AT_KEY: AT, SERVICE_KEY: f"1200 {AT}"}
    found = elastic("Job", BOTH | notes)
    assert (found.written_size, found.resized_at_seconds) == (6, AT_SECONDS)
    assert (found.service, found.service_at_seconds) == (1200, AT_SECONDS)


@pytest.mark.parametrize("text", ["", "?", "-6", "6000", "9" * 20])
def test_size_that_the_scheduler_did_not_write_counts_as_absent(text: str) -> None:
    assert elastic("Job", BOTH | {SIZE_KEY: text}).written_size == 0


@pytest.mark.parametrize("text", ["", "?", "2026-01-02T03:04:05", "1767323045", "0001-01-01T00:00:00+23:59"])
def test_time_that_the_scheduler_did_not_write_counts_as_absent(text: str) -> None:
    found = elastic("Job", BOTH | {RESIZED_AT_KEY: text, SERVICE_KEY: f"5 {text}"})
    assert (found.resized_at_seconds, found.service, found.service_at_seconds) == (0, 0, 0)


@pytest.mark.parametrize("text", ["", "5", f"-5 {AT}", f"x {AT}", f"5  {AT}", f"{AT} 5", f"5 {AT} 5", "9" * 30 + AT])
def test_service_that_the_scheduler_did_not_write_counts_as_absent(text: str) -> None:
    found = elastic("Job", BOTH | {SERVICE_KEY: text})
    assert (found.service, found.service_at_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("spec", "note", "follows", "left"),
    [
        (INDEXED, "", True, None),
        (INDEXED, "fixed", False, 4),
        (INDEXED, "?", True, None),
        (INDEXED | {"completions": 10}, "", False, 10),
        (INDEXED | {"completions": 10}, "follow", True, None),
        (INDEXED | {"completions": None}, "", False, None),
        ({"parallelism": 4, "completions": 4}, "", False, 4),
        ({"parallelism": 4, "completions": 4}, "follow", False, 4),
        ({"parallelism": 4}, "", False, None),
        ({"completionMode": "NonIndexed", "completions": 1}, "", False, 1),
    ],
)
def test_completions_of_an_indexed_job_follow_its_size_as_noted_else_where_both_are_equal(
    spec: Json, note: str, follows: bool, left: int | None
) -> None:
    found = elastic("Job", BOTH | {COMPLETIONS_KEY: note}, spec=spec)
    assert (found.completions_follow, found.left) == (follows, left)
    assert found.ordered == follows


@pytest.mark.parametrize(
    ("status", "succeeded", "left"),
    [
        ({}, 0, 10),
        ({"succeeded": 3}, 3, 7),
        ({"succeeded": 3, "failedIndexes": "0,4-6"}, 3, 3),
        ({"succeeded": 12}, 12, 0),
        ({"failedIndexes": "none,-," + "9" * 5000}, 0, 10),
    ],
)
def test_instances_that_are_left_of_a_job(status: Json, succeeded: int, left: int) -> None:
    found = elastic("Job", spec=INDEXED | {"completions": 10}, status=status)
    assert (found.succeeded, found.left) == (succeeded, left)


@pytest.mark.parametrize(
    ("kind", "status", "finished"),
    [
        ("Job", {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ("Job", {"conditions": [{"type": "Failed", "status": "True"}]}, True),
        ("Job", {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, True),
        (
            "Job",
            {"conditions": [{"type": "Suspended", "status": "True"}, {"type": "Failed", "status": "False"}]},
            False,
        ),
        ("Job", {"completionTime": AT}, True),
        ("JobSet", {"terminalState": "Completed"}, True),
        ("JobSet", {"conditions": [{"type": "Completed", "status": "True"}]}, True),
        ("JobSet", {"conditions": [{"type": "StartupPolicyCompleted", "status": "True"}]}, False),
        ("JobSet", {"replicatedJobsStatus": [{"name": "w", "succeeded": 1}]}, True),
        ("JobSet", {"replicatedJobsStatus": [{"name": "v", "succeeded": 1}, {"name": "w", "ready": 1}]}, False),
    ],
)
def test_job_that_has_ended_or_ends_is_finished(kind: str, status: Json, finished: bool) -> None:
    assert elastic(kind, status=status).finished == finished


@pytest.mark.parametrize("kind", KINDS)
def test_object_that_is_being_deleted_is_finished(kind: str) -> None:
    assert elastic(kind, deletionTimestamp=AT).finished


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_suspended_job_is_known(kind: str) -> None:
    assert elastic(kind, spec=SPECS[kind] | {"suspend": True}).suspended
    assert not elastic(kind, spec=SPECS[kind] | {"suspend": False}).suspended


def controlled(kind: str, owner: str, *, controller: bool = True) -> ElasticJob | None:
    reference = {"apiVersion": "x/v1", "kind": owner, "name": "o", "uid": "o", "controller": controller}
    return read(kind, ownerReferences=[reference])


@pytest.mark.parametrize("kind", KINDS)
def test_object_that_another_of_kubernetes_controls_is_left_to_that_one(kind: str) -> None:
    for owner in ("JobSet", "Deployment", "ReplicaSet", "StatefulSet"):
        assert controlled(kind, owner) is None
    for owner in ("CronJob", "TrainingJob"):
        assert controlled(kind, owner) == elastic(kind)
    assert controlled(kind, "LeaderWorkerSet", controller=False) == elastic(kind)
    found = controlled(kind, "LeaderWorkerSet")
    assert found is not None
    assert found.problem is not None
    assert found.problem.reason is EventReason.NOT_ELASTIC
    assert found.problem.message == "'LeaderWorkerSet/o' controls it"


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_job_of_another_manager_is_not_elastic(kind: str) -> None:
    own = "kubernetes.io/job-controller" if kind == "Job" else "jobset.sigs.k8s.io/jobset-controller"
    assert elastic(kind, spec=SPECS[kind] | {"managedBy": own}).problem is None
    reason, message = problem(kind, spec=SPECS[kind] | {"managedBy": "kueue.x-k8s.io/multikueue"})
    assert (reason, message) == (EventReason.NOT_ELASTIC, "spec.managedBy: 'kueue.x-k8s.io/multikueue' controls it")


@pytest.mark.parametrize("kind", KINDS)
def test_object_in_a_queue_of_kueue_is_not_elastic(kind: str) -> None:
    reason, message = problem(kind, labels={"kueue.x-k8s.io/queue-name": "q"})
    assert reason is EventReason.NOT_ELASTIC
    assert message == "its label kueue.x-k8s.io/queue-name leaves it to Kueue's queue 'q'"


def part(name: str, replicas: int | None = 1, **spec: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": {"spec": INDEXED | spec}}


def job_set(*parts: Json, name: str = "") -> ElasticJob:
    return elastic("JobSet", BOTH | {ELASTIC_JOB_KEY: name}, spec={"replicatedJobs": list(parts)})


def test_elastic_part_of_a_job_set_is_the_only_one_that_can_be_or_the_named_one() -> None:
    driver, many, loose = part("driver"), part("many", 2), part("loose", completionMode="NonIndexed")
    found = job_set(many, loose, part("w", None, completionMode=None))
    assert (found.problem, found.part, found.part_index) == (None, "w", 2)
    found = job_set(driver, part("w", parallelism=3, completions=9), name="w")
    assert (found.problem, found.part, found.part_index, found.size, found.left) == (None, "w", 1, 3, 9)
    only = "of its replicatedJobs exactly one must have replicas 1 and completionMode Indexed"
    for parts in ((driver, part("w")), (many, loose), ()):
        found = job_set(*parts)
        assert found.problem is not None
        assert found.problem.reason is EventReason.NOT_ELASTIC
        assert found.problem.message.startswith(only)
        assert ELASTIC_JOB_KEY in found.problem.message


def test_part_that_an_annotation_names_and_that_cannot_be_elastic_is_a_problem() -> None:
    driver, many, loose = part("driver"), part("many", 2), part("loose", completionMode="NonIndexed")
    for name, index in (("many", 1), ("loose", 2)):
        found = job_set(driver, many, loose, name=name).problem
        assert found is not None
        assert found.reason is EventReason.NOT_ELASTIC
        wanted = f"spec.replicatedJobs[{index}]: the replicatedJob '{name}' must have replicas 1 and completionMode"
        assert found.message.startswith(wanted)
    found = job_set(driver, name="w").problem
    assert found is not None
    assert found.reason is EventReason.INVALID_ELASTIC
    assert found.message == f"metadata.annotations[{ELASTIC_JOB_KEY}]: there is no replicatedJob 'w'"


def gang_of_job(annotations: Mapping[str, str], spec: Json, status: Json | None = None) -> tuple[int, bool, str]:
    document = json.dumps(an_object(annotations, spec=spec, status=status)).encode()
    gang, asks = read_job(msgspec.json.decode(document, type=JobDocument))
    return gang.min_member, asks, gang.invalid


@pytest.mark.parametrize("gang", [{}, {GANG_KEY: "true"}, {GANG_KEY: "false"}])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_elastic_job_asks_for_a_gang_of_its_minimum_whatever_its_size(gang: dict[str, str], size: int) -> None:
    assert gang_of_job(BOTH | gang, INDEXED | {"parallelism": size, "completions": size}) == (2, True, "")
    assert gang_of_job(BOTH | gang, {"parallelism": size, "completions": 9}) == (2, True, "")
    assert gang_of_job(BOTH | gang, {"parallelism": size}) == (2, True, "")
    assert gang_of_job(BOTH | gang | {MIN_INSTANCES_KEY: "1"}, {"parallelism": size}) == (1, True, "")


def test_last_pods_of_an_elastic_job_wait_for_no_more_than_it_still_creates() -> None:
    assert gang_of_job(BOTH, {"parallelism": 4, "completions": 9}, {"succeeded": 8}) == (1, True, "")
    assert gang_of_job(BOTH, INDEXED, {"succeeded": 3}) == (1, True, "")


def test_job_that_is_not_elastic_is_a_gang_as_it_would_be_without_the_annotations() -> None:
    bad = {**BOTH, MIN_INSTANCES_KEY: "0"}
    assert gang_of_job(bad, INDEXED) == (4, False, "")
    assert gang_of_job(bad | {GANG_KEY: "true"}, INDEXED) == (4, True, "")


def test_elastic_job_set_asks_for_a_gang_of_the_minimum_beside_its_other_parts() -> None:
    def read_gang(size: int, **status: Any) -> tuple[int, bool, tuple[tuple[str, int], ...]]:
        parts = [part("driver", parallelism=1, completions=1), part("w", parallelism=size, completions=size)]
        spec = {"replicatedJobs": parts}
        document = json.dumps(an_object(BOTH | {ELASTIC_JOB_KEY: "w"}, spec=spec, status=status)).encode()
        gang, asks = read_job_set(msgspec.json.decode(document, type=JobSetDocument))
        return gang.min_member, asks, gang.roles

    for size in (0, 1, 6):
        assert read_gang(size) == (3, True, (("driver", 1), ("w", 2)))
    ended = {"replicatedJobsStatus": [{"name": "w", "succeeded": 1}]}
    assert read_gang(6, **ended) == (1, True, (("driver", 1),))


TEXT = st.one_of(
    st.none(),
    st.text(max_size=12),
    st.sampled_from(
        ["", "0", "1", "2", "8", "5000", "5001", "-1", "1,2,x", "5m", "0", AT, f"5 {AT}", "follow", "Normal"]
    ),
)
KEYS = (
    MIN_INSTANCES_KEY,
    MAX_INSTANCES_KEY,
    ALLOWED_INSTANCES_KEY,
    FREEZING_WINDOW_KEY,
    PRIORITY_LEVEL_KEY,
    ELASTIC_JOB_KEY,
    SIZE_KEY,
    RESIZED_AT_KEY,
    SERVICE_KEY,
    COMPLETIONS_KEY,
    GANG_KEY,
)
NUMBER = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))
OWNERS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["JobSet", "CronJob", "X\n"]),
            "name": st.text(max_size=5),
            "controller": st.booleans(),
        }
    ),
    max_size=2,
)
METADATA = st.fixed_dictionaries(
    {"name": st.just("w"), "annotations": st.dictionaries(st.sampled_from(KEYS), TEXT)},
    optional={
        "labels": st.dictionaries(st.just("kueue.x-k8s.io/queue-name"), TEXT),
        "ownerReferences": OWNERS,
        "deletionTimestamp": st.just(AT),
    },
)
JOB_PART = st.fixed_dictionaries(
    {},
    optional={
        "parallelism": NUMBER,
        "completions": NUMBER,
        "completionMode": st.sampled_from([None, "Indexed", "NonIndexed", "?"]),
        "suspend": st.one_of(st.none(), st.booleans()),
        "managedBy": TEXT,
    },
)
STATUS_PART = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=2),
        "succeeded": NUMBER,
        "failedIndexes": st.text("0123456789-,x", max_size=30),
        "completionTime": TEXT,
        "conditions": st.lists(st.fixed_dictionaries({"type": st.sampled_from(["Failed", "?"]), "status": st.text()})),
    },
)
SET_PART = st.fixed_dictionaries(
    {},
    optional={
        "replicatedJobs": st.lists(
            st.fixed_dictionaries(
                {"name": st.text(max_size=2)},
                optional={"replicas": NUMBER, "template": st.fixed_dictionaries({}, optional={"spec": JOB_PART})},
            ),
            max_size=3,
        ),
        "suspend": st.booleans(),
    },
)
SET_STATUS = st.fixed_dictionaries(
    {}, optional={"replicatedJobsStatus": st.lists(STATUS_PART, max_size=3), "terminalState": TEXT}
)


def check(found: ElasticJob | None, annotations: Mapping[str, str | None]) -> None:
    """Check what holds of every reading."""
    asks = any(annotations.get(key) for key in (MIN_INSTANCES_KEY, MAX_INSTANCES_KEY))
    assert found is None or asks
    if found is not None and found.problem is None:
        says = found.terms
        assert 1 <= says.min_instances <= says.max_instances <= 5000
        assert list(says.allowed) == sorted(set(says.allowed))
        assert not says.allowed or says.allowed[0] == says.min_instances
        assert says.freezing_window_seconds >= 0
        assert min(found.size, found.succeeded, found.left or 0) >= 0


@given(METADATA, JOB_PART, STATUS_PART)
def test_no_job_raises(metadata: Json, spec: Json, status: Json) -> None:
    document = {"metadata": metadata, "spec": spec, "status": status}
    decoded = msgspec.json.decode(msgspec.json.encode(document), type=JobDocument)
    check(read_job_elastic(decoded), metadata["annotations"])
    read_job(decoded)


@given(METADATA, SET_PART, SET_STATUS)
def test_no_job_set_raises(metadata: Json, spec: Json, status: Json) -> None:
    document = {"metadata": metadata, "spec": spec, "status": status}
    decoded = msgspec.json.decode(msgspec.json.encode(document), type=JobSetDocument)
    check(read_job_set_elastic(decoded), metadata["annotations"])
    read_job_set(decoded)


@given(METADATA, NUMBER, st.booleans())
def test_no_deployment_and_no_stateful_set_raises(metadata: Json, replicas: int | None, ordered: bool) -> None:
    document = {"metadata": metadata, "spec": {"replicas": replicas}}
    decoded = msgspec.json.decode(msgspec.json.encode(document), type=ScaledDocument)
    check(read_scaled_elastic(decoded.metadata, replicas, ordered=ordered), metadata["annotations"])


@given(st.text(), st.text())
def test_no_text_of_the_scheduler_raises(one: str, other: str) -> None:
    noted = read_notes(ElasticAnnotations(size=one, resized_at=one, service=f"{one} {other}", completions=other))
    assert noted.size >= 0
    assert noted.service_at_seconds >= 0
