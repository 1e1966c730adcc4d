import json
from typing import Any

import pytest

from aischeduler.kube.write import pod_writes
from aischeduler.kube.write.pod_writes import BindAccepted, Throttled, Unauthenticated, Unknown, read_bind_answer
from aischeduler.model.actions import Bind
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.pod import Pod
from tests.build import a_pod, replace

BIND = Bind(a_pod("p", uid="u1"), "n1", "gpu", "cpu", "run-7", 3)
NOW = "2026-01-02T03:04:05Z"


def said(code: int, message: str, reason: str = "") -> bytes:
    document = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json.dumps(document).encode()


def conflict(text: str) -> bytes:
    return said(409, f'Operation cannot be fulfilled on pods/binding "p": {text}', "Conflict")


def test_binding_has_uid_annotations_and_node() -> None:
    path, body = pod_writes.binding(BIND)
    assert path == b"/api/v1/namespaces/default/pods/p/binding"
    assert json.loads(body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u1",
            "annotations": {
                "scheduling.resource.aibee.cn/pool": "gpu",
                "scheduling.resource.aibee.cn/home-pool": "cpu",
                "scheduling.resource.aibee.cn/borrowed": "true",
                "scheduling.resource.aibee.cn/decision": "run-7",
            },
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


def test_binding_in_the_home_pool_has_no_annotation_of_a_loan() -> None:
    _, body = pod_writes.binding(Bind(a_pod("p", uid="u1"), "n1", "cpu", "cpu", "run-7", 3))
    assert "scheduling.resource.aibee.cn/borrowed" not in json.loads(body)["metadata"]["annotations"]


@pytest.mark.parametrize("status", [200, 201, 202])
def test_success_binds(status: int) -> None:
    assert read_bind_answer(BIND, status, None, b"{}") == BindAccepted("u1", "n1")


@pytest.mark.parametrize(
    ("status", "body", "refusal"),
    [
        (403, said(403, 'pods "p" is forbidden: User "x" cannot create', "Forbidden"), BindRefusal.FORBIDDEN),
        (400, said(400, "bad", "BadRequest"), BindRefusal.INVALID),
        (422, said(422, "Binding is invalid", "Invalid"), BindRefusal.INVALID),
        (413, said(413, "too large", "RequestEntityTooLarge"), BindRefusal.INVALID),
    ],
)
def test_definite_answers_refuse(status: int, body: bytes, refusal: BindRefusal) -> None:
    answer = read_bind_answer(BIND, status, None, body)
    assert isinstance(answer, BindRefused)
    assert (answer.uid, answer.node, answer.refusal, answer.retry_after_seconds) == ("u1", "n1", refusal, 0.0)
    assert answer.message


@pytest.mark.parametrize(
    ("status", "retry_after", "seconds"),
    [(429, "7", 7.0), (429, None, 1.0), (429, "Wed, 21 Oct", 1.0), (503, "3", 3.0), (500, "2", 2.0), (408, None, 1.0)],
)
def test_overloaded_server_throttles(status: int, retry_after: str | None, seconds: float) -> None:
    assert read_bind_answer(BIND, status, retry_after, b"Too many requests, please try again later.") == Throttled(
        seconds
    )


@pytest.mark.parametrize(("retry_after", "seconds"), [("20", 20.0), (None, 1.0), ("100000", 60.0)])
def test_status_that_asks_to_wait_is_about_this_binding_alone(retry_after: str | None, seconds: float) -> None:
    body = said(429, 'admission webhook "w" denied the request: not now', "TooManyRequests")
    message = 'admission webhook "w" denied the request: not now'
    refused = BindRefused("u1", "n1", BindRefusal.UNAVAILABLE, message, seconds)
    assert read_bind_answer(BIND, 429, retry_after, body) == refused


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, said(500, "etcdserver: request timed out")),
        (503, said(503, "the API server starts")),
        (504, said(504, "Timeout: request did not complete within requested timeout")),
        (404, said(404, 'pods "p" not found', "NotFound")),
        (409, conflict('pod p is already assigned to node "n1"')),
        (409, conflict('pod p is already assigned to node "n2"')),
        (409, conflict("Precondition failed: UID in precondition: u1, UID in object meta: u2")),
        (409, conflict("pod p is being deleted, cannot be assigned to a host")),
        (409, conflict("the object has been modified; please apply your changes to the latest version")),
        (418, said(418, "a teapot")),
    ],
)
def test_answer_without_a_definite_outcome_is_unknown(status: int, body: bytes) -> None:
    answer = read_bind_answer(BIND, status, "3", body)
    assert isinstance(answer, Unknown)
    assert (answer.answered, answer.retry_after_seconds) == (True, 3.0)


def test_401_asks_for_new_credentials() -> None:
    assert read_bind_answer(BIND, 401, None, said(401, "Unauthorized")) == Unauthenticated()


def test_read_pod_settles_a_binding() -> None:
    def refusal(pod: Any) -> BindRefusal | None:
        outcome = pod_writes.settle(BIND, pod, "timeout")
        assert outcome is None or isinstance(outcome, BindRefused)
        return outcome.refusal if outcome else None

    assert pod_writes.settle(BIND, a_pod("p", uid="u1", node="n1"), "") == BindAccepted("u1", "n1")
    assert pod_writes.settle(BIND, a_pod("p", uid="u1", node="n1", phase="Succeeded"), "") == BindAccepted("u1", "n1")
    assert refusal(None) is BindRefusal.GONE
    assert refusal(a_pod("p", uid="other", node="n1")) is BindRefusal.GONE
    assert refusal(a_pod("p", uid="u1", phase="Failed")) is BindRefusal.GONE
    assert refusal(a_pod("p", uid="u1", node="n2")) is BindRefusal.TAKEN
    assert refusal(a_pod("p", uid="u1", terminating=True)) is BindRefusal.HELD
    assert refusal(a_pod("p", uid="u1", gates=("g",))) is BindRefusal.HELD
    assert refusal(a_pod("p", uid="u1")) is None


def test_waiting_condition_carries_the_uid() -> None:
    path, body = pod_writes.waiting_condition(a_pod("p", uid="u1"), "0/1 nodes are available.", NOW)
    assert path == b"/api/v1/namespaces/default/pods/p/status"
    document = json.loads(body)
    assert document["metadata"] == {"uid": "u1"}
    assert document["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available.",
            "lastTransitionTime": NOW,
        }
    ]


@pytest.mark.parametrize(
    ("pod", "since"),
    [
        (a_pod("p"), NOW),
        (replace(a_pod("p"), said_to_wait=True), None),
        (a_pod("p", node="n1"), None),
    ],
)
def test_only_the_first_waiting_condition_has_a_transition_time(pod: Pod, since: str | None) -> None:
    _, body = pod_writes.waiting_condition(pod, "no room", NOW)
    (condition,) = json.loads(body)["status"]["conditions"]
    assert condition.get("lastTransitionTime") == since
    assert condition["status"] == ("True" if pod.node_name else "False")


def test_nomination_carries_the_uid_and_an_empty_node_clears_it() -> None:
    path, body = pod_writes.nomination(a_pod("p", uid="u1"), "n1")
    assert path == b"/api/v1/namespaces/default/pods/p/status"
    assert json.loads(body) == {"metadata": {"uid": "u1"}, "status": {"nominatedNodeName": "n1"}}
    _, body = pod_writes.nomination(a_pod("p", uid="u1"), "")
    assert json.loads(body)["status"] == {"nominatedNodeName": None}


def test_invalid_names_stay_one_segment_of_a_path() -> None:
    assert pod_writes.pod_path(a_pod("../x?y", namespace="a/b")) == "/api/v1/namespaces/a%2Fb/pods/..%2Fx%3Fy"
