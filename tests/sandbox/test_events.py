from typing import Any

from tests.sandbox.cluster import Cluster

NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
OLD = "/api/v1/namespaces/default/events"


def an_event(name: str) -> Any:
    return {
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p1", "uid": "u1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "no room",
        "reportingController": "ai-scheduler",
        "reportingInstance": "a-1",
    }


def test_both_apis_show_one_event_in_their_own_words() -> None:
    cluster = Cluster()
    cluster.ok("POST", NEW, an_event("e1"))
    old = cluster.ok("GET", f"{OLD}/e1")
    assert (old["apiVersion"], old["message"], old["involvedObject"]["name"]) == ("v1", "no room", "p1")
    assert old["reportingComponent"] == "ai-scheduler"
    old["metadata"] = {"name": "e2"}
    cluster.ok("POST", OLD, old)
    new = cluster.ok("GET", f"{NEW}/e2")
    assert (new["note"], new["regarding"]["name"]) == ("no room", "p1")


def test_each_api_selects_by_its_own_field_names() -> None:
    cluster = Cluster()
    cluster.ok("POST", NEW, an_event("e1"))
    assert cluster.names(f"{OLD}?fieldSelector=involvedObject.name%3Dp1,involvedObject.kind%3DPod") == ["e1"]
    assert cluster.names(f"{NEW}?fieldSelector=regarding.name%3Dp1,reportingController%3Dai-scheduler") == ["e1"]
    assert cluster.refused("GET", f"{OLD}?fieldSelector=regarding.name%3Dp1")["code"] == 400


def test_watch_of_the_older_api_shows_older_words() -> None:
    cluster = Cluster()
    watch = cluster.watch(f"{OLD}?watch=1&resourceVersion=1")
    cluster.ok("POST", NEW, an_event("e1"))
    [(kind, event)] = cluster.events(watch)
    assert (kind, event["apiVersion"], event["message"]) == ("ADDED", "v1", "no room")


def test_series_is_patched_in_the_older_words_too() -> None:
    cluster = Cluster()
    cluster.ok("POST", NEW, an_event("e1"))
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    patched = cluster.ok("PATCH", f"{OLD}/e1", series, "application/merge-patch+json")
    assert (patched["series"]["count"], patched["message"]) == (2, "no room")
    assert cluster.ok("GET", f"{NEW}/e1")["note"] == "no room"
