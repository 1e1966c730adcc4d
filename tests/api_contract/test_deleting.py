"""Deleting and evicting: grace, preconditions, finalizers, disruption budgets."""

import pytest

from tests.api_contract.world import STRATEGIC_PATCH, Call, Json, World, condition
from tests.objects import binding_object, eviction_object, node_object, pdb_object, pod_object

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def a_running_pod(world: World, name: str, **labels: str) -> Json:
    """Create a pod on a node, ready as a kubelet reports it."""
    node = world.named(f"node-of-{name}")
    world.create(node_object(node))
    world.create(pod_object(name, namespace=world.namespace, labels=labels))
    assert world.bind(binding_object(name, node)).status == 201
    return world.patch(world.url("Pod", name, "status"), {"status": READY}, STRATEGIC_PATCH)


def a_budget(world: World, *, min_available: int, allowed: int, **labels: str) -> None:
    """Create a budget whose status says how many pods may be evicted now."""
    world.create(pdb_object("budget", namespace=world.namespace, min_available=min_available, labels=labels))

    def observed() -> bool:
        status = world.get("PodDisruptionBudget", "budget").get("status", {})
        return (status.get("observedGeneration"), status.get("disruptionsAllowed")) == (1, allowed)

    world.until(observed)


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
    a_running_pod(world, "a")
    answer = world.delete("Pod", "a")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "deletionTimestamp" in world.get("Pod", "a")["metadata"]


def test_later_delete_may_shorten_the_grace_and_not_lengthen_it(world: World) -> None:
    a_running_pod(world, "a")
    graces = [
        world.delete("Pod", "a", {"gracePeriodSeconds": grace})["metadata"]["deletionGracePeriodSeconds"]
        for grace in (20, 10, 60)
    ]
    assert graces == [20, 10, 10]


def test_delete_without_grace_ends_a_running_pod_at_once(world: World) -> None:
    a_running_pod(world, "a")
    world.delete("Pod", "a", {"gracePeriodSeconds": 0})
    assert world.try_get("Pod", "a").status == 404


def test_delete_of_another_pod_of_the_name_is_a_conflict(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.try_delete("Pod", "a", {"preconditions": {"uid": "another"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message.startswith('Operation cannot be fulfilled on Pod "a": ')
    assert "the UID in the precondition (another) does not match the UID in record (" in answer.message
    assert world.try_get("Pod", "a").status == 200


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


def test_evicted_pod_is_deleted_and_has_a_condition(world: World) -> None:
    a_running_pod(world, "a")
    answer = world.evict(eviction_object("a", namespace=world.namespace))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    pod = world.get("Pod", "a")
    assert "deletionTimestamp" in pod["metadata"]
    target = condition(pod, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


def test_eviction_of_a_waiting_pod_needs_no_budget(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"app": "a"}))
    a_budget(world, min_available=1, allowed=0, app="a")
    assert world.evict(eviction_object("a", namespace=world.namespace)).status == 201
    assert world.try_get("Pod", "a").status == 404


def test_eviction_beyond_the_budget_is_refused_and_names_the_budget(world: World) -> None:
    a_running_pod(world, "a", app="a")
    a_budget(world, min_available=1, allowed=0, app="a")
    answer = world.evict(eviction_object("a", namespace=world.namespace))
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget budget needs 1 healthy pods and has 1 currently"
    assert "deletionTimestamp" not in world.get("Pod", "a")["metadata"]


def test_budget_is_used_up_by_the_first_eviction(world: World) -> None:
    for name in ("a", "b"):
        a_running_pod(world, name, app="a")
    a_budget(world, min_available=1, allowed=1, app="a")
    answers = [world.evict(eviction_object(name, namespace=world.namespace)).status for name in ("a", "b")]
    assert answers == [201, 429]


def test_eviction_of_a_missing_pod_is_not_found(world: World) -> None:
    answer = world.evict(eviction_object("a", namespace=world.namespace))
    assert (answer.status, answer.message) == (404, 'pods "a" not found')


def test_eviction_of_an_older_pod_of_the_name_is_a_conflict(world: World) -> None:
    a_running_pod(world, "a")
    eviction = eviction_object("a", namespace=world.namespace)
    eviction["deleteOptions"] = {"preconditions": {"uid": "another"}}
    assert world.evict(eviction).status == 409
    assert "deletionTimestamp" not in world.get("Pod", "a")["metadata"]
