import json
from typing import Any

import pytest

from aischeduler.kube.write.eviction_writes import (
    EVICT_TRIES_MAX,
    Evicted,
    Eviction,
    EvictionAnswer,
    NextRequest,
    NotNeeded,
    Rehearsals,
    Rehearsed,
    lost_eviction,
)
from aischeduler.kube.write.pod_writes import Throttled, Unauthenticated, Unknown
from aischeduler.model.actions import Evict, EvictionCause, ReadPod
from aischeduler.model.events import EvictRefusal, EvictRefused
from tests.build import a_pod, replace

NOW = "2026-01-02T03:04:05Z"
VICTIM = a_pod("v", uid="u1", namespace="team-b")
OWNER = a_pod("owner", uid="u2", namespace="team-a")
EVICT = Evict(VICTIM, "n1", "gpu", "cpu", EvictionCause.RECLAIMED, OWNER, "d-1")
POD = "/api/v1/namespaces/team-b/pods/v"


def said(code: int, message: str, causes: tuple[str, ...] = ()) -> bytes:
    document: dict[str, Any] = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    document["details"] = {"causes": [{"reason": reason, "message": ""} for reason in causes]}
    return json.dumps(document).encode()


def by_delete() -> Eviction:
    return Eviction(EVICT, "ai-scheduler", honour_budgets=False)


def by_eviction() -> Eviction:
    return Eviction(EVICT, "ai-scheduler", honour_budgets=True)


def marked() -> Eviction:
    """Return an eviction by delete whose DisruptionTarget condition is set."""
    eviction = by_delete()
    assert eviction.read_answer(200, None, b"{}") == NextRequest()
    return eviction


def test_first_request_sets_the_condition_that_names_the_beneficiary() -> None:
    write = by_delete().request(NOW)
    assert (write.method, write.path) == ("PATCH", f"{POD}/status")
    assert write.content_type == "application/strategic-merge-patch+json"
    assert json.loads(write.body) == {
        "metadata": {"uid": "u1"},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "ai-scheduler: preempting to accommodate team-a/owner",
                    "lastTransitionTime": NOW,
                }
            ]
        },
    }


def test_condition_of_a_loan_that_ends_names_the_lender() -> None:
    ended = Evict(VICTIM, "n1", "gpu", "cpu", EvictionCause.LOAN_ENDED, None, "d-1")
    write = Eviction(ended, "ai-scheduler", honour_budgets=False).request(NOW)
    (condition,) = json.loads(write.body)["status"]["conditions"]
    assert condition["message"] == "ai-scheduler: preempting because pool gpu no longer lends this room"


def test_condition_of_a_gang_that_is_given_up_says_that_too_few_of_its_pods_are_on_nodes() -> None:
    given_up = Evict(VICTIM, "n1", "gpu", "gpu", EvictionCause.GANG_NOT_WHOLE, None, "d-1")
    write = Eviction(given_up, "ai-scheduler", honour_budgets=False).request(NOW)
    (condition,) = json.loads(write.body)["status"]["conditions"]
    assert condition["message"] == "ai-scheduler: preempting because too few pods of its gang are on nodes"


def test_victim_with_the_condition_is_deleted_by_its_uid() -> None:
    eviction = marked()
    write = eviction.request(NOW)
    assert (write.method, write.path) == ("DELETE", POD)
    assert json.loads(write.body) == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}}
    assert eviction.read_answer(200, None, b"{}") == Evicted()


def test_request_to_the_eviction_api_has_the_uid_and_needs_no_condition() -> None:
    eviction = by_eviction()
    write = eviction.request(NOW)
    assert (write.method, write.path) == ("POST", f"{POD}/eviction")
    assert json.loads(write.body) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "v", "namespace": "team-b"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    assert eviction.read_answer(201, None, said(201, "")) == Evicted()


def test_victim_that_is_terminating_is_not_deleted_after_its_condition() -> None:
    body = json.dumps({"metadata": {"name": "v", "deletionTimestamp": NOW}}).encode()
    assert isinstance(by_delete().read_answer(200, None, body), NotNeeded)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_victim_that_finished_meanwhile_is_not_deleted_after_its_condition(phase: str) -> None:
    body = json.dumps({"metadata": {"name": "v"}, "status": {"phase": phase}}).encode()
    assert by_delete().read_answer(200, None, body) == NotNeeded("the victim has finished")


def test_eviction_of_a_pod_with_several_budgets_is_refused_at_once() -> None:
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert by_eviction().read_answer(500, None, said(500, why)) == EvictRefused("u1", EvictRefusal.BUDGET, why)


GONE = [
    (404, said(404, 'pods "v" not found')),
    (409, said(409, "Precondition failed: UID in precondition: u1, UID in object meta: u9")),
    (422, said(422, 'Pod "v" is invalid: metadata.uid: Invalid value: "u1": field is immutable')),
    (409, said(409, "the UID in the precondition (u1) does not match the UID in record (u9).")),
]


@pytest.mark.parametrize(("status", "body"), GONE)
@pytest.mark.parametrize("eviction", [by_delete, marked, by_eviction])
def test_eviction_of_a_victim_that_is_gone_is_not_needed(eviction: Any, status: int, body: bytes) -> None:
    assert isinstance(eviction().read_answer(status, None, body), NotNeeded)


def test_eviction_that_a_budget_forbids_is_refused() -> None:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    answer = by_eviction().read_answer(429, None, said(429, message, ("DisruptionBudget",)))
    assert answer == EvictRefused("u1", EvictRefusal.BUDGET, message)


def test_eviction_is_refused_while_a_budget_is_still_processed() -> None:
    answer = by_eviction().read_answer(429, "10", said(429, "still being processed", ("DisruptionBudget",)))
    assert isinstance(answer, EvictRefused)
    assert answer.why is EvictRefusal.BUDGET


@pytest.mark.parametrize(
    ("status", "retry_after", "body", "expected"),
    [
        (429, "7", b"Too many requests.", Throttled(7.0)),
        (429, "7", said(429, "not now"), Unknown("not now", answered=True, retry_after_seconds=7.0)),
        (429, "20", said(429, "not now"), EvictRefused("u1", EvictRefusal.UNAVAILABLE, "not now")),
        (500, "20", said(500, "not now"), EvictRefused("u1", EvictRefusal.UNAVAILABLE, "not now")),
        (429, None, b"", Throttled(1.0)),
        (503, "3", b"", Throttled(3.0)),
        (401, None, said(401, "Unauthorized"), Unauthenticated()),
        (
            500,
            None,
            said(500, "etcdserver: request timed out"),
            Unknown("etcdserver: request timed out", answered=True),
        ),
        (409, None, said(409, "the object has been modified"), Unknown("the object has been modified", answered=True)),
        (403, None, said(403, "no"), EvictRefused("u1", EvictRefusal.FORBIDDEN, "no")),
        (422, None, said(422, "bad"), EvictRefused("u1", EvictRefusal.UNAVAILABLE, "bad")),
    ],
)
@pytest.mark.parametrize("eviction", [by_delete, marked, by_eviction])
def test_answers_mean_the_same_at_every_step(
    eviction: Any, status: int, retry_after: str | None, body: bytes, expected: EvictionAnswer
) -> None:
    assert eviction().read_answer(status, retry_after, body) == expected


def test_request_without_an_answer_is_sent_again_unchanged() -> None:
    eviction = marked()
    first = eviction.request(NOW)
    assert eviction.no_answer("cut") == Unknown("cut")
    assert eviction.request(NOW) == first


def test_victim_whose_condition_cannot_be_written_is_not_deleted() -> None:
    eviction = by_delete()
    answers = [eviction.read_answer(500, None, said(500, "down")) for _ in range(EVICT_TRIES_MAX)]
    assert answers[:-1] == [Unknown("down", answered=True)] * (EVICT_TRIES_MAX - 1)
    assert answers[-1] == EvictRefused("u1", EvictRefusal.UNAVAILABLE, "down")
    assert eviction.request(NOW).method == "PATCH"


@pytest.mark.parametrize(
    ("status", "retry_after", "words"),
    [(429, "2", "asked to wait 2 s"), (401, None, "answers 401 Unauthorized")],
)
def test_eviction_without_a_definite_answer_is_refused_in_the_end(
    status: int, retry_after: str | None, words: str
) -> None:
    eviction = marked()
    for _ in range(EVICT_TRIES_MAX - 1):
        assert not isinstance(eviction.read_answer(status, retry_after, b""), EvictRefused)
    answer = eviction.read_answer(status, retry_after, b"")
    assert isinstance(answer, EvictRefused)
    assert answer.why is EvictRefusal.UNAVAILABLE
    assert words in answer.message


def test_unanswered_eviction_is_lost_only_if_a_read_shows_the_same_pod_not_terminating() -> None:
    action = ReadPod(VICTIM, "n1", "d-1", evicted=True)
    assert lost_eviction(action, VICTIM) == EvictRefused(
        VICTIM.uid, EvictRefusal.LOST, "no answer to the eviction arrived, and the pod still runs; decision d-1"
    )
    assert lost_eviction(action, None) is None
    for other in (
        replace(VICTIM, terminating=True),
        replace(VICTIM, phase="Succeeded"),
        replace(VICTIM, uid="another"),
    ):
        assert lost_eviction(action, other) is None
    assert lost_eviction(ReadPod(VICTIM, "n1", "d-1"), VICTIM) is None


@pytest.mark.parametrize("code", [400, 403, 404, 409, 422])
def test_refusal_by_a_webhook_says_nothing_about_the_victim_whatever_its_status(code: int) -> None:
    text = 'admission webhook "no.example.com" denied the request: UID in precondition, not found'
    for eviction in (by_delete(), by_eviction(), marked()):
        eviction.request(NOW)
        answer = eviction.read_answer(code, None, said(code, text))
        assert answer == EvictRefused("u1", EvictRefusal.FORBIDDEN, text)


def test_404_that_is_not_of_an_api_server_is_no_answer() -> None:
    assert isinstance(marked().read_answer(404, None, b"404 page not found, says a proxy"), Unknown)


TOGETHER = replace(EVICT, together=2)
OTHER = replace(TOGETHER, victim=a_pod("w", uid="u3", namespace="team-b"))
ACCEPTED = (200, None, b"{}")
FORBIDDEN = EvictRefused("u3", EvictRefusal.FORBIDDEN, "it is stuck")


def sent(eviction: Eviction) -> tuple[str, str]:
    write = eviction.request(NOW)
    return write.method, write.path


def test_dry_runs_of_both_requests_come_before_a_delete_that_goes_together_with_another() -> None:
    eviction = Eviction(TOGETHER, "ai-scheduler", honour_budgets=False)
    assert sent(eviction) == ("PATCH", f"{POD}/status?dryRun=All")
    assert eviction.read_answer(*ACCEPTED) == NextRequest()
    assert sent(eviction) == ("DELETE", f"{POD}?dryRun=All")
    assert json.loads(eviction.request(NOW).body)["dryRun"] == ["All"]
    assert (eviction.read_answer(*ACCEPTED), eviction.rehearses) == (Rehearsed(), True)
    eviction.go_on()
    assert (sent(eviction), eviction.rehearses) == (("PATCH", f"{POD}/status"), False)
    assert eviction.read_answer(*ACCEPTED) == NextRequest()
    assert sent(eviction) == ("DELETE", POD)
    assert "dryRun" not in json.loads(eviction.request(NOW).body)
    assert eviction.read_answer(*ACCEPTED) == Evicted()


def test_dry_run_comes_before_a_request_of_the_eviction_api_that_goes_together_with_another() -> None:
    eviction = Eviction(TOGETHER, "ai-scheduler", honour_budgets=True)
    assert sent(eviction) == ("POST", f"{POD}/eviction?dryRun=All")
    assert eviction.read_answer(*ACCEPTED) == Rehearsed()
    eviction.go_on()
    assert sent(eviction) == ("POST", f"{POD}/eviction")
    assert eviction.read_answer(*ACCEPTED) == Evicted()


def test_webhook_that_knows_no_dry_run_is_asked_by_the_eviction_itself() -> None:
    message = 'admission webhook "w.example" does not support dry run'
    eviction = Eviction(TOGETHER, "ai-scheduler", honour_budgets=True)
    assert eviction.read_answer(400, None, said(400, message)) == Rehearsed()
    eviction.go_on()
    assert eviction.read_answer(400, None, said(400, message)) == EvictRefused("u1", EvictRefusal.FORBIDDEN, message)


def test_evictions_that_go_together_go_on_once_all_are_rehearsed() -> None:
    rehearsals: Rehearsals[str] = Rehearsals()
    assert rehearsals.answered(TOGETHER, "v", Rehearsed()) == []
    assert rehearsals.answered(OTHER, "w", Rehearsed()) == [("v", Rehearsed()), ("w", Rehearsed())]
    assert not rehearsals.has_begun(TOGETHER)


def test_eviction_is_called_off_where_one_that_goes_together_with_it_is_refused() -> None:
    rehearsals: Rehearsals[str] = Rehearsals()
    assert rehearsals.answered(OTHER, "w", FORBIDDEN) == []
    message = "the eviction of another pod of the decision would be refused: it is stuck"
    off = EvictRefused("u1", EvictRefusal.CALLED_OFF, message)
    assert rehearsals.answered(TOGETHER, "v", Rehearsed()) == [("v", off), ("w", FORBIDDEN)]


def test_eviction_goes_on_beside_a_victim_that_is_gone_already() -> None:
    rehearsals: Rehearsals[str] = Rehearsals()
    gone = NotNeeded("not found")
    assert rehearsals.answered(OTHER, "w", gone) == []
    assert rehearsals.answered(TOGETHER, "v", Rehearsed()) == [("w", gone), ("v", Rehearsed())]


def test_evictions_of_two_decisions_do_not_wait_for_each_other() -> None:
    rehearsals: Rehearsals[str] = Rehearsals()
    assert rehearsals.answered(TOGETHER, "v", Rehearsed()) == []
    assert rehearsals.answered(replace(OTHER, decision="d-2"), "w", FORBIDDEN) == []
