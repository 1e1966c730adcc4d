"""Writes that a policy or a webhook refuses, or does not answer, on a real API server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api_contract.world import condition
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, create_pools, wait_for_event, wait_until
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.e2e.refusals import create_policy, delete_policy, rules
from tests.e2e.webhook import TIMEOUT_SECONDS, Verdict, judging, refusal
from tests.objects import Json, node_object, pod_object, pool_object

BINDINGS = [("CREATE", "pods/binding")]
FAR_FROM_RETRY_AFTER_SECONDS = 10.0
"""Well below what the webhook asks to wait, and below its timeout."""


@contextmanager
def refusing(plane: ControlPlane, namespace: str, reason: str) -> Iterator[None]:
    """Have a policy refuse all Bindings of a namespace; wait until it does."""
    create_policy(plane, "rest", BINDINGS, "this namespace rests", reason, namespace=namespace, administrators=True)
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}, "target": target}
    path = f"/api/v1/namespaces/{namespace}/pods/probe/binding"
    try:
        wait_until(lambda: "this namespace rests" in str(plane.api("POST", path, body).body), "the policy in force")
        yield
    finally:
        delete_policy(plane, "rest")


def reasons(plane: ControlPlane, namespace: str, pod: str) -> list[str]:
    """Return the texts of the pod's Events FailedScheduling, as often as they were written."""
    found = plane.api("GET", f"/api/v1/namespaces/{namespace}/events").body["items"]
    return [
        one["message"]
        for one in found
        if one["reason"] == "FailedScheduling" and one["involvedObject"]["name"] == pod
        for _ in range(max(1, one.get("count") or 1))
    ]


def judged(plane: ControlPlane, namespace: str) -> None:
    """Have the webhook judge this namespace."""
    labels = {"metadata": {"labels": {"judged": "yes"}}}
    assert plane.api("PATCH", f"/api/v1/namespaces/{namespace}", labels).status == 200


@pytest.mark.parametrize("reason", ["Invalid", "Forbidden"])
def test_pod_whose_binding_a_policy_refuses_is_told_once_and_bound_when_the_policy_is_gone(
    control_plane: ControlPlane, daemon: Daemon, history: History, namespace: str, reason: str
) -> None:
    create_nodes(control_plane, [node_object("n1", cpu="4"), node_object("n2", cpu="4")])
    daemon.start()
    with refusing(control_plane, namespace, reason):
        create_pods(control_plane, namespace, [pod_object("p", namespace=namespace)])
        history.wait_until(lambda: daemon.log.count("bind refused") >= 3, "a third try")
        history.wait_until(lambda: bool(reasons(control_plane, namespace, "p")), "an event")
        (told,) = reasons(control_plane, namespace, "p")
        assert told.startswith("binding to node n")
        assert "this namespace rests" in told
        pod = control_plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/p").body
        assert "this namespace rests" in condition(pod, "PodScheduled")["message"]
    history.wait_for_bound(namespace, 1)


def test_pods_whose_bindings_a_webhook_refuses_with_any_status_are_told_once_and_bound_when_it_admits_them(
    control_plane: ControlPlane, daemon: Daemon, history: History, namespace: str, tmp_path: Path
) -> None:
    codes, refuses = (400, 404, 409, 422, 500, 503), threading.Event()
    refuses.set()

    def judge(request: Json) -> Verdict:
        if not refuses.is_set():
            return None
        return refusal(int(request["name"][1:]), "the webhook does not like it")

    create_nodes(control_plane, [node_object("n1", cpu="8")])
    judged(control_plane, namespace)
    daemon.start()
    with judging(control_plane, tmp_path, rules(BINDINGS), judge):
        time.sleep(2.0)  # until the API server calls it
        create_pods(control_plane, namespace, [pod_object(f"p{code}", namespace=namespace) for code in codes])
        history.wait_until(lambda: daemon.log.count("bind refused") >= 3 * len(codes), "third tries")
        for name in (f"p{code}" for code in codes):
            wait_for_event(control_plane, history, namespace, "FailedScheduling", name)
            (told,) = reasons(control_plane, namespace, name)
            assert "the webhook does not like it" in told
        refuses.clear()
        history.wait_for_bound(namespace, len(codes))


@pytest.mark.parametrize("answers", [True, False], ids=["retry-after", "no-answer"])
def test_namespace_whose_webhook_asks_to_wait_or_does_not_answer_delays_no_other_pool(
    control_plane: ControlPlane, daemon: Daemon, history: History, namespace: str, tmp_path: Path, *, answers: bool
) -> None:
    begun, ends = threading.Event(), threading.Event()

    def judge(request: Json) -> Verdict:
        if request["name"] == "quiet":
            return None
        begun.set()
        if not answers:
            ends.wait(TIMEOUT_SECONDS)
        return refusal(429, "later", 20)

    create_pools(control_plane, pool_object("loud", labels={"p": "l"}), pool_object("quiet", labels={"p": "q"}))
    loud = [node_object(f"l{number}", cpu="64", labels={"p": "l"}) for number in range(5)]
    create_nodes(control_plane, [*loud, node_object("q", cpu="4", labels={"p": "q"})])
    judged(control_plane, namespace)
    daemon.start()
    with judging(control_plane, tmp_path, rules(BINDINGS), judge):
        time.sleep(2.0)  # until the API server calls it
        count = 3 if answers else 300
        stuck = [pod_object(f"p{number}", namespace=namespace, pool="loud", memory="1Mi") for number in range(count)]
        create_pods(control_plane, namespace, stuck)
        assert begun.wait(30)
        time.sleep(1.0)
        began = time.monotonic()
        create_pods(control_plane, namespace, [pod_object("quiet", namespace=namespace, pool="quiet")])
        history.wait_for_bound(namespace, 1)
        assert time.monotonic() - began < FAR_FROM_RETRY_AFTER_SECONDS / 2
        ends.set()


def test_pod_whose_binding_is_refused_while_its_room_is_taken_stays(
    control_plane: ControlPlane, daemon: Daemon, history: History, namespace: str, tmp_path: Path
) -> None:
    begun, ends = threading.Event(), threading.Event()

    def judge(request: Json) -> Verdict:
        if request["name"] != "low":
            return None
        begun.set()
        ends.wait(TIMEOUT_SECONDS)
        return refusal(403, "not now")

    create_nodes(control_plane, [node_object("n1", cpu="4")])
    judged(control_plane, namespace)
    daemon.start()
    with judging(control_plane, tmp_path, rules(BINDINGS), judge):
        time.sleep(2.0)  # until the API server calls it
        create_pods(control_plane, namespace, [pod_object("low", namespace=namespace, cpu="4")])
        assert begun.wait(30)
        high = pod_object("high", namespace=namespace, cpu="4", priority_class="system-cluster-critical")
        create_pods(control_plane, namespace, [high])
        history.wait_until(lambda: daemon.log.count("evict") >= 1, "a victim")
        time.sleep(1.0)
        ends.set()
        history.wait_for_bound(namespace, 1)
    pods = {name: control_plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}") for name in ("low", "high")}
    assert pods["high"].body["spec"]["nodeName"] == "n1"
    assert pods["low"].status == 200, "it waits"
    assert "deletionTimestamp" not in pods["low"].body["metadata"]
    assert condition(pods["low"].body, "DisruptionTarget") == {}
