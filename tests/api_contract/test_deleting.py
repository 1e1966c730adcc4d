"""Deleting: grace, preconditions, finalizers."""

import pytest

from tests.api_contract.victims import a_victim
from tests.api_contract.world import Call, World
from tests.objects import pod_object


def test_pod_without_a_node_is_deleted_at_once(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    world.delete("Pod", "a")
    assert world.try_get("Pod", "a").status == 404


@pytest.mark.newest
def test_pod_that_is_deleted_at_once_is_shown_as_terminating_first(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    watch = world.watch("Pod", resourceVersion=world.listed("Pod").body["metadata"]["resourceVersion"])
    answer = world.delete("Pod", "a")
    going, gone = watch.until("MODIFIED", "a"), watch.until("DELETED", "a")
    for shown in (answer, going, gone):
        assert "deletionTimestamp" in shown["metadata"]
        assert (shown["metadata"]["deletionGracePeriodSeconds"], shown["metadata"]["generation"]) == (0, 2)


def test_pod_on_a_node_has_its_grace_period(world: World) -> None:
    a_victim(world, "a")
    answer = world.delete("Pod", "a")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" in world.get("Pod", "a")["metadata"]


def test_later_delete_may_shorten_the_grace_and_not_lengthen_it(world: World) -> None:
    a_victim(world, "a")
    graces = [
        world.delete("Pod", "a", {"gracePeriodSeconds": grace})["metadata"]["deletionGracePeriodSeconds"]
        for grace in (20, 10, 60)
    ]
    assert graces == [20, 10, 10]


def test_delete_without_grace_ends_a_running_pod_at_once(world: World) -> None:
    a_victim(world, "a")
    world.delete("Pod", "a", {"gracePeriodSeconds": 0})
    assert world.try_get("Pod", "a").status == 404


def test_delete_of_a_revision_that_is_gone_is_a_conflict(world: World) -> None:
    stale = world.create(pod_object("a", namespace=world.namespace))["metadata"]["resourceVersion"]
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    answer = world.try_delete("Pod", "a", {"preconditions": {"resourceVersion": stale}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert f"the ResourceVersion in the precondition ({stale}) does not match" in answer.message


def test_delete_of_a_missing_object_is_not_found(world: World) -> None:
    answer = world.try_delete("Pod", "a")
    assert (answer.status, answer.message) == (404, 'pods "a" not found')


def test_finalizer_keeps_an_object_until_it_is_removed(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    world.patch(world.url("Pod", "a"), {"metadata": {"finalizers": ["example.com/held"]}})
    world.delete("Pod", "a")
    assert "deletionTimestamp" in world.get("Pod", "a")["metadata"]
    world.patch(world.url("Pod", "a"), {"metadata": {"finalizers": None}})
    assert world.try_get("Pod", "a").status == 404


def test_terminating_namespace_deletes_its_objects_and_accepts_no_new_ones(world: World) -> None:
    name = world.named("doomed")
    world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    pods = f"/api/v1/namespaces/{name}/pods"
    document = pod_object("a", namespace=name)
    document["metadata"]["finalizers"] = ["example.com/held"]
    assert world.post(pods, document).status == 201
    world.delete("Namespace", name)
    late = world.post(pods, pod_object("b", namespace=name))
    assert (late.status, late.reason) == (403, "Forbidden")
    assert f"unable to create new content in namespace {name} because it is being terminated" in late.message
    world.until(lambda: "deletionTimestamp" in world.send(Call("GET", f"{pods}/a")).body["metadata"])
    world.patch(f"{pods}/a", {"metadata": {"finalizers": None}})
    world.until(lambda: world.try_get("Namespace", name).status == 404)
