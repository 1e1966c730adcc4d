"""Kinds that the configuration lets be elastic: what is read of their objects, what is written to them, and events."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.config.schema import ElasticKind
from aischeduler.kube.elastic_kinds import COLLECTIONS, collections_with
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.report import event_messages
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.watch.cluster_lister import list_cluster
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.kube.write.elastic_writes import Resized, resize_patch
from aischeduler.kube.write.job_writes import JobWrites
from aischeduler.kube.write.resizer import Resizer
from aischeduler.model.actions import Evict, EvictionCause, ObjectRef, Warn
from aischeduler.model.elastic import MIN_INSTANCES_KEY, ElasticJob
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import gone, objects_of
from aischeduler.model.workload import Workload
from tests.build import a_pod
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.resizes import a_resize
from tests.kube.scripted_server import Script, Waits, broken, reply, serving, status, stream, until
from tests.kube.test_cluster_lister import FORBIDDEN, a_cluster, items
from tests.kube.test_elastic_decoding import BOTH, TERMS, Json, an_object, check
from tests.kube.test_elastic_watches import autoscaler, told

CLONE_SET = ElasticKind(api_version="apps.kruise.io/v1alpha1", kind="CloneSet", resource="clonesets")
SERVE = ElasticKind(api_version="example.com/v1", kind="Serve", resource="serves", ordered=True)
PATH = "/apis/apps.kruise.io/v1alpha1/clonesets"
OBJECT = "/apis/apps.kruise.io/v1alpha1/namespaces/team/clonesets/train"
RAY = "Ray's autoscaler scales it"


def resources() -> dict[str, WatchedResource[Any]]:
    return {one.kind: one for one in pod_set_resources((CLONE_SET, SERVE))}


def read(document: Json, kind: str = "CloneSet") -> ElasticJob | None:
    """Return what the engine hears of an object; None where it hears nothing."""
    found = next(iter(objects_of(resources()[kind].read(json.dumps(document).encode()), Workload)), None)
    return found.elastic if found is not None else None


def problem(spec: Any, **metadata: Any) -> str:
    found = read(an_object(spec=spec, **metadata))
    assert found is not None
    assert found.problem is not None
    assert found.problem.reason is EventReason.NOT_ELASTIC
    return found.problem.message


def test_without_configuration_nothing_more_is_watched() -> None:
    usual = [one.kind for one in pod_set_resources()]
    assert [kind for kind in resources() if kind not in usual] == ["CloneSet", "Serve"]
    assert collections_with(()) == COLLECTIONS


def test_objects_are_read_from_the_path_of_their_kind_and_are_not_needed() -> None:
    found = resources()["CloneSet"]
    assert (found.path, found.optional, found.needed) == (PATH, True, False)


def test_object_with_the_annotations_is_elastic_and_its_size_is_its_replicas() -> None:
    assert read(an_object(spec={"replicas": 4})) == ElasticJob(TERMS, 4, "7")
    assert read(an_object(spec={"replicas": 4}), "Serve") == ElasticJob(TERMS, 4, "7", ordered=True)
    assert read(an_object({}, spec={"replicas": 4})) is None


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (None, "it has no spec.replicas, by which it could be resized"),
        ({}, "it has no spec.replicas, by which it could be resized"),
        ({"replicas": None}, "it has no spec.replicas, by which it could be resized"),
        ({"replicas": "4"}, "its spec.replicas must be a whole number, not '4'"),
        ({"replicas": True}, "its spec.replicas must be a whole number, not true"),
        ({"replicas": {"worker": 4}}, "its spec.replicas must be a whole number, not a mapping"),
        ({"replicas": 4, "enableInTreeAutoscaling": True}, RAY),
        ({"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 1}]}, RAY),
        ({"rayClusterSpec": {"enableInTreeAutoscaling": True}}, RAY),
    ],
)
def test_object_whose_size_cannot_be_written_is_not_elastic_and_says_why(spec: Any, why: str) -> None:
    assert problem(spec) == why


def test_autoscaling_of_ray_that_is_off_changes_nothing() -> None:
    off = {"replicas": 4, "enableInTreeAutoscaling": False, "rayClusterSpec": {"enableInTreeAutoscaling": "true"}}
    assert read(an_object(spec=off)) == ElasticJob(TERMS, 4, "7")


def test_object_that_another_one_controls_is_not_adopted() -> None:
    owner = {"apiVersion": "x.io/v1", "kind": "Platform", "name": "p", "uid": "u-p", "controller": True}
    assert problem({"replicas": 4}, ownerReferences=[owner]) == "'Platform/p' controls it"
    copied = {**owner, "kind": "Deployment"}
    assert read(an_object(spec={"replicas": 4}, ownerReferences=[copied])) is None


def test_problem_of_the_annotations_is_named_first() -> None:
    found = read(an_object({**BOTH, MIN_INSTANCES_KEY: "0"}, spec={}))
    assert found is not None
    assert found.problem is not None
    assert found.problem.reason is EventReason.INVALID_ELASTIC


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(JSON, JSON, JSON)
def test_no_spec_raises(replicas: Any, scales: Any, of_job: Any) -> None:
    spec = {"replicas": replicas, "enableInTreeAutoscaling": scales, "rayClusterSpec": of_job}
    found = read(an_object(spec=spec))
    check(found, BOTH)
    assert found is not None
    assert found.size >= 0


def test_object_is_not_elastic_while_an_autoscaler_scales_it() -> None:
    kinds, hpa = resources(), "HorizontalPodAutoscaler"
    document = an_object(spec={"replicas": 4})
    assert told(kinds, "CloneSet", document) == [""]
    assert told(kinds, hpa, autoscaler(2, kind="CloneSet")) == ["the HorizontalPodAutoscaler 'h' scales it"]
    assert told(kinds, "CloneSet", document) == ["the HorizontalPodAutoscaler 'h' scales it"]
    assert told({one.kind: one for one in pod_set_resources()}, hpa, autoscaler(2, kind="CloneSet")) == []


async def test_engine_hears_of_an_object_while_it_is_elastic() -> None:
    world, resource = World(), resources()["CloneSet"]
    world.script.on("get", PATH, reply(200, listing(an_object({}, version=10, spec={"replicas": 4}), version=10)))
    lines = [
        line("MODIFIED", an_object(version=11, spec={"replicas": 4})),
        line("MODIFIED", an_object(version=12, spec={"replicas": 5})),
        line("MODIFIED", an_object({}, version=13, spec={"replicas": 5})),
        line("DELETED", an_object({}, version=14, spec={"replicas": 5})),
    ]
    world.script.on("watch", PATH, stream(*lines))
    async with world.running(resource) as reflector:
        await until(lambda: reflector.counts.events == len(lines))
    assert [one.elastic.size if one.elastic else 0 for one in objects_of(world.events, Workload)] == [4, 5, 0]
    assert world.events[-1] == gone(Workload, "CloneSet", "team", "w")


async def test_size_goes_by_the_merge_patch_of_a_deployment_to_the_path_of_the_kind() -> None:
    script, ends, action = Script(), list[object](), a_resize("CloneSet")
    script.on("patch", OBJECT, reply(200))
    async with serving(script) as server:
        connections = ConnectionPool(server, 4)
        resizer = Resizer(connections, Waits().timing(), broken, collections_with([CLONE_SET]))
        resizer.submit(action)
        await resizer_run(resizer, ends)
        await connections.close()
    (request,) = script.requests
    assert ends == [Resized()]
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert json.loads(resize_patch(action)) == request.json
    assert request.json["spec"] == {"replicas": 6}
    assert request.json["metadata"].keys() == {"uid", "resourceVersion", "annotations"}


async def resizer_run(resizer: Resizer, ends: list[object]) -> None:
    """Run a resizer until the first outcome."""
    task = asyncio.create_task(resizer.run(lambda _, outcome: ends.append(outcome)))
    await until(lambda: ends)
    task.cancel()
    await asyncio.wait([task])


def test_evictions_write_the_smaller_size_to_the_path_of_the_kind() -> None:
    evict = Evict(a_pod("p"), "n", "a", "a", EvictionCause.SURPLUS_TAKEN, None, "d-1", resizes=a_resize("CloneSet"))
    write = JobWrites(collections_with([CLONE_SET])).of(evict)
    assert write is not None
    assert write.request()[0] == OBJECT


def test_event_names_the_group_and_version_of_the_kind() -> None:
    warn = Warn(ObjectRef("CloneSet", "w", "u", "team"), EventReason.NOT_ELASTIC, f"{RAY}. It keeps its size.")
    sender = ReportingController("ai-scheduler", "i", collections_with([CLONE_SET]))
    _, body = event_messages.event(event_messages.warning(warn), 1, sender, "T")
    about = json.loads(body)["regarding"]
    assert (about["apiVersion"], about["kind"]) == ("apps.kruise.io/v1alpha1", "CloneSet")


async def listed(script: Script) -> tuple[list[str], tuple[str, ...]]:
    """Return the elastic workloads that commands find, and the gaps."""
    async with serving(script) as server, Client(server) as client:
        snapshot = await list_cluster(client, "https://here", 5.7, kinds=[CLONE_SET])
    return [one.kind for one in objects_of(snapshot.events, Workload) if one.elastic], snapshot.gaps


async def test_commands_list_the_kind_and_know_what_an_answer_is_worth_without_it() -> None:
    script = a_cluster()
    script.on("get", PATH, items(an_object(spec={"replicas": 4})))
    assert await listed(script) == (["CloneSet"], ())
    script = a_cluster()
    script.on("get", PATH, status(404, "NotFound", "no such path"))
    assert await listed(script) == ([], ())
    script = a_cluster()
    script.on("get", PATH, FORBIDDEN)
    found, (gap,) = await listed(script)
    assert found == []
    assert gap.endswith("list CloneSets (you cannot list it): the answer takes no CloneSet for elastic")
