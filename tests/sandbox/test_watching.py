from aischeduler.sandbox.apiserver import Options
from tests.sandbox.cluster import PODS, Cluster


def test_watch_from_a_revision_shows_what_came_after_it() -> None:
    cluster = Cluster()
    first = cluster.add_pod("p1")
    cluster.add_pod("p2")
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={first['metadata']['resourceVersion']}")
    assert [(kind, pod["metadata"]["name"]) for kind, pod in cluster.events(watch)] == [("ADDED", "p2")]
    assert cluster.events(watch) == []


def test_watch_without_a_revision_begins_with_what_is_there() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    watch = cluster.watch(f"{PODS}?watch=1")
    cluster.add_pod("p2")
    assert [pod["metadata"]["name"] for _, pod in cluster.events(watch)] == ["p1", "p2"]


def test_selector_turns_a_change_of_labels_into_added_and_deleted() -> None:
    cluster = Cluster()
    cluster.add_pod("p1", {"color": "red"})
    watch = cluster.watch(f"{PODS}?watch=1&labelSelector=color%3Dblue")
    for color in ("blue", "blue2"):
        cluster.ok("PATCH", f"{PODS}/p1", {"metadata": {"labels": {"color": color}}}, "application/merge-patch+json")
    seen = cluster.events(watch)
    colors = [(kind, pod["metadata"]["labels"]["color"]) for kind, pod in seen]
    assert colors == [("ADDED", "blue"), ("DELETED", "blue")], "a lost object is shown as it was last selected"
    assert seen[1][1]["metadata"]["resourceVersion"] == str(cluster.server.cluster.store.revision)


def test_watch_list_ends_its_first_part_with_an_annotated_bookmark() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    seen = cluster.events(cluster.watch(f"{PODS}?{query}"))
    assert [kind for kind, _ in seen] == ["ADDED", "BOOKMARK"]
    assert seen[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert seen[1][1]["metadata"]["resourceVersion"] == str(cluster.server.cluster.store.revision)


def test_bookmark_comes_every_minute_with_the_latest_revision() -> None:
    cluster = Cluster()
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1&allowWatchBookmarks=true")
    cluster.add_node("n1")
    assert watch.next_time == cluster.now + 60
    cluster.now += 60
    [(kind, bookmark)] = cluster.events(watch)
    assert (kind, bookmark["metadata"]["resourceVersion"]) == ("BOOKMARK", str(cluster.server.cluster.store.revision))


def test_watch_ends_after_its_timeout() -> None:
    cluster = Cluster()
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1&timeoutSeconds=5")
    cluster.now += 5
    assert cluster.events(watch) == []
    assert watch.closed


def test_restart_ends_watches_and_answers_410_below_the_new_start() -> None:
    cluster = Cluster()
    old = cluster.add_pod("p1")["metadata"]["resourceVersion"]
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={old}")
    cluster.add_pod("p2")
    cluster.server.restart()
    assert watch.closed
    again = cluster.watch(f"{PODS}?watch=1&resourceVersion={old}")
    [(kind, status)] = cluster.events(again)
    current = cluster.server.cluster.store.revision
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == f"too old resource version: {old} ({current})"
    assert again.closed
    assert cluster.names(PODS) == ["p1", "p2"]
    assert not cluster.watch(f"{PODS}?watch=1&resourceVersion={current}").closed


def test_watch_that_history_has_run_past_is_closed() -> None:
    cluster = Cluster(Options(history_events=4))
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1")
    for number in range(10):
        cluster.add_pod(f"p{number}")
    assert cluster.events(watch) == []
    assert watch.closed


def test_on_ready_is_called_for_each_write() -> None:
    cluster = Cluster()
    calls: list[str] = []
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1")
    watch.on_ready = lambda: calls.append("ready")
    cluster.add_pod("p1")
    assert calls == ["ready"]
