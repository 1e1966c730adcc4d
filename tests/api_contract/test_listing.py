"""Lists: pages, revisions, selectors, tables."""

from urllib.parse import quote

import pytest

from tests.api_contract.world import TABLE, Call, World, revision
from tests.objects import node_object, pod_object


def a_pod_of_each_tier(world: World) -> None:
    for name, labels in (("a", {"tier": "gold"}), ("b", {"tier": "tin"}), ("c", {})):
        world.create(pod_object(name, namespace=world.namespace, labels=labels))


def test_list_has_its_kind_its_revision_and_its_objects_by_name(world: World) -> None:
    for name in ("b", "c", "a"):
        world.create(pod_object(name, namespace=world.namespace))
    answer = world.listed("Pod")
    assert (answer.status, answer.body["kind"], answer.body["apiVersion"]) == (200, "PodList", "v1")
    assert answer.names == ["a", "b", "c"]
    assert revision(answer.body) >= max(revision(item) for item in answer.items)


def test_pages_show_every_object_once_at_one_revision(world: World) -> None:
    for name in ("a", "b", "c", "d", "e"):
        world.create(pod_object(name, namespace=world.namespace))
    first = world.listed("Pod", limit="2")
    world.create(pod_object("aa", namespace=world.namespace))
    second = world.listed("Pod", limit="2", **{"continue": first.body["metadata"]["continue"]})
    third = world.listed("Pod", limit="2", **{"continue": second.body["metadata"]["continue"]})
    assert [first.names, second.names, third.names] == [["a", "b"], ["c", "d"], ["e"]]
    assert len({revision(page.body) for page in (first, second, third)}) == 1
    assert "continue" not in third.body["metadata"]


def test_page_has_the_number_of_remaining_objects(world: World) -> None:
    for name in ("a", "b", "c"):
        world.create(pod_object(name, namespace=world.namespace))
    assert world.listed("Pod", limit="1").body["metadata"]["remainingItemCount"] == 2


def test_page_of_a_selection_has_no_number_of_remaining_objects(world: World) -> None:
    a_pod_of_each_tier(world)
    page = world.listed("Pod", limit="1", labelSelector="tier")
    assert "remainingItemCount" not in page.body["metadata"]
    assert page.names == ["a"]


def test_invalid_continue_token_is_refused(world: World) -> None:
    answer = world.listed("Pod", limit="1", **{"continue": "not-a-token"})
    assert answer.status in {400, 410}


def test_list_of_the_future_is_refused_with_a_timeout(world: World) -> None:
    answer = world.listed("Pod", resourceVersion="999999999999")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "Too large resource version: 999999999999, current: " in answer.message
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.newest
def test_revision_that_is_not_a_number_is_refused(world: World) -> None:
    answer = world.listed("Pod", resourceVersion="abc")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'resourceVersion: Invalid value: "abc"' in answer.message


def test_list_not_older_than_a_revision_is_answered(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace))
    seen = pod["metadata"]["resourceVersion"]
    answer = world.listed("Pod", resourceVersion=seen, resourceVersionMatch="NotOlderThan")
    assert answer.names == ["a"]
    assert revision(answer.body) >= int(seen)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=gold", ["a"]),
        ("tier==gold", ["a"]),
        ("tier!=gold", ["b", "c"]),
        ("tier in (gold,tin)", ["a", "b"]),
        ("tier notin (gold)", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier,tier!=tin", ["a"]),
        ("tier=lead", []),
    ],
)
def test_label_selector_selects(world: World, selector: str, names: list[str]) -> None:
    a_pod_of_each_tier(world)
    assert world.names("Pod", labelSelector=selector) == names


def test_label_selector_that_cannot_be_read_is_refused(world: World) -> None:
    answer = world.listed("Pod", labelSelector="tier in gold")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "unable to parse requirement" in answer.message


def test_field_selector_selects_pods_by_node_scheduler_phase_and_name(world: World) -> None:
    node = world.named("n")
    world.create(node_object(node))
    world.create(pod_object("ours", namespace=world.namespace, scheduler_name="ai-scheduler"))
    world.create(pod_object("theirs", namespace=world.namespace, scheduler_name="other"))
    world.create(pod_object("placed", namespace=world.namespace, scheduler_name="other", node=node))
    assert world.names("Pod", fieldSelector="spec.schedulerName=ai-scheduler") == ["ours"]
    assert world.names("Pod", fieldSelector="spec.schedulerName!=ai-scheduler") == ["placed", "theirs"]
    assert world.names("Pod", fieldSelector=f"spec.nodeName={node}") == ["placed"]
    assert world.names("Pod", fieldSelector="spec.nodeName=") == ["ours", "theirs"]
    assert world.names("Pod", fieldSelector="metadata.name=theirs,status.phase=Pending") == ["theirs"]
    assert world.names("Pod", fieldSelector="status.phase=Running") == []


def test_field_selector_selects_cordoned_nodes(world: World) -> None:
    cordoned, open_one = world.named("cordoned"), world.named("open")
    for name in (cordoned, open_one):
        world.create(node_object(name, labels={"scenario": world.namespace}))
    world.patch(world.url("Node", cordoned), {"spec": {"unschedulable": True}})
    mine = f"scenario={world.namespace}"
    assert world.names("Node", labelSelector=mine, fieldSelector="spec.unschedulable=true") == [cordoned]
    assert world.names("Node", labelSelector=mine, fieldSelector="spec.unschedulable=false") == [open_one]


@pytest.mark.parametrize("kind", ["Pod", "Node", "Pool"])
def test_field_that_cannot_be_selected_is_refused(world: World, kind: str) -> None:
    answer = world.listed(kind, fieldSelector="spec.weather=fine")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "field label not supported: spec.weather" in answer.message


def test_list_of_all_namespaces_can_be_narrowed_to_one(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    url = f"/api/v1/pods?fieldSelector={quote(f'metadata.namespace={world.namespace}')}"
    assert world.send(Call("GET", url)).names == ["a"]


def test_table_of_pods_has_the_columns_that_kubectl_prints(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.send(Call("GET", world.url("Pod"), accept=TABLE))
    assert answer.body["kind"] == "Table"
    columns = [column["name"] for column in answer.body["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert [row["cells"][:4] for row in answer.body["rows"]] == [["a", "0/1", "Pending", "0"]]
