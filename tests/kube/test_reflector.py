import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from aischeduler.kube.http.client import LineSplitter
from aischeduler.kube.watch import reflector as module
from aischeduler.kube.watch import watched_resources
from tests.kube.api_objects import bookmark, line, listing, node, pod, pool, trouble
from tests.kube.reflector_world import World, told
from tests.kube.scripted_server import Answer, reply, settled, status, stream, until

PODS = "/api/v1/pods"
GROUPS = reply(200, {"kind": "APIGroupList", "groups": []})


async def test_list_then_watch_emits_everything_once() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a", version=5), pod("b", version=7), version=10)))
    world.script.on("watch", PODS, stream(line("ADDED", pod("c", version=11)), line("DELETED", pod("a", version=12))))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "+b:uid-b", "+c:uid-c", "-uid-a")
        assert reflector.synced.is_set()
        assert len(reflector) == 2
    watch = world.script.asked("watch")[0].query
    assert watch["resourceVersion"] == "10"
    assert watch["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch["timeoutSeconds"]) <= 600
    assert watch["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize("kind", [watched_resources.budgets, watched_resources.namespaces, watched_resources.pools])
async def test_watch_of_a_rarely_changed_resource_ends_before_it_counts_as_silent(kind: Any) -> None:
    world = World()
    resource = kind()
    world.script.on("get", resource.path, reply(200, listing(version=10)))
    world.script.on("watch", resource.path, stream())
    async with world.running(resource):
        await until(lambda: world.script.asked("watch"))
    assert 30 <= int(world.script.asked("watch")[0].query["timeoutSeconds"]) < module.WATCH_IDLE_SECONDS_MAX


async def test_reflector_is_synced_after_the_last_page() -> None:
    world = World()
    world.script.on(
        "get", PODS, reply(200, listing(pod("a"), rest="next&1")), reply(200, listing(pod("b"), version=100))
    )
    async with world.running() as reflector:
        await reflector.synced.wait()
        assert world.told == ["+a:uid-a", "+b:uid-b"]
    first, second = world.script.asked("get")
    assert first.query["limit"] == "500"
    assert second.query["continue"] == "next&1"


async def test_410_on_a_page_starts_the_list_again() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"), rest="x")), status(410, "Expired"))
    world.script.on("get", PODS, reply(200, listing(pod("b", version=50), version=120)))
    async with world.running() as reflector:
        await reflector.synced.wait()
        assert world.told == ["+a:uid-a", "+b:uid-b", "-uid-a"]
    assert "continue" not in world.script.asked("get")[2].query


async def test_410_in_the_stream_relists_and_finds_what_was_deleted_meanwhile() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"), pod("b"))), reply(200, listing(pod("a"), version=200)))
    world.script.on("watch", PODS, stream(trouble(410, "Expired", "too old resource version")))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "+b:uid-b", "-uid-b")
        assert reflector.counts.found_gone == 1
    assert world.waits.seconds == [pytest.approx(1.2)]
    assert world.script.asked("get")[1].query.get("resourceVersion") is None


async def test_410_as_an_answer_to_the_watch_relists() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))), reply(200, listing(version=200)))
    world.script.on("watch", PODS, status(410, "Expired"))
    async with world.running():
        await told(world, "+a:uid-a", "-uid-a")


async def test_relist_emits_only_what_changed() -> None:
    world = World()
    changed = pod("b", version=150, spec={"nodeName": "n1"})
    world.script.on("get", PODS, reply(200, listing(pod("a"), pod("b"))))
    world.script.on("get", PODS, reply(200, listing(pod("a"), changed, version=200)))
    world.script.on("watch", PODS, stream(trouble(410, "Expired")))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b", "+b:uid-b@n1")


async def test_recreated_name_is_gone_and_new() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    world.script.on("get", PODS, reply(200, listing(pod("a", uid="second", version=150), version=200)))
    world.script.on("watch", PODS, stream(trouble(410, "Expired")))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "-uid-a", "+a:second")
        assert reflector.counts.recreated == 1


async def test_recreated_name_in_the_stream_is_gone_and_new() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    world.script.on("watch", PODS, stream(line("MODIFIED", pod("a", uid="second", version=101))))
    async with world.running():
        await told(world, "+a:uid-a", "-uid-a", "+a:second")


async def test_duplicate_and_old_events_are_dropped() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    bound = line("MODIFIED", pod("a", version=102, spec={"nodeName": "n1"}))
    old = line("MODIFIED", pod("a", version=101))
    world.script.on("watch", PODS, stream(bound, bound, old, line("ADDED", pod("z", version=103))))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "+a:uid-a@n1", "+z:uid-z")
        assert reflector.counts.old_events == 1


async def test_old_event_does_not_bring_a_deleted_object_back() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    dead = [line("DELETED", pod("a", version=105)), line("MODIFIED", pod("a", version=104))]
    world.script.on("watch", PODS, stream(*dead, line("ADDED", pod("z", version=106))))
    async with world.running():
        await told(world, "+a:uid-a", "-uid-a", "+z:uid-z")


async def test_clean_end_in_the_middle_of_a_line_resumes_at_the_last_version() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    whole, broken = line("ADDED", pod("a", version=101)), line("ADDED", pod("b", version=102))
    world.script.on("watch", PODS, stream(whole, broken[:50], end="clean"), stream(broken))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "+b:uid-b")
        assert reflector.counts.unreadable_lines == 0
    assert [r.query["resourceVersion"] for r in world.script.asked("watch")] == ["100", "101"]
    assert world.waits.seconds == []


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_cut_in_the_middle_of_a_line_resumes_at_the_last_version(end: str) -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    whole, broken = line("ADDED", pod("a", version=101)), line("ADDED", pod("b", version=102))
    world.script.on("watch", PODS, stream(whole, broken[:50], end=end), stream(broken))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b")
    assert world.script.asked("watch")[1].query["resourceVersion"] == "101"
    assert len(world.script.asked("get")) == 1


async def test_line_of_more_than_a_megabyte_is_read() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    huge = line("ADDED", pod("a", version=101, metadata={"annotations": {"notes": "x" * 1_400_000}}))
    pieces = [huge[i : i + 60_000] for i in range(0, len(huge), 60_000)]
    world.script.on("watch", PODS, stream(*pieces, line("ADDED", pod("b", version=102))))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b")


async def test_line_that_is_too_long_fails_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LineSplitter", lambda: LineSplitter(limit_bytes=1000))
    world = World()
    world.script.on("get", PODS, reply(200, listing()), reply(200, listing(version=300)))
    world.script.on("watch", PODS, stream(b"{" * 2000))
    async with world.running():
        await until(lambda: len(world.script.asked("get")) == 2)
    assert "longer than 1000 bytes" in str(world.failures[0])


async def test_undecodable_line_is_counted_and_the_list_read_again() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))), reply(200, listing(pod("b", version=150), version=200)))
    world.script.on("watch", PODS, stream(b'{"type":"MODIFIED","object":{"metadata":{"name":"\xff\xfe\n'))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "+b:uid-b", "-uid-a")
        assert reflector.counts.unreadable_lines == 1
    assert len(world.waits.seconds) == 1


async def test_undecodable_object_is_reported_and_the_stream_goes_on() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    broken = line("MODIFIED", pod("a", version=101, spec={"containers": "none"}))
    world.script.on("watch", PODS, stream(broken, line("ADDED", pod("b", version=102)), end="clean"))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b")
        await until(lambda: len(world.script.asked("watch")) == 2)
    assert [(found.kind, found.name, found.uid) for found in world.unreadable] == [("Pod", "a", "uid-a")]
    assert "containers" in world.unreadable[0].message
    assert world.failures == []


async def test_undecodable_object_in_a_list_affects_no_other_and_does_not_count_as_gone() -> None:
    world = World()
    broken = pod("a", version=150, spec={"containers": "none"})
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    world.script.on("get", PODS, reply(200, listing(broken, pod("b", version=150), version=200)))
    world.script.on("watch", PODS, stream(trouble(410, "Expired")))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b")
        await settled()
    assert world.told == ["+a:uid-a", "+b:uid-b"]
    assert len(world.unreadable) == 1


async def test_in_stream_500_backs_off_and_watches_on_from_the_same_version() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on("watch", PODS, stream(trouble(500, "InternalError")), stream(line("ADDED", pod("a", version=101))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert [r.query["resourceVersion"] for r in world.script.asked("watch")] == ["100", "100"]
    assert len(world.script.asked("get")) == 1
    assert world.waits.seconds == [pytest.approx(1.2)]


async def test_three_failed_watches_in_a_row_lead_to_a_list() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()), reply(200, listing(pod("a"), version=200)))
    world.script.on("watch", PODS, status(504, "Timeout"), status(504, "Timeout"), status(500))
    async with world.running():
        await told(world, "+a:uid-a")
    assert world.waits.seconds == [pytest.approx(s) for s in (1.2, 2.4, 4.8)]


async def test_watch_that_ends_at_once_and_empty_backs_off() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on("watch", PODS, stream(end="clean"), stream(line("ADDED", pod("a", version=101))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert "ended at once" in str(world.failures[0])
    assert len(world.waits.seconds) == 1


async def test_retry_after_is_obeyed() -> None:
    world = World()
    world.script.on(
        "get", PODS, status(429, "TooManyRequests", headers={"Retry-After": "7"}), reply(200, listing(pod("a")))
    )
    async with world.running():
        await told(world, "+a:uid-a")
    assert world.waits.seconds == [7.0]


async def test_silence_ends_a_half_open_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_IDLE_SECONDS_MAX", 0.05)
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on("watch", PODS, stream(bookmark(150)), stream(line("ADDED", pod("a", version=151))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert world.script.asked("watch")[1].query["resourceVersion"] == "150"


async def test_bookmarks_advance_the_version_to_resume_from() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on("watch", PODS, stream(bookmark(150), end="clean"))
    async with world.running():
        await until(lambda: len(world.script.asked("watch")) == 2)
    assert world.script.asked("watch")[1].query["resourceVersion"] == "150"
    assert world.events == []


async def test_unknown_event_types_are_ignored_and_counted() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing()))
    world.script.on(
        "watch", PODS, stream(line("SURPRISE", pod("x", version=101)), line("ADDED", pod("a", version=102)))
    )
    async with world.running() as reflector:
        await told(world, "+a:uid-a")
        assert reflector.counts.unknown_events == 1


async def test_list_of_a_server_that_lags_behind_is_refused() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"), version=300)))
    world.script.on("get", PODS, reply(200, listing(version=250)), reply(200, listing(version=310)))
    world.script.on("watch", PODS, stream(trouble(410, "Expired")))
    async with world.running() as reflector:
        await told(world, "+a:uid-a", "-uid-a")
        assert reflector.counts.older_lists == 1
    assert len(world.script.asked("get")) == 3


async def test_versions_that_stay_behind_are_a_restored_backup() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a", version=290), pod("b"), version=300)))
    restored = reply(200, listing(pod("a", version=20, spec={"nodeName": "n9"}), version=25))
    world.script.always["get", PODS] = lambda _: restored
    world.script.on("watch", PODS, stream(trouble(410, "Expired")))
    async with world.running():
        await told(world, "+a:uid-a", "+b:uid-b", "+a:uid-a@n9", "-uid-b")


async def test_object_from_a_get_wins_over_older_watch_events() -> None:
    world = World()
    world.script.on("get", PODS, reply(200, listing(pod("a"))))
    release = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await stream(line("MODIFIED", pod("a", version=101)), line("ADDED", pod("z", version=130)))(writer)

    world.script.on("watch", PODS, late)
    async with world.running() as reflector:
        await told(world, "+a:uid-a")
        reflector.observe(json.dumps(pod("a", version=120, spec={"nodeName": "n1"})).encode())
        release.set()
        await told(world, "+a:uid-a", "+a:uid-a@n1", "+z:uid-z")


async def test_missing_pool_resource_is_no_pools_until_it_is_defined() -> None:
    path = "/apis/resource.aibee.cn/v1alpha1/pools"
    world = World()
    world.script.on("get", path, status(404, "NotFound"), reply(200, listing(pool("cpu"))))
    world.script.on("get", "/apis", GROUPS)
    async with world.running(watched_resources.pools()) as reflector:
        await reflector.synced.wait()
        await told(world, "+cpu")
    assert world.waits.seconds == [5.0]


async def test_removed_pool_resource_deletes_all_pools() -> None:
    path = "/apis/resource.aibee.cn/v1alpha1/pools"
    world = World()
    world.script.on("get", path, reply(200, listing(pool("cpu"))))
    world.script.on("get", "/apis", GROUPS)
    world.script.on("watch", path, stream(trouble(410, "Expired")))
    async with world.running(watched_resources.pools()):
        await told(world, "+cpu", "-cpu")


@pytest.mark.parametrize("groups", [reply(404, b"default backend - 404"), reply(200, b"<html>")])
async def test_404_of_a_proxy_does_not_delete_pools(groups: Answer) -> None:
    path = "/apis/resource.aibee.cn/v1alpha1/pools"
    world = World()
    world.script.on("get", path, reply(200, listing(pool("cpu"))), reply(404, b"default backend - 404"))
    world.script.on("get", "/apis", groups)
    world.script.on("get", path, reply(200, listing(pool("cpu"), version=200)))
    world.script.on("watch", path, stream(trouble(410, "Expired")), stream(line("ADDED", pool("gpu", version=201))))
    async with world.running(watched_resources.pools()):
        await told(world, "+cpu", "+gpu")


async def test_nodes_are_listed_without_a_selector() -> None:
    world = World()
    world.script.on("get", "/api/v1/nodes", reply(200, listing(node("n1"))))
    async with world.running(watched_resources.nodes()):
        await told(world, "+n1")
    assert "fieldSelector" not in world.script.asked("get")[0].query


async def test_unreachable_server_is_tried_again_with_growing_waits() -> None:
    world = World()
    cut: Callable[..., Any] = stream(end="reset")
    world.script.on("get", PODS, cut, cut, cut, reply(200, listing(pod("a"))))
    async with world.running():
        await told(world, "+a:uid-a")
    assert world.waits.seconds == [pytest.approx(s) for s in (1.2, 2.4, 4.8)]
