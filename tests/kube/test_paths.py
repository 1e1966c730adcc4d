"""Whatever text a name is, it stays one segment of one path of one request."""

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aischeduler.kube.access.server import Server
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import UnreachableError
from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.kube.report import event_messages, gang_writes, pool_writes, queue_writes
from aischeduler.kube.watch.pre_eviction_reads import selector_text
from aischeduler.kube.write import pod_writes
from aischeduler.kube.write.eviction_writes import Eviction
from aischeduler.kube.write.volume_writes import write_path
from aischeduler.model.actions import Bind, Evict, EvictionCause, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.gang import Gang, GangKey, GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import SelectorError, label_requirement, label_selector
from aischeduler.model.volumes import VolumeChoice
from aischeduler.operator.cluster import owner_path
from tests.build import a_pod
from tests.kube.scripted_server import Script, reply, serving

OURS: Final = "resource.aibee.cn/v1alpha1"
SERVER: Final = Server("127.0.0.1", 1, lambda: 0.0)
REQUEST_LINE: Final = re.compile(rb"(GET|POST) /[\x21-\x7e]* HTTP/1\.1")
HOSTILE: Final = (
    "..",
    ".",
    "/",
    "%2e%2e",
    "a/../b",
    "a?watch=1",
    "a#b",
    "a b",
    "\r\nX: y",
    "\x00",
    "%s{0}{}",
    "\u2028",
)
NAME: Final = st.text(min_size=1)

PathOf = Callable[[str, str], str]
"""Returns the path of an object with this namespace and name."""


def _pod(namespace: str, name: str) -> Pod:
    return a_pod(name, uid="u", namespace=namespace)


def _bind(namespace: str, name: str) -> Bind:
    return Bind(_pod(namespace, name), "n", "cpu", "cpu", "d", 1)


def _eviction(namespace: str, name: str, *, honour_budgets: bool) -> str:
    action = Evict(_pod(namespace, name), "n", "cpu", "cpu", EvictionCause.PREEMPTED, None, "d")
    return Eviction(action, "ai-scheduler", honour_budgets=honour_budgets).request("now").path


def _event(namespace: str, name: str) -> str:
    message = event_messages.warning(Warn(ObjectRef("Pod", name, "u", namespace), EventReason.UNREADABLE, name))
    controller = event_messages.ReportingController("ai-scheduler", "i")
    return event_messages.event(message, 1, controller, "2026-01-02T03:04:05Z")[0].decode()


def _pod_group(namespace: str, name: str) -> str:
    paths = gang_writes.object_paths(Gang(GangKey(GangSource.VOLCANO, namespace, name), 1))
    return gang_writes.status_paths(paths[0], GangSource.VOLCANO)[0]


PATHS: Final[dict[str, PathOf]] = {
    "object": lambda namespace, name: object_path("v1", "pods", name, namespace, "status"),
    "collection": lambda namespace, _: collection_path("apps/v1", "replicasets", namespace),
    "pod": lambda namespace, name: pod_writes.pod_path(_pod(namespace, name)),
    "Binding": lambda namespace, name: pod_writes.binding(_bind(namespace, name))[0].decode(),
    "condition": lambda namespace, name: pod_writes.waiting_condition(_pod(namespace, name), "m", "s")[0].decode(),
    "nomination": lambda namespace, name: pod_writes.nomination(_pod(namespace, name), "n")[0].decode(),
    "eviction": lambda namespace, name: _eviction(namespace, name, honour_budgets=True),
    "mark of a victim": lambda namespace, name: _eviction(namespace, name, honour_budgets=False),
    "Pool": lambda _, name: pool_writes.pool_path(name, "status"),
    "Queue": lambda _, name: queue_writes.queue_path(name, "status"),
    "Event": _event,
    "PodGroup": _pod_group,
    "claim": lambda namespace, name: write_path(VolumeChoice((namespace, name), "u", "", "n")),
    "volume": lambda _, name: write_path(VolumeChoice(("ns", "claim"), "u", name, "n")),
    "BatchProcess": lambda namespace, name: owner_path(OURS, "BatchProcess", namespace, name),
    "TrainingJob": lambda namespace, name: owner_path(OURS, "TrainingJob", namespace, name),
}


def request(path: str) -> bytes:
    return ConnectionPool(SERVER, 1)._request(None, b"GET", path.encode(), b"", b"")


def is_one_request(sent: bytes) -> bool:
    first, *headers = sent.split(b"\r\n")
    names = [line.partition(b":")[0] for line in headers if line]
    return REQUEST_LINE.fullmatch(first) is not None and names == [
        b"Host",
        b"User-Agent",
        b"Accept",
        b"Accept-Encoding",
    ]


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_name_is_one_segment_of_one_request(kind: str, text: str) -> None:
    check_path(PATHS[kind], text, text)


@given(st.sampled_from(sorted(PATHS)), NAME, NAME)
def test_any_name_is_one_segment_of_one_request(kind: str, namespace: str, name: str) -> None:
    check_path(PATHS[kind], namespace, name)


def check_path(path_of: PathOf, namespace: str, name: str) -> None:
    plain, path = path_of("ns", "name").split("/"), path_of(namespace, name).split("/")
    assert len(path) == len(plain)
    for expected, found in zip(plain, path, strict=True):
        wanted = {"ns": namespace, "name": name}.get(expected, expected)
        assert unquote(found) == wanted
        assert found not in (".", "..")
    assert is_one_request(request("/".join(path)))


@given(st.text())
@example("/api HTTP/1.1\r\nX: y\r\n\r\n")
def test_path_that_is_not_quoted_is_not_sent(path: str) -> None:
    try:
        sent = request(f"/{path}")
    except ValueError:
        assert not (path.isascii() and path.isprintable() and " " not in path)
    else:
        assert is_one_request(sent)


@given(st.text(), st.text())
def test_text_in_a_query_stays_one_value(selector: str, token: str) -> None:
    sent: list[bytes] = []

    class Recorded(ConnectionPool):
        async def send(self, method: bytes, path: bytes, *_: Any, **__: Any) -> Any:
            sent.append(self._request(None, method, path, b"", b""))
            raise UnreachableError("recorded")

    client = Client(SERVER)
    client.connections = Recorded(SERVER, 1)
    with pytest.raises(UnreachableError):
        client.get("/api/v1/nodes", {"labelSelector": selector, "continue": token}).send(None)
    (request,) = sent
    assert is_one_request(request)
    target = urlsplit(request.split(b" ")[1].decode())
    assert parse_qs(target.query, keep_blank_values=True) == {"labelSelector": [selector], "continue": [token]}


@given(st.text(), st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.lists(st.text(), max_size=3))
@example("a", "In", ["x),b in (y"])
@example("a in (x),b", "Exists", [])
def test_selector_that_is_accepted_has_no_text_that_ends_a_part_of_it(
    key: str, operator: str, values: list[str]
) -> None:
    try:
        selector = label_selector("f", {}, (label_requirement("f", key, operator, tuple(values)),))
    except SelectorError:
        return
    text = selector_text(selector)
    assert re.fullmatch(r"!?[\w./-]+( (in|notin) \([\w.,-]*\))?", text, re.ASCII)
    assert text.count(",") == max(len(values) - 1, 0)


def test_empty_name_has_no_path() -> None:
    with pytest.raises(ValueError, match="pods without a name have no path"):
        object_path("v1", "pods", "", "ns")


@pytest.mark.parametrize("name", ["..", "a/b", "a b", "\r\nX-Injected: 1"])
async def test_server_gets_one_request_for_a_hostile_name(name: str) -> None:
    script = Script()
    path = pool_writes.pool_path(name)
    script.always["get", path] = lambda _: reply(200, {})
    async with serving(script) as server, Client(server) as client:
        await client.get(path)
    (asked,) = script.requests
    assert asked.path == path
    assert "x-injected" not in asked.headers
