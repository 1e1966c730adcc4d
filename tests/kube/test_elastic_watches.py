"""What the engine hears of elastic workloads as they change, and as others change that say something of them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from aischeduler.model.events import Event, Seen, gone, objects_of
from aischeduler.model.workload import Workload
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until
from tests.kube.test_elastic_decoding import INDEXED, SPECS, Json, an_object, elastic, part, resources
from tests.kube.test_gang_resources import is_of


def autoscaler(version: int, target: str = "w", kind: str = "StatefulSet", name: str = "h") -> Json:
    metadata = {"name": name, "namespace": "team", "uid": "u-h", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}}}


def told(kinds: Mapping[str, Any], kind: str, document: Json) -> list[str]:
    """Return the problems of the workloads of which the engine hears by an object."""
    found = objects_of(kinds[kind].read(json.dumps(document).encode()), Workload)
    elastics = [one.elastic for one in found if one.elastic is not None]
    return [one.problem.message if one.problem is not None else "" for one in elastics]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_workload_is_not_elastic_while_an_autoscaler_scales_it(kind: str) -> None:
    kinds = resources()
    hpa, why = "HorizontalPodAutoscaler", ["the HorizontalPodAutoscaler 'h' scales it"]
    assert told(kinds, hpa, autoscaler(1, kind=kind)) == []
    assert told(kinds, kind, an_object(spec=SPECS[kind], version=2)) == why
    assert told(kinds, hpa, autoscaler(3, kind=kind)) == [], "it scales nothing else"
    end = kinds[hpa].gone_event("team", "h", "u-h")
    assert isinstance(end, Seen)
    assert isinstance(end.object, Workload)
    assert end.object.elastic == elastic(kind, resourceVersion="2")
    assert told(kinds, hpa, autoscaler(4, kind=kind)) == why
    assert told(kinds, hpa, autoscaler(5, "other", kind)) == [""]
    assert told(kinds, hpa, autoscaler(6, kind="ReplicaSet")) == []
    assert told(kinds, hpa, autoscaler(7, kind=kind)) == why
    kinds[kind].on_gone("team", "w")
    assert kinds[hpa].gone_event("team", "h", "u-h") is None


def test_autoscaler_of_a_workload_that_is_not_elastic_tells_nothing() -> None:
    kinds = resources()
    told(kinds, "StatefulSet", an_object({}, spec=SPECS["StatefulSet"]))
    assert told(kinds, "HorizontalPodAutoscaler", autoscaler(1)) == []


def test_autoscaler_that_turns_to_another_workload_changes_both() -> None:
    kinds = resources()
    hpa, why = "HorizontalPodAutoscaler", "the HorizontalPodAutoscaler 'h' scales it"
    told(kinds, "StatefulSet", an_object(spec=SPECS["StatefulSet"]))
    told(kinds, "Deployment", an_object(spec=SPECS["Deployment"]))
    assert told(kinds, hpa, autoscaler(1)) == [why]
    assert told(kinds, hpa, autoscaler(2, kind="Deployment")) == ["", why]
    assert told(kinds, hpa, autoscaler(3, kind="Deployment", name="a")) == ["the HorizontalPodAutoscaler 'a' scales it"]


def job_of_set(status: Json, *, owner: str = "JobSet", name: str = "w-p-0") -> Json:
    reference = {"kind": owner, "name": "w", "uid": "u", "controller": True}
    return an_object({}, spec=INDEXED, status=status, name=name, ownerReferences=[reference])


@pytest.mark.parametrize("completions", [4, 10])
def test_instances_of_a_job_set_that_succeeded_are_those_of_its_job(completions: int) -> None:
    kinds = resources()
    spec = {"replicatedJobs": [part("p", completions=completions), part("many", 2)]}

    def hears(kind: str, document: Json) -> list[tuple[int, int | None]]:
        found = objects_of(kinds[kind].read(json.dumps(document).encode()), Workload)
        return [(one.elastic.succeeded, one.elastic.left) for one in found if one.elastic is not None]

    def left(ended: int) -> int | None:
        return completions - ended if completions > 4 else None

    assert hears("Job", job_of_set({"succeeded": 1})) == []
    assert hears("JobSet", an_object(spec=spec)) == [(1, left(1))]
    assert hears("Job", job_of_set({"succeeded": 1, "ready": 3})) == [], "nothing else has ended"
    assert hears("Job", job_of_set({"succeeded": 2, "failedIndexes": "3"})) == [(2, left(3))]
    assert hears("JobSet", an_object(spec=spec, version=8)) == [(2, left(3))]
    assert hears("Job", job_of_set({"ready": 4})) == [(0, left(0))], "it was made again"
    assert hears("Job", job_of_set({"succeeded": 1}, owner="CronJob")) == []
    assert hears("Job", job_of_set({"succeeded": 1}, name="w-many-0")) == [(0, left(0))]
    hears("Job", job_of_set({"succeeded": 1}))
    kinds["Job"].on_gone("team", "w-p-0")
    assert hears("JobSet", an_object(spec=spec, version=9)) == [(0, left(0))]
    kinds["JobSet"].on_gone("team", "w")
    assert hears("Job", job_of_set({"succeeded": 1})) == []


async def test_engine_hears_of_a_job_set_when_a_pod_of_its_job_succeeds() -> None:
    world, kinds = World(), resources()
    jobs, job_sets = kinds["Job"], kinds["JobSet"]
    world.script.on("get", job_sets.path, reply(200, listing(an_object(spec=SPECS["JobSet"]), version=10)))
    world.script.on("get", jobs.path, reply(200, listing(version=10)))
    named = {"name": "w-w-0", "ownerReferences": [{"kind": "JobSet", "name": "w", "controller": True}]}
    first, second = (an_object({}, version=11 + n, spec=INDEXED, status={"succeeded": n}, **named) for n in (0, 1))
    world.script.on("watch", jobs.path, stream(line("ADDED", first), line("MODIFIED", second)))
    async with world.running(job_sets), world.running(jobs):
        await until(lambda: len(objects_of(world.events, Workload)) == 3)
    found = [one.elastic.succeeded for one in objects_of(world.events, Workload) if one.elastic is not None]
    assert found == [0, 1]


async def test_engine_hears_of_a_deployment_while_it_is_elastic_and_once_when_it_no_longer_is() -> None:
    world, resource = World(), resources()["Deployment"]
    spec = SPECS["Deployment"]
    world.script.on("get", resource.path, reply(200, listing(an_object({}, version=10, spec=spec), version=10)))
    lines = [
        line("MODIFIED", an_object(version=11, spec=spec)),
        line("MODIFIED", an_object(version=12, spec=spec)),
        line("MODIFIED", an_object({}, version=13, spec=spec)),
        line("MODIFIED", an_object({}, version=14, spec=spec)),
        line("DELETED", an_object({}, version=15, spec=spec)),
    ]
    world.script.on("watch", resource.path, stream(*lines))
    async with world.running(resource) as reflector:
        await until(lambda: reflector.counts.events == len(lines))
    events: list[Event] = [event for event in world.events if is_of(event, Workload)]
    versions = [one.elastic.version if one.elastic else "" for one in objects_of(events, Workload)]
    assert versions == ["11", "12", ""]
    assert events[-1] == gone(Workload, "Deployment", "team", "w")
