"""Events: written in one API group, read in two."""

from tests.api_contract.world import Call, Json, World
from tests.objects import event_object, pod_object

NOTE = "0/3 nodes are available: 3 Insufficient cpu."


def an_event(world: World, name: str = "a.1", note: str = NOTE) -> Json:
    pod = world.create(pod_object("a", namespace=world.namespace))
    return event_object(name, namespace=world.namespace, regarding=pod, reason="FailedScheduling", note=note)


def core_events(world: World, selector: str = "") -> list[Json]:
    query = f"?fieldSelector={selector}" if selector else ""
    answer = world.send(Call("GET", f"/api/v1/namespaces/{world.namespace}/events{query}"))
    assert answer.status == 200, answer
    return answer.items


def test_event_is_shown_in_the_core_group_with_its_field_names(world: World) -> None:
    written = world.create(an_event(world))
    (shown,) = core_events(world)
    assert (shown["reason"], shown["message"], shown["type"]) == ("FailedScheduling", NOTE, "Warning")
    assert (shown["reportingComponent"], shown["reportingInstance"]) == ("ai-scheduler", "ai-scheduler-0")
    assert shown["involvedObject"]["name"] == "a"
    assert shown["involvedObject"]["uid"] == written["regarding"]["uid"]
    assert shown["metadata"]["uid"] == written["metadata"]["uid"]


def test_event_keeps_its_microseconds(world: World) -> None:
    assert world.create(an_event(world))["eventTime"] == "2026-01-02T03:04:05.678901Z"


def test_events_are_selected_by_their_object(world: World) -> None:
    world.create(an_event(world))
    assert len(core_events(world, "involvedObject.name%3Da")) == 1
    assert core_events(world, "involvedObject.name%3Db") == []
    assert len(core_events(world, "reason%3DFailedScheduling,type%3DWarning")) == 1
    assert world.names("Event", fieldSelector="regarding.name=a") == ["a.1"]


def test_event_of_a_series_is_counted_by_a_patch(world: World) -> None:
    world.create(an_event(world))
    series = {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000001Z"}
    patched = world.patch(world.url("Event", "a.1"), {"series": series})
    assert patched["series"] == series


def test_event_without_a_time_is_refused(world: World) -> None:
    document = an_event(world)
    del document["eventTime"]
    answer = world.try_create(document)
    assert (answer.status, answer.reason, answer.cause_fields) == (422, "Invalid", ["eventTime"])
    assert answer.message.startswith('Event "a.1" is invalid: ')


def test_event_with_a_longer_note_than_1024_bytes_is_refused(world: World) -> None:
    answer = world.try_create(an_event(world, note="x" * 1025))
    assert (answer.status, answer.cause_fields) == (422, ["message"])
