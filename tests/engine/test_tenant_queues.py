"""Quotas of tenant queues: who is held, on which cards a pod may run, and who starts as quota frees."""

from collections.abc import Sequence
from typing import Any

import pytest

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Action, ReportQueue, ReportWaiting
from aischeduler.model.card_types import card_form
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import CardUse, QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import CardRequest, TenantTerms, Workload
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, errors, evictions, fail_once, nominations, reports
from tests.gangs import a_gang, member
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue


def a_session(*objects: object, settings: TenantSettings | None = None) -> Session:
    profile: Profile = replace(default_profile(), tenants=settings or TenantSettings())
    session = Session(profile=profile)
    for seen in objects:
        session.tell(Seen(seen))  # type: ignore[arg-type]
    return session


def reasons(actions: Sequence[Action]) -> dict[str, str]:
    return {action.pod.name: str(action.reason) for action in actions if isinstance(action, ReportWaiting)}


def running(pod: Pod, node: str, started: int = 1) -> Pod:
    return replace(pod, node_name=node, phase="Running", started_seconds=started)


@pytest.mark.parametrize(
    ("queue", "asked", "reason", "said"),
    [
        (
            {"cpu": "1500m"},
            {"cpu": "1"},
            "InsufficientCPUQuota",
            "Queue q has insufficient CPU quota: requested 1, total would be 2, but capability is 1500m",
        ),
        (
            {"memory": "3Gi"},
            {"memory": "2Gi"},
            "InsufficientMemoryQuota",
            "Queue q has insufficient memory quota: requested 2Gi, total would be 4Gi, but capability is 3Gi",
        ),
        (
            {"cards": {"NVIDIA-H200": 3}},
            {"gpu": 2},
            "InsufficientScalarQuota",
            "Queue q has insufficient NVIDIA-H200 quota: requested 2, total would be 4, but capability is 3",
        ),
        (
            {"cards": {"A100": 8}},
            {"gpu": 1},
            "EmptyQueueCapability",
            "Queue q has insufficient H200 quota: requested 1, total would be 1, but capability is 0",
        ),
    ],
)
def test_pod_beyond_the_quota_is_held_with_the_words_of_the_quota(
    queue: dict[str, Any], asked: dict[str, Any], reason: str, said: str
) -> None:
    session = a_session(a_queue(**queue), a_card_node("n", "NVIDIA-H200"))
    session.see(in_queue(a_pod("p", **asked)))
    if reason != "EmptyQueueCapability":
        assert binds(session.decide()) == {"p": "n"}
    session.see(in_queue(a_pod("q", **asked)), a_pod("free", **asked))
    told = session.decide()
    held = "p" if reason == "EmptyQueueCapability" else "q"
    assert (reports(told)[held], reasons(told)[held]) == (said, reason)
    assert "free" in binds(told)


def test_pod_whose_cards_cannot_be_read_is_held_with_the_reason_of_the_quota_in_a_queue_alone() -> None:
    wrong = "metadata.annotations[volcano.sh/card.name]: '' is not the name of a card"
    session = a_session(a_queue(), a_card_node("n", "NVIDIA-H200"))
    session.see(in_queue(a_pod("p", gpu=1, invalid=wrong)), a_pod("free", gpu=1, invalid=wrong))
    told = session.decide()
    assert reasons(told) == {"p": "GetTaskRequestResourceFailed", "free": "FailedScheduling"}
    assert reports(told) == {"p": wrong, "free": wrong}


def test_pod_whose_workload_asks_for_cards_that_cannot_be_read_is_held_with_the_reason_of_the_quota() -> None:
    wrong = "metadata.annotations[volcano.sh/card.request]: must be JSON"
    session = a_session(a_queue(), a_card_node("n", "NVIDIA-H200"))
    session.tell(Seen(Workload("Job", "default", "train", terms=TenantTerms(invalid=wrong))))
    session.see(replace(in_queue(a_pod("p", gpu=1)), owner="Job/train"))
    told = session.decide()
    assert reasons(told) == {"p": "GetTaskRequestResourceFailed"}
    assert wrong in reports(told)["p"]


def test_use_counts_at_every_ancestor_and_the_one_that_refuses_is_named() -> None:
    session = a_session(a_queue("root", cpu="2"), a_queue("a", parent="root"), a_queue("b", parent="root", cpu="8"))
    session.see(a_node("n", cpu="8"), in_queue(a_pod("p", cpu="2"), "a"))
    session.decide()
    session.see(in_queue(a_pod("q"), "b"))
    assert reports(session.decide()) == {
        "q": "Queue root has insufficient CPU quota: requested 1, total would be 3, but capability is 2"
    }
    session.tell(Seen(a_queue("b", cpu="8")))
    assert binds(session.decide()) == {"q": "n"}, "it is no longer below the queue that refuses"


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        ((a_queue("other"),), "UnknownQueue"),
        ((a_queue(state=QueueState.CLOSED),), "QueueClosed"),
        ((a_queue(state=QueueState.DRAINING),), "QueueClosed"),
        ((a_queue(parent="up"), a_queue("up", state=QueueState.CLOSED)), "QueueClosed"),
        ((a_queue(parent="up"),), "QueueNotAccepted"),
        ((a_queue(parent="up"), a_queue("up", parent="q")), "QueueNotAccepted"),
        ((a_queue(invalid="spec.cards[x]: must be a whole number"),), "QueueNotAccepted"),
        ((a_queue(allowed_namespaces=label_selector("", {"team": "red"}, ())),), "QueueNamespaceNotAllowed"),
    ],
)
def test_pod_whose_queue_takes_it_not_is_held_and_starts_once_it_does(
    queues: tuple[TenantQueue, ...], reason: str
) -> None:
    session = a_session(*queues, a_node("n"), in_queue(a_pod("p")))
    assert reasons(session.decide()) == {"p": reason}
    if reason == "QueueNamespaceNotAllowed":
        session.tell(Seen(Namespace("default", {"team": "red"})))
    else:
        session.tell(Seen(a_queue()))
    assert binds(session.decide()) == {"p": "n"}


def test_default_queue_takes_pods_that_name_none() -> None:
    session = a_session(a_queue("default", cpu="1"), a_node("n"), a_pod("p"), a_pod("q"))
    assert set(binds(session.decide())) == {"p"}
    session.tell(gone(TenantQueue, "Queue", "default"))
    assert set(binds(session.decide())) == {"q"}


def test_pods_of_a_deleted_queue_run_on_and_count_nowhere() -> None:
    session = a_session(a_queue("root", cpu="1"), a_queue(parent="root"), a_node("n"), in_queue(a_pod("p")))
    session.decide()
    session.tell(gone(TenantQueue, "Queue", "q"))
    session.see(in_queue(a_pod("q"), "root"))
    told = session.decide()
    assert (binds(told), evictions(told)) == ({"q": "n"}, {})


def test_alternatives_go_to_the_second_card_where_the_first_is_used_up() -> None:
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}))
    session.see(a_card_node("a", "NVIDIA-A100-SXM4-80GB"), a_card_node("h", "NVIDIA-H200"))
    session.see(*(in_queue(a_card_pod(f"p{number}", created=number), cards="H200|A100") for number in range(3)))
    told = session.decide()
    assert binds(told) == {"p0": "h", "p1": "a"}
    assert reasons(told) == {"p2": "InsufficientScalarQuota"}
    session.tell(gone(Pod, "uid-p1"))
    assert binds(session.decide()) == {"p2": "a"}


def test_pod_that_names_no_card_is_charged_for_those_of_its_node() -> None:
    session = a_session(a_queue(cards={"H200": 2, "A100": 0}))
    session.see(a_card_node("a", "NVIDIA-A100"), a_card_node("h", "NVIDIA-H200", 2))
    session.see(*(in_queue(a_card_pod(f"p{number}", created=number)) for number in range(3)))
    told = session.decide()
    assert binds(told) == {"p0": "h", "p1": "h"}
    assert reasons(told)["p2"] in ("InsufficientScalarQuota", "EmptyQueueCapability")


def test_pod_that_may_use_another_card_is_parked_with_the_closed_ones_and_starts_as_their_quota_frees() -> None:
    session = a_session(a_queue(cards={"H200": 1, "A100": 8}))
    session.see(a_card_node("a", "NVIDIA-A100", 1), a_card_node("h", "NVIDIA-H200"))
    session.see(*(in_queue(a_card_pod(f"p{number}", created=number), cards="H200|A100") for number in range(3)))
    told = session.decide()
    assert binds(told) == {"p0": "h", "p1": "a"}
    assert "quota: no quota is left for H200 of queue q" in reports(told)["p2"]
    session.tell(gone(Pod, "uid-p0"))
    assert binds(session.decide()) == {"p2": "h"}


def test_an_entry_covers_all_forms_of_its_card_and_no_slice_of_it() -> None:
    session = a_session(a_queue(cards={"A100": 2}))
    session.see(a_card_node("s", "NVIDIA-A100-SXM4-80GB"), a_card_node("p", "NVIDIA-A100-PCIE-40GB"))
    session.see(*(in_queue(a_card_pod(f"p{number}", created=number)) for number in range(3)))
    assert set(binds(session.decide())) == {"p0", "p1"}
    slice_pod = a_pod("slice", extended={"nvidia.com/mig-1g.10gb": "1"})
    session.see(a_node("m", extended={"nvidia.com/mig-1g.10gb": "7"}, labels={"nvidia.com/gpu.product": "NVIDIA-A100"}))
    session.see(in_queue(slice_pod))
    assert reasons(session.decide()) == {"slice": "EmptyQueueCapability"}
    session.tell(Seen(a_queue(cards={"A100": 2, "NVIDIA-A100/mig-1g.10gb-mixed": 1})))
    assert binds(session.decide()) == {"slice": "m"}


def test_shares_by_mps_have_a_quota_of_their_own() -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090",
        "nvidia.com/gpu.memory": "24564",
        "nvidia.com/gpu.replicas": "2",
    }
    session = a_session(a_queue(cards={"NVIDIA-GeForce-RTX-4090/mps-24g*1/2": 1}))
    session.see(a_node("n", extended={"nvidia.com/gpu.shared": "4"}, labels=labels))
    session.see(*(in_queue(a_pod(f"p{n}", created=n, extended={"nvidia.com/gpu.shared": "1"})) for n in range(2)))
    told = session.decide()
    assert (binds(told), reasons(told)) == ({"p0": "n"}, {"p1": "InsufficientScalarQuota"})


def test_gang_is_checked_whole_and_its_surplus_keeps_to_the_quota() -> None:
    session = a_session(a_queue(cards={"H200": 3}), a_card_node("h", "NVIDIA-H200"))
    four = a_gang("g", 4, GangSource.LABELS)
    session.see(*(member(in_queue(a_card_pod(f"g-{number}")), four) for number in range(4)))
    told = session.decide()
    assert (binds(told), reasons(told)["g-0"]) == ({}, "InsufficientScalarQuota")
    two = a_gang("s", 2, GangSource.LABELS)
    session.see(*(member(in_queue(a_card_pod(f"s-{number}")), two) for number in range(4)))
    assert len(binds(session.decide())) == 3


@pytest.mark.parametrize("queues", [("q", "free"), ("free", "q")])
def test_gang_of_two_queues_takes_no_card_for_which_one_of_them_has_no_quota(queues: tuple[str, str]) -> None:
    session = a_session(a_queue(cards={"A100": 1, "H200": 8}), a_queue("free"))
    session.see(a_card_node("a", "A100", 3), running(in_queue(a_card_pod("runs")), "a"))
    session.see(a_card_node("h", "H200", 1), running(a_card_pod("full"), "h"))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(in_queue(a_card_pod(f"g-{turn}"), queue), gang) for turn, queue in enumerate(queues)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    assert set(binds(session.decide())) == {"g-0", "g-1"}


def test_smaller_pod_behind_a_held_larger_one_starts_as_quota_frees() -> None:
    session = a_session(a_queue(cards={"H200": 4}), a_card_node("h", "NVIDIA-H200"), in_queue(a_card_pod("p", 4)))
    session.decide()
    session.see(in_queue(a_card_pod("large", 8, priority=5)), in_queue(a_card_pod("small", 2)))
    session.decide()
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide()) == {"small": "h"}


def test_terminating_pod_counts_until_it_is_gone() -> None:
    session = a_session(a_queue(cpu="1"), a_node("n"), in_queue(a_pod("p")))
    session.decide()
    session.see(replace(running(in_queue(a_pod("p")), "n"), terminating=True), in_queue(a_pod("q")))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide()) == {"q": "n"}


def test_relabelled_node_charges_its_pods_for_the_card_that_it_has_now() -> None:
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}), a_card_node("n", "NVIDIA-H200"))
    session.see(in_queue(a_card_pod("p")))
    session.decide()
    session.see(a_card_node("n", "NVIDIA-A100"), in_queue(a_card_pod("q")))
    assert reasons(session.decide()) == {"q": "InsufficientScalarQuota"}
    session.see(a_card_node("h", "NVIDIA-H200"))
    assert binds(session.decide()) == {"q": "h"}


def test_owner_of_a_claim_counts_and_ends_for_the_quota_of_a_pod_ahead_of_it() -> None:
    session = a_session(a_queue(cpu="4"), a_node("n", cpu="2"))
    session.see(running(in_queue(a_pod("low", cpu="2")), "n"), in_queue(a_pod("p", cpu="2", priority=1)))
    assert nominations(session.decide()) == {"p": "n"}
    session.see(in_queue(a_pod("same", cpu="2", priority=1, created=9)))
    assert reasons(session.decide()) == {"same": "InsufficientCPUQuota"}
    session.see(a_node("free", cpu="2"), in_queue(a_pod("high", cpu="2", priority=9)))
    told = session.decide()
    assert binds(told) == {"high": "free"}


def test_claim_ends_where_the_cards_of_its_node_lose_their_name() -> None:
    session = a_session(a_queue(cards={"H200": 16}))
    session.see(a_card_node("n", "H200"), running(in_queue(a_card_pod("v", 8)), "n"), a_card_node("h", "H200", 1))
    session.see(in_queue(a_card_pod("asks", 8, priority=5)))
    assert set(evictions(session.decide())) == {"v"}
    session.see(a_node("n", cpu="64", memory="512Gi", gpu=8))
    session.tell(gone(Pod, "uid-v"))
    assert binds(session.decide()) == {}
    session.see(a_card_pod("other", 8))
    assert binds(session.decide(1.0)) == {"other": "n"}


def test_owner_of_a_claim_gives_way_once_where_its_quota_and_its_room_are_needed() -> None:
    session = a_session(a_queue(cpu="4"), a_node("n", cpu="2"))
    session.see(running(in_queue(a_pod("low", cpu="2")), "n"), in_queue(a_pod("p", cpu="2", priority=1)))
    assert nominations(session.decide()) == {"p": "n"}
    session.see(in_queue(a_pod("high", cpu="2", priority=9)))
    told = session.decide()
    assert (nominations(told), errors(told)) == ({"high": "n", "p": ""}, [])


def test_state_that_is_built_anew_counts_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    session = a_session(a_queue(cpu="1"), a_node("n"))
    session.see(in_queue(a_pod("runs", created=1)), in_queue(a_pod("held", created=2)))
    session.decide()
    fail_once(monkeypatch, "apply", "adopt")
    session.see(a_pod("fails"))
    told = session.decide()
    assert len(errors(told)) == 1
    summary = status_of(session, "q").summary
    assert (summary.pods, summary.pending_pods) == (1, 1)


def test_cards_take_no_cpu_of_the_quota_where_the_configuration_says_so() -> None:
    settings = TenantSettings(card_unlimited_cpu_memory=True, over_commit_milli=1500)
    session = a_session(a_queue(cpu="2", cards={"H200": 8}), a_card_node("h", "NVIDIA-H200"), settings=settings)
    session.see(in_queue(a_card_pod("card", cpu="16")), in_queue(a_pod("plain", cpu="3")))
    assert set(binds(session.decide())) == {"card", "plain"}
    session.scheduler.set_tenants(TenantSettings())
    session.see(in_queue(a_pod("late", cpu="1")))
    assert reasons(session.decide()) == {"late": "InsufficientCPUQuota"}


def test_held_pod_stops_no_loan() -> None:
    lender = a_pool("lender", labels={"pool": "lender"})
    session = a_session(a_queue(cpu="0"), lender, a_node("n", cpu="1", labels={"pool": "lender"}))
    session.see(in_queue(a_pod("held", pool="lender")))
    session.decide()
    session.see(a_pod("guest"))
    assert binds(session.decide()) == {"guest": "n"}


def test_pod_whose_queue_names_cards_stops_no_loan_of_nodes_whose_cards_have_no_name() -> None:
    session = a_session(a_queue(cards={"H200": 8}), *(a_pool(name, labels={"pool": name}) for name in "ab"))
    session.see(a_node("n", cpu="8", gpu=8, labels={"pool": "a"}), in_queue(a_card_pod("waits", pool="a"), cards=""))
    assert binds(session.decide()) == {}
    session.see(a_card_pod("guest", pool="b"))
    assert binds(session.decide()) == {"guest": "n"}


@pytest.mark.parametrize(("evicts", "lent"), [(True, {"guest": "h"}), (False, {})])
def test_pod_that_is_parked_for_one_of_its_cards_stops_no_loan_where_its_pool_may_take_it_back(
    *, evicts: bool, lent: dict[str, str]
) -> None:
    pools = [a_pool(name, labels={"pool": name}, disable_preemption=not evicts) for name in "ab"]
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}), *pools)
    session.see(*(a_card_node(name, card, 2, labels={"pool": "a"}) for name, card in (("h", "H200"), ("a", "A100"))))
    session.see(running(in_queue(a_card_pod("runs", pool="a")), "h"), running(a_card_pod("full", 2, pool="a"), "a"))
    session.see(in_queue(a_card_pod("waits", pool="a"), cards="H200|A100"))
    assert binds(session.decide()) == {}
    session.see(a_card_pod("guest", pool="b"))
    assert binds(session.decide()) == lent


def test_pod_whose_quota_was_full_when_a_lender_had_room_borrows_once_it_frees() -> None:
    session = a_session(a_queue(cpu="2"), a_pool("lender", labels={"pool": "lender"}))
    session.see(a_node("n", cpu="2", labels={"pool": "lender"}), a_node("home", cpu="1"))
    session.see(running(a_pod("own", cpu="2", pool="lender"), "n"), in_queue(a_pod("p", cpu="2")))
    assert binds(session.decide()) == {}
    session.see(running(in_queue(a_pod("other")), "home"))
    session.tell(gone(Pod, "uid-own"))
    assert reasons(session.decide()) == {"p": "InsufficientCPUQuota"}
    session.tell(gone(Pod, "uid-other"))
    assert binds(session.decide(1.0)) == {"p": "n"}


def test_without_any_queue_the_names_of_queues_mean_nothing() -> None:
    session = a_session(a_node("n"), in_queue(a_pod("p"), "somewhere"))
    assert binds(session.decide()) == {"p": "n"}


def status_of(session: Session, queue: str) -> ReportQueue:
    session.decide()
    session.decide(2.0)
    return [action for action in session.said if isinstance(action, ReportQueue) and action.name == queue][-1]


def test_status_has_what_is_used_and_what_waits_at_every_level() -> None:
    session = a_session(a_queue("root", cpu="8"), a_queue(parent="root", cpu="2", cards={"H200": 2}))
    session.see(
        a_card_node("h", "NVIDIA-H200"), in_queue(a_card_pod("p", 2, created=1)), in_queue(a_pod("q", created=2))
    )
    session.see(in_queue(a_card_pod("held", 1, created=3)))
    told = status_of(session, "q")
    assert told.summary.cards == (CardUse("H200", 200, 2),)
    assert (told.summary.used["cpu"], told.summary.pods, told.summary.pending_pods) == (2000, 2, 1)
    root = status_of(session, "root")
    assert (root.summary.used["cpu"], root.summary.pending["nvidia.com/gpu"]) == (2000, 1)
    assert root.summary.cards == (CardUse("H200", 200, None),)


def test_status_says_at_every_level_what_is_used_in_other_pools() -> None:
    session = a_session(a_queue("root"), a_queue(parent="root"), a_pool("lender", labels={"pool": "lender"}))
    session.see(a_node("there", labels={"pool": "lender"}), a_node("here"))
    session.see(running(in_queue(a_pod("guest", cpu="2")), "there"), running(in_queue(a_pod("home")), "here"))
    assert [status_of(session, name).summary.borrowed["cpu"] for name in ("q", "root")] == [2000, 2000]
    session.see(a_node("there"))
    assert [status_of(session, name).summary.borrowed for name in ("q", "root")] == [{}, {}]


def test_many_queues_that_change_are_reported_less_often() -> None:
    session = a_session(*(a_queue(f"q-{number:03}") for number in range(100)))
    session.decide()
    session.see(a_node("n"), in_queue(a_pod("p"), "q-007"))
    counts = []
    for seconds in (0.0, 1.5, 1.0):
        session.decide(seconds)
        counts.append(sum(isinstance(action, ReportQueue) for action in session.said))
    assert counts == [100, 100, 101]


def test_lowered_quota_is_shown_and_evicts_nobody() -> None:
    session = a_session(a_queue(cpu="2"), a_node("n"), in_queue(a_pod("p")), in_queue(a_pod("q")))
    session.decide()
    session.tell(Seen(a_queue(cpu="0", generation=2)))
    told = status_of(session, "q")
    conditions = {condition.type: (condition.status, condition.message) for condition in told.conditions}
    assert conditions["OverQuota"] == (True, "More is used than the quota says: cpu 2 of 0.")
    assert evictions(session.said) == {}


@pytest.mark.parametrize(
    ("queue", "condition", "reason"),
    [
        ({"parent": "none"}, "Accepted", "ParentMissing"),
        ({"parent": "q"}, "Accepted", "ParentCycle"),
        ({"invalid": "spec.cards: has 65 names"}, "Accepted", "InvalidSpec"),
        ({"state": QueueState.DRAINING}, "Ready", "Draining"),
    ],
)
def test_conditions_say_why_a_queue_takes_nothing_new(queue: dict[str, Any], condition: str, reason: str) -> None:
    told = status_of(a_session(a_queue(**queue)), "q")
    assert (False, reason) == next((c.status, str(c.reason)) for c in told.conditions if c.type == condition)


def asking(*requests: tuple[str, int]) -> Event:
    """Return a Job whose annotation asks for these cards of all its pods."""
    asked = tuple(
        CardRequest(name, tuple(card_form(card) for card in name.split("|")), cards) for name, cards in requests
    )
    return Seen(Workload("Job", "default", "j", "uid-j", terms=TenantTerms(card_request=asked)))


def of_job(name: str, **fields: Any) -> Pod:
    return replace(in_queue(a_card_pod(name, **fields)), owner="Job/j")


def test_cards_of_a_workload_are_checked_whole_before_its_first_pod_starts() -> None:
    session = a_session(a_queue(cards={"H200": 2, "A100": 1}), a_card_node("h", "NVIDIA-H200"))
    session.tell(asking(("NVIDIA-H200|NVIDIA-A100", 4)))
    session.see(of_job("p"))
    told = session.decide()
    assert reports(told) == {
        "p": "Queue q has insufficient NVIDIA-H200|NVIDIA-A100 quota: "
        "requested 4, total would be 4, but capability is 3"
    }
    session.tell(asking(("NVIDIA-H200|NVIDIA-A100", 3)))
    assert binds(session.decide()) == {"p": "h"}
    session.tell(asking(("NVIDIA-H200|NVIDIA-A100", 9)))
    session.see(of_job("q"))
    assert binds(session.decide()) == {"q": "h"}, "it has begun: its pods are charged one by one"


def test_one_card_that_the_workload_names_is_that_of_its_pods() -> None:
    session = a_session(a_queue(cards={"H200": 8, "A100": 8}), a_card_node("a", "NVIDIA-A100"))
    session.tell(asking(("NVIDIA-H200", 1)))
    session.see(of_job("p"))
    assert binds(session.decide()) == {}
    session.see(a_card_node("h", "NVIDIA-H200"))
    assert binds(session.decide()) == {"p": "h"}


def test_quota_of_pods_that_is_exceeded_is_shown() -> None:
    session = a_session(a_queue(), a_node("n"), in_queue(a_pod("p")), in_queue(a_pod("q")))
    session.decide()
    session.tell(Seen(a_queue(capability={"pods": 1}, generation=2)))
    conditions = {condition.type: condition.message for condition in status_of(session, "q").conditions}
    assert conditions["OverQuota"] == "More is used than the quota says: pods 2 of 1."
