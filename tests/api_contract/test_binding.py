"""The Binding: one write that sets a pod's node and annotations, and its refusals."""

import pytest

from tests.api_contract.world import STRATEGIC_PATCH, Answer, Json, World, condition
from tests.objects import binding_object, node_object, pod_object

RUNNING = {"status": {"phase": "Running"}}


def a_waiting_pod(world: World, **arguments: object) -> Json:
    return world.create(pod_object("p", namespace=world.namespace, **arguments))  # type: ignore[arg-type]


def a_node(world: World, name: str = "n") -> str:
    node = world.named(name)
    world.create(node_object(node))
    return node


def refused(answer: Answer) -> str:
    """Return the sentence after the preamble of a 409 about a Binding."""
    assert (answer.status, answer.reason) == (409, "Conflict"), answer
    preamble = 'Operation cannot be fulfilled on pods/binding "p": '
    assert answer.message.startswith(preamble)
    return answer.message.removeprefix(preamble)


def test_binding_writes_the_node_and_the_condition(world: World) -> None:
    pod, node = a_waiting_pod(world), a_node(world)
    answer = world.bind(binding_object("p", node, uid=pod["metadata"]["uid"]))
    assert (answer.status, answer.body["kind"], answer.body["status"]) == (201, "Status", "Success")
    bound = world.get("Pod", "p")
    assert bound["spec"]["nodeName"] == node
    assert condition(bound, "PodScheduled")["status"] == "True"
    assert bound["status"]["phase"] == "Pending"


def test_second_binding_to_the_same_node_is_refused_and_names_the_node(world: World) -> None:
    a_waiting_pod(world)
    node = a_node(world)
    world.bind(binding_object("p", node))
    assert refused(world.bind(binding_object("p", node))) == f'pod p is already assigned to node "{node}"'


def test_second_binding_to_another_node_is_refused_and_names_the_first(world: World) -> None:
    a_waiting_pod(world)
    first, second = a_node(world, "first"), a_node(world, "second")
    world.bind(binding_object("p", first))
    assert refused(world.bind(binding_object("p", second))) == f'pod p is already assigned to node "{first}"'
    assert world.get("Pod", "p")["spec"]["nodeName"] == first


def test_binding_for_an_older_pod_of_the_name_is_refused(world: World) -> None:
    node = a_node(world)
    old = a_waiting_pod(world)["metadata"]["uid"]
    world.delete("Pod", "p")
    new = a_waiting_pod(world)["metadata"]["uid"]
    answer = world.bind(binding_object("p", node, uid=old))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: {old}, UID in object meta: {new}" in answer.message
    assert "nodeName" not in world.get("Pod", "p")["spec"]


def test_binding_of_a_deleted_pod_finds_nothing(world: World) -> None:
    uid = a_waiting_pod(world)["metadata"]["uid"]
    world.delete("Pod", "p")
    answer = world.bind(binding_object("p", a_node(world), uid=uid))
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'pods "p" not found')


def test_binding_of_a_terminating_pod_is_refused(world: World) -> None:
    a_waiting_pod(world)
    world.patch(world.url("Pod", "p"), {"metadata": {"finalizers": ["example.com/held"]}})
    world.delete("Pod", "p")
    why = refused(world.bind(binding_object("p", a_node(world))))
    assert why == "pod p is being deleted, cannot be assigned to a host"


def test_binding_of_a_gated_pod_is_refused_until_the_gate_is_gone(world: World) -> None:
    a_waiting_pod(world, gates=["example.com/wait"])
    node = a_node(world)
    assert refused(world.bind(binding_object("p", node))) == "pod p has non-empty .spec.schedulingGates"
    world.patch(world.url("Pod", "p"), {"spec": {"schedulingGates": None}})
    assert world.bind(binding_object("p", node)).status == 201


def test_binding_to_a_node_that_does_not_exist_is_accepted(world: World) -> None:
    a_waiting_pod(world)
    assert world.bind(binding_object("p", world.named("ghost"))).status == 201
    assert world.get("Pod", "p")["spec"]["nodeName"] == world.named("ghost")


def test_annotations_of_the_binding_override_those_of_the_pod(world: World) -> None:
    a_waiting_pod(world, annotations={"owner": "team-a", "mark": "forged"}, labels={"tier": "gold"})
    marks = {"mark": "true", "decision": "7"}
    world.bind(binding_object("p", a_node(world), annotations=marks))
    bound = world.get("Pod", "p")
    assert bound["metadata"]["annotations"] == {"owner": "team-a", "mark": "true", "decision": "7"}
    assert bound["metadata"]["labels"] == {"tier": "gold"}


@pytest.mark.newest
def test_labels_in_the_binding_are_written_too(world: World) -> None:
    a_waiting_pod(world, labels={"tier": "gold", "zone": "forged"})
    world.bind(binding_object("p", a_node(world), labels={"zone": "east"}))
    assert world.get("Pod", "p")["metadata"]["labels"] == {"tier": "gold", "zone": "east"}


def test_refused_binding_writes_no_annotation(world: World) -> None:
    a_waiting_pod(world, gates=["example.com/wait"])
    world.bind(binding_object("p", a_node(world), annotations={"mark": "true"}))
    assert "annotations" not in world.get("Pod", "p")["metadata"]


@pytest.mark.newest
def test_nomination_ends_with_the_binding(world: World) -> None:
    a_waiting_pod(world)
    node = a_node(world)
    world.patch(world.url("Pod", "p", "status"), {"status": {"nominatedNodeName": node}})
    world.bind(binding_object("p", node))
    assert "nominatedNodeName" not in world.get("Pod", "p")["status"]


def test_binding_sets_the_condition_to_true(world: World) -> None:
    a_waiting_pod(world)
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    world.patch(world.url("Pod", "p", "status"), {"status": {"conditions": [waiting]}}, STRATEGIC_PATCH)
    world.bind(binding_object("p", a_node(world)))
    scheduled = condition(world.get("Pod", "p"), "PodScheduled")
    assert (scheduled["status"], scheduled.get("reason", ""), scheduled.get("message", "")) == ("True", "", "")


def test_binding_of_another_name_than_its_path_is_refused(world: World) -> None:
    a_waiting_pod(world)
    answer = world.post(world.url("Pod", "p", "binding"), binding_object("q", a_node(world)))
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_binding_without_a_target_is_refused_and_changes_nothing(world: World) -> None:
    a_waiting_pod(world)
    answer = world.bind(binding_object("p", ""))
    assert answer.status in {400, 422, 500}
    assert "target.name: Required value" in answer.message
    assert "nodeName" not in world.get("Pod", "p")["spec"]


def test_bound_pod_can_be_changed_by_other_clients(world: World) -> None:
    a_waiting_pod(world)
    world.bind(binding_object("p", a_node(world)))
    world.patch(world.url("Pod", "p", "status"), RUNNING)
    assert world.get("Pod", "p")["status"]["phase"] == "Running"
