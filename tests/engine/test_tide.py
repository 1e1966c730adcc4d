"""Service types: inference takes back what training uses, training takes nothing, and whole gangs go."""

from typing import Any

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Evict, ResumeJob, Warn
from aischeduler.model.events import Event, Seen, TenantsConfigured, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import JobRef, ServiceType, TenantTerms, Workload
from tests.build import a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, nominations, warnings
from tests.gangs import a_gang, member
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

INFERENCE, TRAINING = ServiceType.INFERENCE, ServiceType.TRAINING
ONLINE = a_queue("online", priority=80000, reclaimable=False)
BATCH = a_queue("batch", priority=20000)


def a_session(*queues: TenantQueue, settings: TenantSettings | None = None) -> Session:
    session = Session(profile=replace(default_profile(), tenants=settings or TenantSettings()))
    session.tell(*(Seen(queue) for queue in queues or (ONLINE, BATCH)))
    return session


def service(name: str, gpus: int = 1, queue: str = "online", **fields: Any) -> Pod:
    return in_queue(a_card_pod(name, gpus, **fields), queue, service=INFERENCE)


def training(name: str, gpus: int = 1, queue: str = "batch", node: str = "", **fields: Any) -> Pod:
    pod = in_queue(a_card_pod(name, gpus, **fields), queue, service=TRAINING)
    return on(pod, node) if node else pod


def on(pod: Pod, node: str, started: int = 1) -> Pod:
    return replace(pod, node_name=node, phase="Running", started_seconds=started, placed_seconds=started)


def test_day_of_the_article_the_two_least_important_jobs_go_and_training_comes_back() -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-GeForce-RTX-4090", 8))
    gang = a_gang("middle", 2, GangSource.LABELS)
    session.see(*(member(training(f"middle-{number}", 1, priority=40000, node="n"), gang) for number in range(2)))
    session.see(training("low", 2, priority=20000, node="n"), training("high", 2, priority=60000, node="n"))
    session.see(*(service(f"web-{number}", 1, priority=80000) for number in range(6)))
    said = session.decide()
    assert set(evictions(said)) == {"low", "middle-0", "middle-1"}
    assert set(evictions(said).values()) == {"QueueReclaimed"}
    for name in evictions(said):
        session.tell(gone(Pod, f"uid-{name}"))
    said += session.decide()
    assert set(binds(said)) == {f"web-{number}" for number in range(6)}
    session.see(training("again", 2, priority=20000))
    assert binds(session.decide()) == {}
    session.tell(*(gone(Pod, f"uid-web-{number}") for number in range(2)))
    assert binds(session.decide()) == {"again": "n"}


VICTIMS = {
    "training of a lower queue": (training("v", 8, node="n"), True),
    "training of a lower queue, of higher pod priority": (training("v", 8, node="n", priority=99), True),
    "inference of a lower queue": (on(service("v", 8, "batch"), "n"), False),
    "a pod of unknown service of a lower queue": (on(in_queue(a_card_pod("v", 8), "batch"), "n"), False),
    "training of a queue of equal priority": (training("v", 8, "peer", node="n"), False),
    "training of a queue that is not reclaimable": (training("v", 8, "closed", node="n"), False),
    "training of its own queue, of lower priority": (training("v", 8, "online", node="n", priority=-1), True),
    "training of its own queue, of equal priority": (training("v", 8, "online", node="n"), False),
    "inference of its own queue, of lower priority": (on(service("v", 8, priority=-1), "n"), False),
    "a pod without a queue": (on(a_card_pod("v", 8, priority=-1), "n"), False),
    "training in kube-system": (training("v", 8, node="n", namespace="kube-system"), False),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_inference_takes_back_from_training_alone(victim: str) -> None:
    peer, closed = a_queue("peer", priority=80000), a_queue("closed", priority=10, reclaimable=False)
    session = a_session(ONLINE, BATCH, peer, closed)
    session.see(a_card_node("n", "NVIDIA-H200"), VICTIMS[victim][0], service("web"))
    assert evictions(session.decide()) == (
        {"v": "QueueReclaimed" if "lower queue" in victim else "Preempted"} if VICTIMS[victim][1] else {}
    )


ASKERS = {
    "training": (training("p", 8, priority=50), set()),
    "a pod of unknown service": (in_queue(a_card_pod("p", 8, priority=50), "batch"), {"same"}),
    "a pod without a queue": (a_card_pod("p", 8, priority=50), {"none"}),
}


@pytest.mark.parametrize("asker", ASKERS)
def test_others_take_no_more_than_their_own(asker: str) -> None:
    session = a_session(ONLINE, BATCH, a_queue("other", priority=1))
    for name, pod in (
        ("same", training("same", 8)),
        ("other", training("other", 8, "other")),
        ("none", a_card_pod("none", 8)),
        ("served", service("served", 8, "other")),
    ):
        session.see(a_card_node(name, "NVIDIA-H200"), on(pod, name))
    session.see(ASKERS[asker][0])
    assert set(evictions(session.decide())) == ASKERS[asker][1]


def test_borrowers_go_for_training_of_the_pool_whatever_they_are() -> None:
    session = a_session()
    session.see(a_pool("lender", labels={"pool": "lender"}), a_card_node("n", "NVIDIA-H200", labels={"pool": "lender"}))
    session.see(on(service("guest", 8), "n"), training("owner", 8, pool="lender"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}


@pytest.mark.parametrize(("kind", "takes"), [("training", False), ("", False), ("inference", True)])
def test_pod_ahead_takes_the_room_of_victims_only_if_these_go_for_it_too(kind: str, takes: bool) -> None:
    session = a_session(ONLINE, BATCH, a_queue("first", priority=90000))
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n"), service("web", 8))
    assert set(evictions(session.decide())) == {"v"}
    session.see(in_queue(a_card_pod("ahead", 8), "first", service=kind))
    assert nominations(session.decide()).get("ahead") == ("n" if takes else None)
    session.tell(gone(Pod, "uid-v"))
    assert binds(session.decide()) == {"ahead" if takes else "web": "n"}


def test_pod_ahead_takes_the_room_of_victims_of_a_service_that_it_could_evict() -> None:
    session = a_session(ONLINE, BATCH)
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n"))
    session.see(in_queue(a_card_pod("ahead", 8, priority=5), "online"))
    assert evictions(session.decide()) == {}
    session.see(service("web", 8))
    told = session.decide()
    assert (set(evictions(told)), nominations(told)["ahead"]) == ({"v"}, "n")
    session.tell(gone(Pod, "uid-v"))
    assert binds(session.decide()) == {"ahead": "n"}


def test_pod_ahead_takes_the_room_of_victims_once_there_are_no_queues() -> None:
    session = a_session(ONLINE, BATCH)
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n"), service("web", 8))
    assert set(evictions(session.decide())) == {"v"}
    session.tell(*(gone(TenantQueue, str(queue.source), queue.name) for queue in (ONLINE, BATCH)))
    session.see(a_card_pod("ahead", 8, priority=5))
    assert nominations(session.decide())["ahead"] == "n"


def test_service_ahead_takes_the_room_of_a_borrower_that_goes_with_its_whole_gang() -> None:
    session = a_session(ONLINE, BATCH)
    session.see(*(a_pool(name, labels={"pool": name}) for name in "ab"))
    session.see(*(a_card_node(f"n{name}", "H200", labels={"pool": name}) for name in "ab"))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(on(service(f"g-{node}", 8, pool="b"), f"n{node}"), gang) for node in "ab"))
    session.see(training("owner", 8, pool="a"))
    assert set(evictions(session.decide())) == {"g-a", "g-b"}
    session.see(service("ahead", 8, pool="a"))
    assert nominations(session.decide())["ahead"] == "na"


def test_gang_with_a_launcher_evicts_nobody_on_cards_for_which_its_workers_have_no_quota() -> None:
    session = a_session(a_queue("online", priority=80, cards={"A100": 1, "H200": 8}), BATCH)
    session.see(a_card_node("a", "A100", 4), on(in_queue(a_card_pod("web"), "online"), "a"), training("v", 3, node="a"))
    session.see(a_card_node("h", "H200", 1), on(a_card_pod("full"), "h"))
    gang = a_gang("g", 3, GangSource.LABELS)
    session.see(member(in_queue(a_pod("g-0"), "online", service="inference"), gang))
    session.see(*(member(service(f"g-{number}", 1), gang) for number in (1, 2)))
    assert evictions(session.decide()) == {}


def test_whole_gang_goes_where_one_pod_would_do() -> None:
    session = a_session()
    gang = a_gang("g", 3, GangSource.LABELS)
    for number in range(3):
        session.see(a_card_node(f"n{number}", "NVIDIA-H200"))
        session.see(member(training(f"g-{number}", 8, node=f"n{number}"), gang))
    session.see(service("web", 8))
    assert set(evictions(session.decide())) == {"g-0", "g-1", "g-2"}


def test_service_that_is_full_evicts_nobody() -> None:
    session = a_session(a_queue("online", priority=80000, cards={"H200": 0}), BATCH)
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n"), service("web", 8))
    assert evictions(session.decide()) == {}


def test_pods_younger_than_the_runtime_of_their_queue_stay_until_it_is_over() -> None:
    session = a_session(ONLINE, a_queue("batch", priority=20000, min_runtime_seconds=60))
    session.see(a_card_node("n", "NVIDIA-H200"), on(training("v", 8), "n", started=100))
    session.now = 120.0
    session.see(service("web", 8))
    assert evictions(session.decide()) == {}
    assert evictions(session.decide(41.0)) == {"v": "QueueReclaimed"}


@pytest.mark.parametrize("allowed", [True, False])
def test_word_that_a_pod_is_not_preemptable_counts_where_its_namespace_may_say_it(allowed: bool) -> None:
    settings = TenantSettings(non_preemptible=label_selector("", {"stays": "yes"}, ()) if allowed else None)
    session = a_session(settings=settings)
    session.tell(Seen(Namespace("default", {"stays": "yes"})))
    kept = in_queue(a_card_pod("v", 8), "batch", service=TRAINING, preemptable=False)
    session.see(a_card_node("n", "NVIDIA-H200"), on(kept, "n"), service("web", 8))
    assert set(evictions(session.decide())) == (set() if allowed else {"v"})


STAYS = label_selector("", {"stays": "yes"}, ())
WORDS_HEEDED: dict[str, Event] = {
    "namespace": Seen(Namespace("default", {"stays": "yes"})),
    "pool": Seen(replace(a_pool("default", generation=2), non_preemptible_namespaces=STAYS)),
    "configuration": TenantsConfigured(TenantSettings(non_preemptible=STAYS)),
}


@pytest.mark.parametrize("where", WORDS_HEEDED)
def test_running_pod_stays_whose_word_counts_since_an_edit(where: str) -> None:
    session = a_session(settings=TenantSettings(non_preemptible=STAYS if where == "namespace" else None))
    session.tell(Seen(Namespace("default", {} if where == "namespace" else {"stays": "yes"})))
    kept = in_queue(a_card_pod("v", 8), "batch", service=TRAINING, preemptable=False)
    session.see(a_card_node("n", "NVIDIA-H200"), on(kept, "n"))
    session.decide()
    session.tell(WORDS_HEEDED[where])
    session.see(service("web", 8))
    assert evictions(session.decide()) == {}


BATCH_ALONE = TenantTerms("batch")


def a_workload(kind: str, name: str, said: str = "", owner: str = "", queue: str = "") -> Event:
    return Seen(Workload(kind, "default", name, owner=owner, terms=TenantTerms(queue, said)))


def test_service_type_comes_from_the_workload_its_owner_or_the_kind_of_these() -> None:
    settings = TenantSettings(service_types=(("Deployment", INFERENCE), ("Job", TRAINING)))
    session = a_session(settings=settings)
    session.tell(a_workload("ReplicaSet", "web-1", owner="Deployment/web", queue="online"))
    session.tell(a_workload("Job", "train", queue="batch"))
    session.see(a_card_node("n", "NVIDIA-H200"))
    session.see(on(replace(a_card_pod("v", 8), owner="Job/train"), "n"))
    session.see(replace(a_card_pod("web", 8), owner="ReplicaSet/web-1"))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}


def test_pods_whose_workload_was_not_seen_take_nothing_and_lose_nothing_across_queues() -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-H200"))
    session.see(on(replace(training("v", 8), owner="Job/train"), "n"), service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(a_workload("Job", "train"))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}


def test_service_behind_one_whose_workload_was_not_seen_takes_its_cards() -> None:
    session = a_session(ONLINE, a_queue("batch", priority=20000, reclaimable=False))
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n"))
    session.see(replace(service("unseen", 8, priority=5), owner="Job/train"), service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(Seen(replace(BATCH, generation=2)))
    assert evictions(session.decide(1.0)) == {"v": "QueueReclaimed"}


def test_pod_that_came_before_there_were_queues_follows_its_workload() -> None:
    session = Session(a_card_node("n", "NVIDIA-H200"), on(replace(a_card_pod("v", 8), owner="Job/train"), "n"))
    session.tell(Seen(ONLINE), Seen(BATCH))
    session.see(service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(a_workload("Job", "train", queue="batch", said="training"))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}


def test_pod_that_came_while_no_workload_named_a_queue_follows_its_workload() -> None:
    session = a_session()
    session.tell(a_workload("Job", "other", queue="batch"), a_workload("Job", "other"))
    session.see(a_card_node("n", "NVIDIA-H200"), on(replace(a_card_pod("v", 8), owner="Job/train"), "n"))
    session.see(service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(a_workload("Job", "train", queue="batch", said="training"))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}
    session.tell(a_workload("Job", "train"))
    assert session.scheduler.cluster.tenants.named() == ("online",)


def test_workload_that_is_gone_before_there_is_a_default_queue_leaves_the_kind_of_its_pods() -> None:
    session = a_session(ONLINE, settings=TenantSettings(service_types=(("Job", TRAINING),)))
    session.tell(a_workload("Job", "train"))
    session.see(a_card_node("n", "NVIDIA-H200"), on(replace(a_card_pod("v", 8), owner="Job/train"), "n"))
    session.tell(gone(Workload, "Job", "default", "train"), Seen(a_queue("default", priority=20000)))
    session.see(service("web", 8))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}


def test_workload_that_is_gone_leaves_the_kind_of_its_pods() -> None:
    session = a_session(settings=TenantSettings(service_types=(("Job", TRAINING),)))
    session.tell(a_workload("Job", "train", said="inference"))
    session.see(
        a_card_node("n", "NVIDIA-H200"), on(replace(training("v", 8), owner="Job/train", terms=BATCH_ALONE), "n")
    )
    session.see(service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(gone(Workload, "Job", "default", "train"))
    assert evictions(session.decide(1.0)) == {"v": "QueueReclaimed"}


def test_pods_of_a_queue_of_higher_priority_are_tried_first() -> None:
    session = a_session()
    session.see(training("a", 8, priority=99), service("b", 8))
    session.see(a_card_node("n", "NVIDIA-H200"))
    assert binds(session.decide()) == {"b": "n"}
    session.tell(Seen(replace(BATCH, priority=90000, generation=2)))
    session.decide(30.0)
    session.see(service("c", 8, created=0), a_card_node("m", "NVIDIA-H200"))
    assert binds(session.decide()) == {"a": "m"}


def test_the_cheapest_queue_loses_first() -> None:
    session = a_session(ONLINE, BATCH, a_queue("lower", priority=10))
    session.see(a_card_node("n", "NVIDIA-H200"))
    session.see(training("kept", 4, node="n", priority=1), training("v", 4, "lower", node="n", priority=50))
    session.see(service("web", 4))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}


def test_waiting_service_is_woken_when_its_queue_may_take_back() -> None:
    session = a_session(a_queue("online", priority=1), BATCH)
    session.see(a_card_node("n", "NVIDIA-H200"), training("v", 8, node="n", priority=9), service("web", 8))
    assert evictions(session.decide()) == {}
    session.tell(Seen(replace(ONLINE, generation=2)))
    assert nominations(session.decide()) == {"web": "n"}


def at(name: str, node: str, started: int, gpus: int = 1, **fields: Any) -> Pod:
    return on(training(name, gpus, **fields), node, started)


def test_pods_above_a_lowered_quota_go_after_its_time_the_fewest_and_least_important() -> None:
    session = a_session(a_queue("batch", cards={"H200": 8}))
    session.see(a_card_node("n", "NVIDIA-H200", 8))
    session.see(at("old", "n", 10, 2), at("new", "n", 90, 2), at("high", "n", 99, 2, priority=9), at("small", "n", 50))
    session.now = 100.0
    session.decide()
    lowered = a_queue("batch", cards={"H200": 5}, shrink_after_seconds=60, generation=2)
    session.tell(Seen(lowered))
    assert evictions(session.decide(200.0)) == {}, "no condition says yet since when"
    session.tell(Seen(replace(lowered, over_quota_since_seconds=int(session.now))))
    assert evictions(session.decide(59.0)) == {}
    assert evictions(session.decide(2.0)) == {"new": "QueueShrunk"}


def test_gang_above_a_lowered_quota_goes_whole() -> None:
    session = a_session(a_queue("batch", cards={"H200": 8}))
    session.see(a_card_node("n", "NVIDIA-H200", 8), at("single", "n", 1, priority=5))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(at(f"g-{number}", "n", 1), gang) for number in range(2)))
    session.decide()
    session.tell(Seen(a_queue("batch", cards={"H200": 2}, shrink_after_seconds=0, over_quota_since_seconds=1)))
    assert set(evictions(session.decide(10.0))) == {"g-0", "g-1"}


@pytest.mark.parametrize(("left", "go"), [(1, 2), (0, 4)])
def test_gang_of_two_queues_goes_whole_once_too_few_of_it_would_stay_in_one(left: int, go: int) -> None:
    session = a_session(a_queue("batch", cards={"H200": 8}), a_queue("other"))
    session.see(a_card_node("n", "NVIDIA-H200", 8))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(at(f"g-{number}", "n", 9 - number), gang) for number in range(3)))
    session.see(member(on(in_queue(a_card_pod("elsewhere"), "other"), "n"), gang))
    session.decide()
    session.tell(Seen(a_queue("batch", cards={"H200": left}, shrink_after_seconds=0, over_quota_since_seconds=1)))
    assert len(evictions(session.decide(10.0))) == go


def test_pods_of_a_draining_queue_and_of_those_below_it_go_after_its_time() -> None:
    session = a_session(a_queue("root"), a_queue("batch", parent="root"))
    session.see(a_card_node("n", "NVIDIA-H200"), at("v", "n", 1), on(a_card_pod("stays"), "n"))
    session.decide()
    session.tell(Seen(a_queue("root", state=QueueState.DRAINING, drain_after_seconds=30, draining_since_seconds=100)))
    session.now = 120.0
    assert evictions(session.decide()) == {}
    assert evictions(session.decide(11.0)) == {"v": "QueueDrained"}


def job_of_gang(name: str, pods: int, **fields: Any) -> list[Pod]:
    gang = a_gang(name, pods, GangSource.JOB)
    found = [member(training(f"{name}-{number}", 8, node=f"n{number}", **fields), gang) for number in range(pods)]
    return [replace(pod, owner=f"Job/{name}") for pod in found]


@pytest.mark.parametrize(("aborts", "managed"), [(False, False), (True, False), (False, True)])
def test_gang_of_a_job_goes_by_suspending_it_and_is_resumed_once_its_pods_are_gone(aborts: bool, managed: bool) -> None:
    session = a_session()
    job = Workload("Job", "default", "j", "uid-j", terms=TenantTerms(aborts=aborts), retries=6, managed=managed)
    session.tell(Seen(a_gang("j", 2, GangSource.JOB)), Seen(job))
    session.see(a_card_node("n0", "NVIDIA-H200"), a_card_node("n1", "NVIDIA-H200"), *job_of_gang("j", 2))
    session.see(service("web", 8))
    evicted = [action for action in session.decide() if isinstance(action, Evict)]
    expected = None if managed else JobRef("Job", "default", "j", "uid-j", aborts=aborts)
    assert [action.suspends for action in evicted] == [expected, expected]
    session.tell(Seen(replace(job, suspended=not managed)))
    session.tell(gone(Pod, "uid-j-0"))
    assert resumed(session.decide(1.0)) == []
    session.tell(gone(Pod, "uid-j-1"))
    assert resumed(session.decide(1.0)) == ([] if aborts or managed else ["j"])


def resumed(actions: list[Action]) -> list[str]:
    return [action.job.name for action in actions if isinstance(action, ResumeJob)]


def test_words_that_do_not_count_are_told_once() -> None:
    session = a_session()
    session.see(in_queue(a_card_pod("p"), "batch", service="trainning", preemptable=False))
    told = session.decide()
    assert warnings(told) == [("p", "UnknownServiceType"), ("p", "PreemptableIgnored")]
    assert "Did you mean training?" in next(action.message for action in told if isinstance(action, Warn))
    session.see(a_card_node("n", "NVIDIA-H200"))
    assert warnings(session.decide()) == []


@pytest.mark.parametrize(("retries", "managed", "warned"), [(1, True, 1), (2, True, 0), (-1, True, 0), (1, False, 0)])
def test_gang_job_that_evictions_would_make_fail_gets_a_warning(retries: int, managed: bool, warned: int) -> None:
    session = a_session()
    session.tell(Seen(Workload("Job", "default", "j", "uid-j", retries=retries, managed=managed)))
    session.tell(Seen(a_gang("j", 2, GangSource.JOB)))
    assert warnings(session.decide()) == [("j", "EvictionWouldFailJob")] * warned
