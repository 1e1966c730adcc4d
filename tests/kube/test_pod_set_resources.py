"""Services and controllers as they are watched, and the controller of a pod as it is decoded."""

from typing import Any

import pytest

from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.model.events import Gone, Seen, gone
from aischeduler.model.pod_set import PodSet
from aischeduler.model.selectors import LabelSelector, Operator, Requirement, label_selector
from aischeduler.model.workload import Workload
from tests.kube import api_objects
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until
from tests.kube.test_decode import decode_pod
from tests.kube.test_gang_resources import is_of

RESOURCES = {resource.kind: resource for resource in pod_set_resources()}
WEB = label_selector("spec.selector", {"app": "web"}, ())


def an_object(selector: Any, *, version: int = 1) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "team", "uid": "u", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"selector": selector, "replicas": 3, "template": {"spec": {}}}}


async def heard(kind: str, *selectors: Any) -> list[Any]:
    """Return what the engine hears of an object whose selector changes, and that is deleted then."""
    world, path = World(), RESOURCES[kind].path
    first, *others = (an_object(selector, version=10 + number) for number, selector in enumerate(selectors))
    world.script.on("get", path, reply(200, listing(first, version=10)))
    changes = [line("MODIFIED", other) for other in others]
    world.script.on("watch", path, stream(*changes, line("DELETED", an_object(None, version=99))))
    async with world.running(RESOURCES[kind]):
        await until(lambda: any(isinstance(event, Gone) and event.kind == "PodSet" for event in world.events))
    return [event for event in world.events if not is_of(event, Workload)]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Service", "/api/v1/services"),
        ("ReplicationController", "/api/v1/replicationcontrollers"),
        ("ReplicaSet", "/apis/apps/v1/replicasets"),
        ("StatefulSet", "/apis/apps/v1/statefulsets"),
    ],
)
async def test_selector_is_observed_once_as_it_changes(kind: str, path: str) -> None:
    by_labels = kind in ("Service", "ReplicationController")
    selector = {"app": "web"} if by_labels else {"matchLabels": {"app": "web"}}
    assert RESOURCES[kind].path == path
    broken = {"app": 7} if by_labels else {"matchLabels": {"app": 7}}
    assert await heard(kind, selector, selector, None, broken) == [
        Seen(PodSet(kind, "team", "web", WEB)),
        Seen(PodSet(kind, "team", "web", None)),
        gone(PodSet, kind, "team", "web"),
    ]


async def test_expressions_of_a_replica_set_are_read() -> None:
    expression = {"key": "app", "operator": "In", "values": ["web", "old"]}
    (seen, _) = await heard("ReplicaSet", {"matchExpressions": [expression]})
    assert seen.object.selector == LabelSelector((Requirement("app", Operator.IN, ("web", "old")),))


async def test_selector_that_the_api_server_would_refuse_selects_nothing() -> None:
    (seen, _) = await heard("Service", {"-": "x"})
    assert seen.object.selector is None


def test_scheduler_decides_without_them() -> None:
    assert [(resource.needed, resource.optional) for resource in RESOURCES.values()] == [(False, True)] * 7


@pytest.mark.parametrize(
    ("api_version", "kind", "controller", "expected"),
    [
        ("apps/v1", "ReplicaSet", True, "ReplicaSet/web"),
        ("apps/v1", "StatefulSet", True, "StatefulSet/web"),
        ("v1", "ReplicationController", True, "ReplicationController/web"),
        ("apps/v1", "ReplicaSet", False, ""),
        ("apps/v1", "DaemonSet", True, ""),
        ("extensions/v1beta1", "ReplicaSet", True, ""),
    ],
)
def test_controller_of_a_pod_is_read_where_its_pods_are_spread_by_default(
    api_version: str, kind: str, controller: bool, expected: str
) -> None:
    pod = api_objects.pod(spec={})
    owner = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "u", "controller": controller}
    pod["metadata"]["ownerReferences"] = [{**owner, "kind": "Job", "controller": None}, owner]
    assert decode_pod(pod).controller == expected
