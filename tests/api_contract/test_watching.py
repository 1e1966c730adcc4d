"""Watches: their first events, their content, and their end."""

from tests.api_contract.world import World, revision
from tests.objects import binding_object, node_object, pod_object


def test_watch_shows_a_pod_created_changed_and_deleted(world: World) -> None:
    watch = world.watch("Pod", resourceVersion=world.listed("Pod").body["metadata"]["resourceVersion"])
    world.create(pod_object("a", namespace=world.namespace))
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    world.delete("Pod", "a")
    added, modified, deleted = watch.until("ADDED", "a"), watch.until("MODIFIED", "a"), watch.until("DELETED", "a")
    assert modified["metadata"]["labels"] == {"tier": "gold"}
    assert deleted["metadata"]["labels"] == {"tier": "gold"}
    assert revision(added) < revision(modified) < revision(deleted)


def test_watch_from_a_list_misses_nothing_and_repeats_nothing(world: World) -> None:
    world.create(pod_object("before", namespace=world.namespace))
    listed = world.listed("Pod").body["metadata"]["resourceVersion"]
    world.create(pod_object("between", namespace=world.namespace))
    watch = world.watch("Pod", resourceVersion=listed)
    world.create(pod_object("after", namespace=world.namespace))
    watch.until("ADDED", "after")
    assert [event["object"]["metadata"]["name"] for event in watch.events] == ["between", "after"]


def test_watch_from_the_revision_of_an_event_continues_after_it(world: World) -> None:
    listed = world.listed("Pod").body["metadata"]["resourceVersion"]
    first = world.create(pod_object("first", namespace=world.namespace))
    world.create(pod_object("second", namespace=world.namespace))
    whole = world.watch("Pod", resourceVersion=listed)
    whole.until("ADDED", "second")
    rest = world.watch("Pod", resourceVersion=first["metadata"]["resourceVersion"])
    rest.until("ADDED", "second")
    assert len(whole.events) == 2
    assert len(rest.events) == 1


def test_watch_without_a_revision_begins_with_the_existing_objects(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    watch = world.watch("Pod")
    watch.until("ADDED", "a")
    world.create(pod_object("b", namespace=world.namespace))
    watch.until("ADDED", "b")
    assert watch.kinds_of("a") == ["ADDED"]


def test_bookmark_before_the_end_has_a_revision_after_events_outside_of_the_selection(world: World) -> None:
    listed = world.listed("Pod").body["metadata"]["resourceVersion"]
    terms = {"labelSelector": "tier=gold", "allowWatchBookmarks": "true", "timeoutSeconds": "6"}
    watch = world.watch("Pod", resourceVersion=listed, **terms)
    other = world.create(pod_object("a", namespace=world.namespace, labels={"tier": "tin"}))
    bookmark = watch.until("BOOKMARK")
    assert (bookmark["kind"], bookmark["apiVersion"]) == ("Pod", "v1")
    assert revision(bookmark) >= revision(other)
    assert "name" not in bookmark["metadata"]
    watch.until_end()
    assert {event["type"] for event in watch.events} == {"BOOKMARK"}


def test_watch_ends_when_its_time_is_over(world: World) -> None:
    listed = world.listed("Pod").body["metadata"]["resourceVersion"]
    watch = world.watch("Pod", resourceVersion=listed, timeoutSeconds="1")
    watch.until_end()
    assert watch.events == []


def test_pod_that_leaves_the_selection_is_shown_as_deleted_and_as_added_when_it_comes_back(world: World) -> None:
    watch = world.watch("Pod", labelSelector="tier=gold")
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "tin"}}})
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "lead"}}})
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    watch.until("ADDED", "a")
    watch.until("DELETED", "a")
    watch.until("ADDED", "a")
    assert watch.kinds_of("a") == ["ADDED", "DELETED", "ADDED"]


def test_bound_pod_leaves_the_watch_of_pods_without_a_node(world: World) -> None:
    node = world.named("n")
    world.create(node_object(node))
    watch = world.watch("Pod", fieldSelector="spec.nodeName=")
    world.create(pod_object("a", namespace=world.namespace))
    assert world.bind(binding_object("a", node)).status == 201
    assert watch.until("DELETED", "a")["metadata"]["name"] == "a"


def test_watch_of_one_object_shows_no_other(world: World) -> None:
    watch = world.watch("Pod", fieldSelector="metadata.name=b")
    for name in ("a", "b"):
        world.create(pod_object(name, namespace=world.namespace))
    watch.until("ADDED", "b")
    assert len(watch.events) == 1


def test_write_that_changes_nothing_shows_no_event(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    watch = world.watch("Pod", resourceVersion=world.listed("Pod").body["metadata"]["resourceVersion"])
    world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}})
    world.create(pod_object("b", namespace=world.namespace))
    watch.until("ADDED", "b")
    assert watch.kinds_of("a") == []


def test_restart_ends_every_watch(world: World) -> None:
    watch = world.watch("Pod")
    world.create(pod_object("a", namespace=world.namespace))
    watch.until("ADDED", "a")
    world.restart()
    watch.until_end()


def test_watch_resumed_after_a_restart_gets_410(world: World) -> None:
    seen = world.create(pod_object("a", namespace=world.namespace))["metadata"]["resourceVersion"]
    for name in ("b", "c", "d"):
        world.create(pod_object(name, namespace=world.namespace))
    world.restart()
    watch = world.watch("Pod", resourceVersion=seen)
    error = watch.until("ERROR")
    assert (error["kind"], error["code"], error["reason"]) == ("Status", 410, "Expired")
    assert f"too old resource version: {seen} (" in error["message"]
    assert world.names("Pod") == ["a", "b", "c", "d"]


def test_objects_and_their_revisions_survive_a_restart(world: World) -> None:
    before = world.create(pod_object("a", namespace=world.namespace))
    world.restart()
    after = world.get("Pod", "a")
    assert (after["metadata"]["uid"], revision(after)) == (before["metadata"]["uid"], revision(before))
    assert revision(world.create(pod_object("b", namespace=world.namespace))) > revision(before)
