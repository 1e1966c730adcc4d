"""What workloads say of their pods, and that the engine hears of each once, and of changes."""

import json
from typing import Any

import pytest

from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.model.events import Event, Seen, gone, objects_of
from aischeduler.model.tenant_queue import QUEUE_KEY, VOLCANO_QUEUE_KEY
from aischeduler.model.workload import (
    CARD_REQUEST_KEY,
    NO_TERMS,
    ON_EVICTION_KEY,
    PREEMPTABLE_KEY,
    SERVICE_TYPE_KEY,
    SUSPENDED_KEY,
    CardRequest,
    TenantTerms,
    Workload,
)
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, settled, stream, until
from tests.kube.test_gang_resources import is_of

RESOURCES = {resource.kind: resource for resource in (*gang_resources(GangOwners()), *pod_set_resources())}
VOLCANO = "PodGroup.scheduling.volcano.sh"
SILENT = ("Service", "ReplicationController", "Deployment", "HorizontalPodAutoscaler")
"""The kinds that say nothing of the tenant of pods."""
KINDS = [kind for kind in RESOURCES if kind not in SILENT]
DISRUPTED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
EXIT = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}


def an_object(annotations: dict[str, str] | None = None, *, version: int = 1, **parts: Any) -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": str(version)}
    said = {"annotations": annotations} if annotations is not None else {}
    return {"metadata": {**metadata, **said, **parts.pop("metadata", {})}, **parts}


def workload(kind: str, annotations: dict[str, str] | None = None, **parts: Any) -> Workload:
    events = RESOURCES[kind].read(json.dumps(an_object(annotations, **parts)).encode())
    (found,) = objects_of(events, Workload)
    return found


def complaint(key: str, text: str) -> str:
    terms = workload("Job", {key: text, QUEUE_KEY: "a"}).terms
    assert (terms.queue, terms.card_request, terms.aborts, terms.preemptable) == ("a", (), False, None)
    assert terms.invalid.startswith(f"metadata.annotations[{key}]: ")
    return terms.invalid.partition(": ")[2]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_its_terms_and_its_owner(kind: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    annotations = {
        VOLCANO_QUEUE_KEY: "a",
        SERVICE_TYPE_KEY: "inference",
        PREEMPTABLE_KEY: "false",
        CARD_REQUEST_KEY: '{"NVIDIA-H200|A100/mps-40g*1/2": 3, "V100": 0}',
        ON_EVICTION_KEY: "Abort",
    }
    cards = (
        CardRequest("NVIDIA-H200|A100/mps-40g*1/2", ("H200", "A100/mps-40g*1/2"), 3),
        CardRequest("V100", ("V100",), 0),
    )
    labels = {PREEMPTABLE_KEY: "true"}
    found = workload(kind, annotations, metadata={"ownerReferences": [owner], "labels": labels})
    assert (found.key, found.uid, found.owner) == ((kind.partition(".")[0], "team", "w"), "u", "Deployment/web")
    assert found.terms == TenantTerms("a", "inference", False, cards, True)
    assert workload(kind) == Workload(found.kind, "team", "w", "u", retries=6 if kind == "Job" else -1)
    assert workload(kind, {}).terms is NO_TERMS


def test_queue_of_a_pod_group_is_that_of_its_annotation_before_that_of_its_spec() -> None:
    assert workload(VOLCANO, spec={"queue": "a"}).terms == TenantTerms("a")
    assert workload(VOLCANO, {QUEUE_KEY: "b"}, spec={"queue": "a"}).terms == TenantTerms("b")
    assert workload(VOLCANO, {QUEUE_KEY: ""}, spec={"queue": "a"}).terms == TenantTerms("a")
    assert workload(VOLCANO, spec={"queue": 5}).terms is NO_TERMS
    assert workload(VOLCANO, spec={"queue": "default"}).terms is NO_TERMS, "Volcano writes this where nothing is said"
    assert workload("Job", spec={"queue": "a"}).terms is NO_TERMS


def test_annotations_of_templates_are_left_to_the_pods() -> None:
    template = {"metadata": {"annotations": {QUEUE_KEY: "a", CARD_REQUEST_KEY: "?"}}}
    assert workload("Job", spec={"template": template}).terms is NO_TERMS
    jobs = [{"name": "r", "template": {**template, "spec": {"template": template}}}]
    assert workload("JobSet", spec={"replicatedJobs": jobs}).terms is NO_TERMS


@pytest.mark.parametrize(
    ("key", "text", "why"),
    [
        (CARD_REQUEST_KEY, "{", "must be JSON such as"),
        (CARD_REQUEST_KEY, "[1]", "must be JSON such as"),
        (CARD_REQUEST_KEY, '{"A100": -1}', "the number of 'A100' must be a whole number from 0 to 2147483647, not -1"),
        (
            CARD_REQUEST_KEY,
            '{"A100": 1.5}',
            "the number of 'A100' must be a whole number from 0 to 2147483647, not 1.5",
        ),
        (CARD_REQUEST_KEY, '{"A100": "2"}', "the number of 'A100' must be a whole number"),
        (CARD_REQUEST_KEY, '{"A100": true}', "the number of 'A100' must be a whole number"),
        (CARD_REQUEST_KEY, '{"A100": 1e400}', "must be JSON such as"),
        (CARD_REQUEST_KEY, '{"": 1}', "'' is not the name of a card"),
        (CARD_REQUEST_KEY, '{"A100|": 1}', "'' is not the name of a card"),
        (CARD_REQUEST_KEY, '{"nvidia": 1}', "'nvidia' is not the name of a card"),
        (CARD_REQUEST_KEY, json.dumps({f"A{n}": 1 for n in range(65)}), "names 65 cards, which is more than 64"),
        (CARD_REQUEST_KEY, json.dumps({"|".join(["A1"] * 17): 1}), "a name lists 17 cards, which is more than 16"),
        (CARD_REQUEST_KEY, '{"A": ' + "[" * 8000, "must be JSON such as"),
        (CARD_REQUEST_KEY, " " * 9000, "is longer than 8192 characters"),
        (ON_EVICTION_KEY, "abort", "must be Restart or Abort, not 'abort'"),
        (ON_EVICTION_KEY, "\x1b" * 1000, "must be Restart or Abort, not '\\x1b"),
        (PREEMPTABLE_KEY, "no", "must be true or false, not 'no'"),
    ],
    ids=lambda text: text[:20],
)
def test_malformed_annotation_is_named_and_the_others_count(key: str, text: str, why: str) -> None:
    assert why in complaint(key, text)


def test_malformed_cards_are_named_before_other_problems() -> None:
    found = workload("Job", {ON_EVICTION_KEY: "?", PREEMPTABLE_KEY: "?", CARD_REQUEST_KEY: "?"})
    assert CARD_REQUEST_KEY in found.terms.invalid


@pytest.mark.parametrize(
    ("spec", "retries"),
    [
        ({}, 6),
        ({"backoffLimit": 0}, 0),
        ({"backoffLimit": 20, "podFailurePolicy": {"rules": [EXIT]}}, 20),
        ({"backoffLimit": 0, "podFailurePolicy": {"rules": [EXIT, DISRUPTED]}}, -1),
        ({"podFailurePolicy": {"rules": [{**DISRUPTED, "action": "FailJob"}, DISRUPTED]}}, 6),
        ({"podFailurePolicy": {"rules": [{**DISRUPTED, "onPodConditions": [{"type": "Other"}]}]}}, 6),
        ({"backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 0}, 0),
        ({"backoffLimit": 2**31 - 1, "backoffLimitPerIndex": 2}, 2**31 - 1),
    ],
)
def test_retries_of_a_job_are_those_that_evictions_use_up(spec: dict[str, Any], retries: int) -> None:
    assert workload("Job", spec=spec).retries == retries


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
@pytest.mark.parametrize(
    ("labels", "manager", "managed"),
    [
        ({}, None, False),
        ({}, "kubernetes.io/job-controller", False),
        ({}, "jobset.sigs.k8s.io/jobset-controller", False),
        ({}, "kueue.x-k8s.io/multikueue", True),
        ({"kueue.x-k8s.io/queue-name": "q"}, None, True),
        ({"kueue.x-k8s.io/queue-name": ""}, None, False),
    ],
)
def test_job_of_another_manager_is_known(kind: str, labels: dict[str, str], manager: str | None, managed: bool) -> None:
    assert workload(kind, metadata={"labels": labels}, spec={"managedBy": manager}).managed == managed


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
@pytest.mark.parametrize(
    ("mark", "suspend", "suspended"),
    [
        ("restart", True, True),
        ("restart", False, False),
        ("restart", None, False),
        ("abort", True, False),
        ("Restart", True, False),
        (None, True, False),
    ],
)
def test_only_a_job_that_this_scheduler_has_suspended_for_a_restart_is_to_be_resumed(
    kind: str, mark: str | None, suspend: bool | None, suspended: bool
) -> None:
    annotations = {SUSPENDED_KEY: mark} if mark is not None else None
    assert workload(kind, annotations, spec={"suspend": suspend}).suspended == suspended


async def heard(kind: str, *lines: bytes) -> list[Event]:
    """Return what the engine hears of workloads: of one that says nothing, and of these lines of the watch."""
    world, path = World(), RESOURCES[kind].path
    world.script.on("get", path, reply(200, listing(an_object(version=10), version=10)))
    world.script.on("watch", path, stream(*lines))
    async with world.running(RESOURCES[kind]) as reflector:
        await until(lambda: reflector.counts.events == len(lines))
        await settled()
    return [event for event in world.events if is_of(event, Workload)]


@pytest.mark.parametrize("kind", KINDS)
async def test_engine_hears_once_of_a_workload_that_says_nothing_then_of_changes_and_its_end(kind: str) -> None:
    named = {QUEUE_KEY: "a"}
    changes = [
        line("MODIFIED", an_object(version=11, status={"x": 1})),
        line("MODIFIED", an_object(named, version=12)),
        line("MODIFIED", an_object(named, version=13)),
        line("DELETED", an_object(named, version=14)),
    ]
    first, second, end = await heard(kind, *changes)
    kind = kind.partition(".")[0]
    assert isinstance(first, Seen)
    assert isinstance(second, Seen)
    assert [found.terms for found in objects_of((first, second), Workload)] == [NO_TERMS, TenantTerms("a")]
    assert end == gone(Workload, kind, "team", "w")


async def test_workload_made_again_is_gone_before_it_is_seen() -> None:
    again = an_object(version=11, metadata={"uid": "v"})
    first, end, second = await heard("ReplicaSet", line("MODIFIED", again))
    assert end == gone(Workload, "ReplicaSet", "team", "w")
    assert [found.uid for found in objects_of((first, second), Workload)] == ["u", "v"]
