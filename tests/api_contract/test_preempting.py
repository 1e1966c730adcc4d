"""The requests of preemption: the victim's condition, its deletion by uid or through its budget, and the nomination."""

from datetime import datetime

import pytest

from tests.api_contract.victims import a_budget, a_victim, budget_status, evict
from tests.api_contract.world import STRATEGIC_PATCH, Answer, Json, World, condition
from tests.objects import pdb_object, pod_object

DISRUPTION_BUDGET = "DisruptionBudget"


def mark_of(pod: Json) -> Json:
    """Return a victim's condition with the present time: the disruption controller resets one that is minutes old."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "ai-scheduler: preempting to accommodate default/owner",
        "lastTransitionTime": pod["metadata"]["creationTimestamp"],
    }


def patch_status(world: World, name: str, uid: str, **status: object) -> Answer:
    """Write parts of a pod's status as a scheduler does, with the uid of the pod."""
    change = {"metadata": {"uid": uid}, "status": status}
    return world.try_patch(world.url("Pod", name, "status"), change, STRATEGIC_PATCH)


def mark(world: World, pod: Json) -> Answer:
    return patch_status(world, pod["metadata"]["name"], pod["metadata"]["uid"], conditions=[mark_of(pod)])


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def test_condition_of_a_victim_is_beside_those_of_the_kubelet(world: World) -> None:
    victim = a_victim(world)
    answer = mark(world, victim)
    assert answer.status == 200, answer
    shown = condition(answer.body, "DisruptionTarget")
    assert shown | mark_of(victim) == shown
    assert condition(answer.body, "Ready")["status"] == "True"
    assert condition(answer.body, "PodScheduled")["status"] == "True"
    assert answer.body["status"]["phase"] == "Running"


def test_condition_that_is_written_twice_exists_once(world: World) -> None:
    victim = a_victim(world)
    first, second = mark(world, victim), mark(world, victim)
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    kinds = [one["type"] for one in second.body["status"]["conditions"]]
    assert kinds.count("DisruptionTarget") == 1


def test_condition_for_an_older_pod_of_the_name_is_refused(world: World) -> None:
    victim = a_victim(world)
    answer = patch_status(world, "victim", "another", conditions=[mark_of(victim)])
    assert (answer.status, answer.reason, {*answer.cause_fields}) == (422, "Invalid", {"metadata.uid"})
    assert "field is immutable" in answer.message
    assert condition(world.get("Pod", "victim"), "DisruptionTarget") == {}


def test_condition_of_a_pod_that_is_gone_is_not_found(world: World) -> None:
    victim = a_victim(world, grace_seconds=0)
    world.delete("Pod", "victim")
    answer = mark(world, victim)
    assert (answer.status, answer.message) == (404, 'pods "victim" not found')


def test_terminating_pod_can_get_the_condition(world: World) -> None:
    victim = a_victim(world)
    world.delete("Pod", "victim")
    answer = mark(world, victim)
    assert answer.status == 200
    assert "deletionTimestamp" in answer.body["metadata"]


def test_victim_keeps_its_condition_until_it_is_gone(world: World) -> None:
    victim = a_victim(world)
    uid = victim["metadata"]["uid"]
    watch = world.watch("Pod", resourceVersion=world.listed("Pod").body["metadata"]["resourceVersion"])
    mark(world, victim)
    world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    world.delete("Pod", "victim", {"preconditions": {"uid": uid}, "gracePeriodSeconds": 0})
    marked, going, gone = watch.until("MODIFIED"), watch.until("MODIFIED"), watch.until("DELETED")
    assert "deletionTimestamp" not in marked["metadata"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    for shown in (marked, going, gone):
        assert condition(shown, "DisruptionTarget")["reason"] == "PreemptionByScheduler"


@pytest.mark.parametrize("grace_seconds", [5, 600])
def test_victim_is_gone_after_its_own_grace_period(world: World, grace_seconds: int) -> None:
    pod = a_victim(world, grace_seconds=grace_seconds)
    before = world.patch(world.url("Pod", "victim", "status"), {"status": {"message": "now"}})
    answer = world.delete("Pod", "victim", {"preconditions": {"uid": pod["metadata"]["uid"]}})["metadata"]
    assert answer["deletionGracePeriodSeconds"] == grace_seconds
    assert answer["uid"] == before["metadata"]["uid"]
    lives = seconds_between(pod["metadata"]["creationTimestamp"], answer["deletionTimestamp"])
    assert grace_seconds <= lives <= grace_seconds + 20


def test_victim_without_a_grace_period_is_gone_at_once(world: World) -> None:
    uid = a_victim(world, grace_seconds=0)["metadata"]["uid"]
    world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    assert world.try_get("Pod", "victim").status == 404


def test_victim_that_has_ended_is_gone_at_once(world: World) -> None:
    uid = a_victim(world)["metadata"]["uid"]
    patch_status(world, "victim", uid, phase="Succeeded")
    world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    assert world.try_get("Pod", "victim").status == 404


def test_second_delete_of_a_terminating_victim_changes_nothing(world: World) -> None:
    uid = a_victim(world)["metadata"]["uid"]
    first = world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    second = world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_delete_of_an_older_pod_of_the_name_does_not_delete_the_new_one(world: World) -> None:
    old = world.create(pod_object("victim", namespace=world.namespace))["metadata"]["uid"]
    world.delete("Pod", "victim")
    new = a_victim(world)["metadata"]["uid"]
    answer = world.try_delete("Pod", "victim", {"preconditions": {"uid": old}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message.startswith('Operation cannot be fulfilled on Pod "victim": ')
    assert f"the UID in the precondition ({old}) does not match the UID in record ({new})" in answer.message
    assert answer.body["details"] == {"name": "victim", "kind": "Pod"}
    assert "deletionTimestamp" not in world.get("Pod", "victim")["metadata"]


def test_nomination_is_written_read_and_cleared(world: World) -> None:
    uid = world.create(pod_object("owner", namespace=world.namespace))["metadata"]["uid"]
    node = world.named("node")
    assert patch_status(world, "owner", uid, nominatedNodeName=node).body["status"]["nominatedNodeName"] == node
    assert world.names("Pod", fieldSelector=f"status.nominatedNodeName={node}") == ["owner"]
    assert "nominatedNodeName" not in patch_status(world, "owner", uid, nominatedNodeName=None).body["status"]
    assert world.names("Pod", fieldSelector=f"status.nominatedNodeName={node}") == []


def test_nomination_of_an_older_pod_of_the_name_is_refused(world: World) -> None:
    world.create(pod_object("owner", namespace=world.namespace))
    answer = patch_status(world, "owner", "another", nominatedNodeName="n")
    assert (answer.status, answer.reason, {*answer.cause_fields}) == (422, "Invalid", {"metadata.uid"})
    assert "nominatedNodeName" not in world.get("Pod", "owner")["status"]


def test_eviction_counts_in_the_budget_at_once(world: World) -> None:
    for name in ("a", "b", "c"):
        a_victim(world, name, app="a")
    a_budget(
        world,
        min_available=1,
        allowed=2,
    )
    watch = world.watch(
        "PodDisruptionBudget",
        resourceVersion=world.listed("PodDisruptionBudget").body["metadata"]["resourceVersion"],
    )
    assert evict(world, "a").status == 201
    spent = watch.until("MODIFIED", "budget")["status"]
    assert (spent["disruptionsAllowed"], list(spent["disruptedPods"])) == (1, ["a"])


def test_budget_removes_a_disrupted_pod_when_it_is_terminating(world: World) -> None:
    for name in ("a", "b"):
        a_victim(world, name, app="a")
    a_budget(world, min_available=1, allowed=1)
    evict(world, "a")
    world.until(lambda: "disruptedPods" not in budget_status(world))
    status = budget_status(world)
    assert (status["disruptionsAllowed"], status["currentHealthy"]) == (0, 1)
    assert (status["desiredHealthy"], status["expectedPods"]) == (1, 2)
    assert (condition({"status": status}, "DisruptionAllowed")["status"]) == "False"


def test_budget_grows_again_when_the_victim_is_replaced(world: World) -> None:
    for name in ("a", "b"):
        a_victim(world, name, app="a")
    a_budget(world, min_available=1, allowed=1)
    evict(world, "a")
    world.delete("Pod", "a", {"gracePeriodSeconds": 0})
    a_victim(world, "c", app="a")
    world.until(lambda: budget_status(world).get("disruptionsAllowed") == 1)
    assert evict(world, "b").status == 201


def test_delete_ignores_budgets(world: World) -> None:
    uid = a_victim(world, app="a")["metadata"]["uid"]
    a_budget(world, min_available=1, allowed=0)
    world.delete("Pod", "victim", {"preconditions": {"uid": uid}})
    assert "deletionTimestamp" in world.get("Pod", "victim")["metadata"]


def test_refused_eviction_writes_no_condition_and_asks_for_no_wait(world: World) -> None:
    uid = a_victim(world, app="a")["metadata"]["uid"]
    a_budget(world, min_available=1, allowed=0)
    answer = evict(world, "victim", uid)
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    why = "The disruption budget budget needs 1 healthy pods and has 1 currently"
    assert answer.body["details"] == {"causes": [{"reason": DISRUPTION_BUDGET, "message": why}]}
    assert answer.retry_after_seconds == 0
    assert condition(world.get("Pod", "victim"), "DisruptionTarget") == {}
    assert "deletionTimestamp" not in world.get("Pod", "victim")["metadata"]


def test_eviction_with_the_right_uid_is_accepted(world: World) -> None:
    uid = a_victim(world)["metadata"]["uid"]
    assert evict(world, "victim", uid).status == 201
    assert world.get("Pod", "victim")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_eviction_of_a_terminating_pod_is_accepted_whatever_the_budget(world: World) -> None:
    a_victim(world, app="a")
    a_budget(world, min_available=1, allowed=0)
    world.delete("Pod", "victim")
    assert evict(world, "victim").status == 201


def test_eviction_of_an_unready_pod_is_allowed_only_where_the_budget_is_met(world: World) -> None:
    a_victim(world, "sick", app="a")
    not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.patch(world.url("Pod", "sick", "status"), {"status": not_ready}, STRATEGIC_PATCH)
    a_budget(world, min_available=1, allowed=0)
    assert evict(world, "sick").status == 429
    a_victim(world, "well", app="a")
    world.until(lambda: budget_status(world).get("currentHealthy") == 1)
    assert evict(world, "sick").status == 201


def test_eviction_of_an_unready_pod_is_allowed_with_always_allow(world: World) -> None:
    a_victim(world, "sick", app="a")
    not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}
    world.patch(world.url("Pod", "sick", "status"), {"status": not_ready}, STRATEGIC_PATCH)
    a_budget(world, min_available=1, allowed=0, unhealthyPodEvictionPolicy="AlwaysAllow")
    assert evict(world, "sick").status == 201


def test_pod_of_two_budgets_cannot_be_evicted(world: World) -> None:
    a_victim(world, app="a")
    a_budget(world, min_available=0, allowed=1)
    world.create(pdb_object("other", namespace=world.namespace, min_available=0, labels={"app": "a"}))
    answer = evict(world, "victim")
    assert answer.status == 500
    assert answer.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


def test_budget_that_selects_nothing_refuses_no_eviction(world: World) -> None:
    a_victim(world, app="b")
    a_budget(world, min_available=1, allowed=0)
    assert evict(world, "victim").status == 201


def test_evicted_pod_is_deleted_and_has_a_condition(world: World) -> None:
    a_victim(world, "a")
    answer = evict(world, "a")
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    pod = world.get("Pod", "a")
    assert "deletionTimestamp" in pod["metadata"]
    target = condition(pod, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


def test_eviction_of_a_waiting_pod_needs_no_budget(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"app": "a"}))
    a_budget(world, min_available=1, allowed=0)
    assert evict(world, "a").status == 201
    assert world.try_get("Pod", "a").status == 404


def test_budget_is_used_up_by_the_first_eviction(world: World) -> None:
    for name in ("a", "b"):
        a_victim(world, name, app="a")
    a_budget(world, min_available=1, allowed=1)
    answers = [evict(world, name).status for name in ("a", "b")]
    assert answers == [201, 429]


def test_eviction_of_a_missing_pod_is_not_found(world: World) -> None:
    answer = evict(world, "a")
    assert (answer.status, answer.message) == (404, 'pods "a" not found')


def test_eviction_of_an_older_pod_of_the_name_is_a_conflict(world: World) -> None:
    a_victim(world, "a")
    assert evict(world, "a", "another").status == 409
    assert "deletionTimestamp" not in world.get("Pod", "a")["metadata"]
