"""Watches lag behind each other: facts that the scheduler has not seen evict no pod and send no pod to a wrong pool.

Invariants:
- A scenario holds a watch back until it releases the watch, not for a number of seconds: the expected result occurs
  while the watch is held.
- A check that nothing happens follows an event that could only come later.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from aischeduler.model.names import POOL_KEY
from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import PREEMPTABLE_KEY, SERVICE_TYPE_KEY, ServiceType
from tests.api_contract.world import condition
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import REPEAT
from tests.e2e.lagged_stage import (
    FULL,
    LaggedStage,
    a_full_pool,
    a_job,
    a_lent_pool,
    a_pod_waits_for_preemption,
    a_queue,
    a_tide,
    serves,
    terms,
    trains,
)
from tests.e2e.lagging_proxy import LaggingProxy
from tests.objects import Json, node_object
from tests.queue_objects import queue_object
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.stage import POOL_LABEL

VISION = {"matchLabels": {"team": "vision"}}
EDITS_THAT_END_LOANS: dict[str, tuple[Json, Json]] = {
    "sharing": ({"disableSharing": True}, {"disableSharing": False}),
    "limit": ({"lendingLimit": {"cpu": "1"}}, {"lendingLimit": None}),
}
"""Edits that end running loans, each with the edit that reverts it."""
EDITS_THAT_SPARE: dict[str, Json] = {
    "reclaimable": {"reclaimable": False},
    "priority": {"priority": 90000},
    "minRuntime": {"minRuntime": "1h"},
}
"""Edits after which a service takes nothing back from the queue."""
EDITS_THAT_FORBID: dict[str, tuple[Json, Json, str]] = {
    "capability": ({"capability": {"cpu": "1"}}, {"capability": None}, "insufficient CPU quota"),
    "state": ({"state": "Closed"}, {"state": None}, "is closed"),
    "parent": ({"parent": "nowhere"}, {"parent": None}, "nowhere does not exist"),
}
"""Edits after which a queue takes nothing, each with the edit that reverts it and a part of the reason."""

_numbers = count(1)


@pytest.fixture(autouse=True)
def clean_cluster() -> None:
    """Replace the fixture: the environment cleans up after each scenario."""


@pytest.fixture(scope="module")
def proxy(control_plane: ControlPlane) -> Iterator[LaggingProxy]:
    with LaggingProxy(control_plane) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def environment(control_plane: ControlPlane, proxy: LaggingProxy) -> Iterator[RealEnvironment]:
    """Yield one scheduler for all scenarios, which uses the API server through the proxy."""
    environment = RealEnvironment(control_plane, proxy.kubeconfig)
    yield environment
    environment.close()
    sweep(control_plane)


@pytest.fixture(params=range(REPEAT) if REPEAT > 1 else None)
def stage(environment: RealEnvironment, proxy: LaggingProxy) -> Iterator[LaggedStage]:
    """Yield a scenario of its own; at its end all watches are released and the record is checked."""
    environment.begin()
    stage = LaggedStage(environment, f"lag{next(_numbers)}x-", proxy)
    try:
        yield stage
        stage.release()
        stage.end()
    finally:
        proxy.release()
        environment.end()


# Pools.


def test_pod_of_a_new_pool_evicts_no_pod_in_the_default_pool_and_is_bound_at_home(stage: LaggedStage) -> None:
    stage.node("d1")
    stage.pod("low", cpu=FULL)
    stage.runs("low")
    stage.hold("pools")
    stage.pools("x")
    stage.pod("high", pool="x", cpu=FULL, priority=10)
    stage.node("x1", pool="x")
    stage.goes(high="x1")
    assert stage.marks("high")["home-pool"] == "x"
    stage.evicted_nobody()


def test_pod_of_a_new_pool_reclaims_room_in_that_pool_only(stage: LaggedStage) -> None:
    stage.node("d1", labels={"kept": "yes"})
    stage.node("x1", pool="x")
    stage.pod("low", cpu=FULL, node_selector={"kept": "yes"})
    stage.pod("middle", cpu=FULL, on="x1", priority=5)
    stage.runs("low", "middle")
    stage.hold("pools")
    stage.pools("x")
    stage.pod("high", pool="x", cpu=FULL, priority=10)
    stage.goes(high="x1")
    assert stage.marks("high")["home-pool"] == "x"
    assert stage.victims() == ["middle"]


def test_pod_of_a_new_pool_is_not_bound_in_the_default_pool(stage: LaggedStage) -> None:
    stage.node("d1")
    stage.hold("pools")
    stage.pools("x", disableBorrowing=True)
    stage.pod("p", pool="x", cpu=FULL)
    stage.node("x1", pool="x")
    stage.goes(p="x1")
    assert stage.marks("p")["home-pool"] == "x"


def test_pod_of_a_missing_pool_is_warned_and_is_bound_at_home_once_the_pool_exists(stage: LaggedStage) -> None:
    stage.node("d1")
    stage.pod("filler", cpu=FULL)
    stage.runs("filler")
    stage.hold("pools")
    stage.pod("p", pool="x", cpu=FULL)
    stage.until(lambda: stage.events("p", "UnknownPool") != [])
    stage.is_considered("p")
    stage.pools("x")
    stage.release()
    stage.node("x1", pool="x")
    stage.goes(p="x1")
    assert stage.marks("p")["home-pool"] == "x"
    stage.evicted_nobody()


def test_pod_of_a_missing_pool_is_bound_in_the_default_pool(stage: LaggedStage) -> None:
    stage.node("d1")
    stage.hold("pools")
    stage.pod("p", pool="x", cpu=FULL)
    stage.goes(p="d1")
    assert stage.marks("p")["home-pool"] == "default"
    stage.until(lambda: stage.events("p", "UnknownPool") != [])


def test_pool_that_has_just_forbidden_preemption_evicts_no_pod(stage: LaggedStage) -> None:
    a_full_pool(stage)
    stage.hold("pools")
    stage.set_pool("a", disablePreemption=True)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.is_considered("high")
    stage.release()
    stage.heeded("a")
    stage.waits("high", "Insufficient cpu")
    stage.evicted_nobody()


def test_pool_that_has_just_forbidden_preemption_reclaims_no_room(stage: LaggedStage) -> None:
    a_lent_pool(stage)
    stage.hold("pools")
    stage.set_pool("a", disablePreemption=True)
    stage.pod("home", pool="a", cpu=FULL)
    stage.is_considered("home")
    stage.release()
    stage.heeded("a")
    stage.waits("home", "Insufficient cpu")
    stage.evicted_nobody()


def test_node_that_its_pool_no_longer_selects_loses_no_pod(stage: LaggedStage) -> None:
    a_full_pool(stage)
    stage.hold("pools")
    stage.set_pool("a", nodeSelector={"matchLabels": {POOL_LABEL: stage.own("moved")}})
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.node("m1", pool="moved")
    stage.release()
    stage.goes(high="m1")
    stage.evicted_nobody()


@pytest.mark.parametrize("what", EDITS_THAT_END_LOANS)
def test_loans_that_an_edit_ends_stay_where_a_later_edit_has_reverted_it(stage: LaggedStage, what: str) -> None:
    ends, takes_back = EDITS_THAT_END_LOANS[what]
    a_lent_pool(stage, reclaimPolicy="Evict")
    stage.hold("pools")
    stage.set_pool("a", **ends)
    generation = stage.get("Pool", "a")["metadata"]["generation"]
    came = stage.holds("Pool", "a", "pools")
    stage.set_pool("a", **takes_back)
    stage.holds("Pool", "a", "pools")
    stage.let_through("pools", came)
    stage.until(lambda: stage.condition("a", "Accepted").get("observedGeneration", 0) >= generation)
    stage.release()
    stage.heeded("a")
    stage.evicted_nobody()


def test_pod_of_a_deleted_pool_evicts_no_pod_where_the_default_pool_forbids_it(stage: LaggedStage) -> None:
    stage.set_pool("default", disablePreemption=True)
    a_full_pool(stage)
    stage.heeded("default")
    stage.hold("pools")
    stage.delete("Pool", "a")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.is_considered("high")
    stage.release()
    stage.until(lambda: stage.events("high", "UnknownPool") != [])
    stage.waits("high", "Insufficient cpu")
    stage.evicted_nobody()


# Nodes.


def test_pod_is_bound_to_a_new_node_and_evicts_no_pod(stage: LaggedStage) -> None:
    a_full_pool(stage)
    stage.hold("nodes")
    stage.node("a2", pool="a")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    stage.evicted_nobody()


def test_home_pod_is_bound_to_a_new_node_and_reclaims_no_room(stage: LaggedStage) -> None:
    a_lent_pool(stage)
    stage.hold("nodes")
    stage.node("a2", pool="a")
    stage.pod("home", pool="a", cpu=FULL)
    stage.goes(home="a2")
    stage.evicted_nobody()


def test_pod_is_bound_to_an_uncordoned_node_and_evicts_no_pod(stage: LaggedStage) -> None:
    a_full_pool(stage)
    cordoned = node_object(stage.own("a2"), labels={POOL_LABEL: stage.own("a")})
    cordoned["spec"]["unschedulable"] = True
    stage.create(cordoned)
    stage.until(lambda: stage.status("a").get("nodes") == 2)
    stage.hold("nodes")
    stage.patch("Node", "a2", {"spec": {"unschedulable": False}})
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="a2")
    stage.evicted_nobody()


def test_pod_is_bound_to_a_node_that_came_from_another_pool_and_evicts_no_pod(stage: LaggedStage) -> None:
    a_full_pool(stage)
    stage.node("c1", pool="c")
    stage.pools("c", disableSharing=True)
    stage.hold("nodes")
    stage.move("c1", "a")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.goes(high="c1")
    stage.evicted_nobody()


def test_node_that_moved_to_the_pool_of_its_borrower_loses_no_pod(stage: LaggedStage) -> None:
    a_lent_pool(stage)
    stage.hold("nodes")
    stage.move("a1", "b")
    stage.pod("home", pool="a", cpu=FULL)
    stage.is_considered("home")
    stage.release()
    stage.node("a2", pool="a")
    stage.goes(home="a2")
    stage.evicted_nobody()


def test_new_pool_and_new_node_get_their_pod_when_both_watches_have_lagged(stage: LaggedStage) -> None:
    stage.node("d1")
    stage.pod("low", cpu=FULL)
    stage.runs("low")
    stage.hold("pools")
    stage.hold("nodes")
    stage.pools("x")
    stage.node("x1", pool="x")
    stage.pod("high", pool="x", cpu=FULL, priority=10)
    stage.until(lambda: stage.why("high") != "" or stage.node_of("high") != "")
    stage.release()
    stage.goes(high="x1")
    assert stage.marks("high")["home-pool"] == "x"
    stage.evicted_nobody()


# Pods, namespaces and budgets.


def test_room_of_a_deleted_pod_is_used_and_no_pod_is_evicted(stage: LaggedStage) -> None:
    a_full_pool(stage, disablePreemption=True)
    stage.node("a2", pool="a")
    stage.pod("gone", pool="a", cpu=FULL, priority=5)
    stage.runs("gone")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
    stage.hold("pods")
    stage.delete("Pod", "gone")
    stage.goes_away("gone")
    stage.set_pool("a", disablePreemption=False)
    stage.heeded("a")
    stage.release()
    stage.goes(high="a2")
    stage.evicted_nobody()


def test_pod_that_has_moved_to_another_pool_evicts_no_pod_in_its_former_one(stage: LaggedStage) -> None:
    a_pod_waits_for_preemption(stage)
    stage.hold("pods")
    stage.patch("Pod", "high", {"metadata": {"annotations": {POOL_KEY: stage.own("b")}}})
    stage.node("b1", pool="b")
    stage.set_pool("a", disablePreemption=False)
    stage.heeded("a")
    stage.release()
    stage.goes(high="b1")
    stage.evicted_nobody()


def test_deleted_pod_evicts_no_pod(stage: LaggedStage) -> None:
    a_pod_waits_for_preemption(stage)
    stage.hold("pods")
    stage.delete("Pod", "high")
    stage.goes_away("high")
    stage.set_pool("a", disablePreemption=False)
    stage.heeded("a")
    stage.node("b1", pool="b")
    stage.release()
    stage.pod("later", pool="b", cpu=FULL)
    stage.goes(later="b1")
    stage.evicted_nobody()


def test_loan_of_a_deleted_pod_ends_no_other_loan(stage: LaggedStage) -> None:
    stage.node("a1", pool="a")
    stage.node("a2", pool="a")
    stage.pools("a", reclaimPolicy="Evict")
    stage.pools("b")
    for name in ("older", "newer"):
        stage.pod(name, pool="b", cpu=FULL)
        stage.runs(name)
    stage.until(lambda: stage.amount("a", "shared") == "8")
    stage.hold("pods")
    stage.delete("Pod", "older")
    stage.goes_away("older")
    stage.set_pool("a", lendingLimit={"cpu": FULL})
    stage.heeded("a")
    stage.release()
    stage.until(lambda: stage.amount("a", "shared") == FULL)
    stage.evicted_nobody()
    assert stage.phase("newer") == "Running"


def test_pod_of_a_new_namespace_evicts_no_pod_and_runs_later(stage: LaggedStage) -> None:
    stage.namespace("known", team="vision")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("low", pool="a", namespace="known", cpu=FULL)
    stage.runs("low")
    stage.node("a2", pool="a")
    stage.hold("namespaces")
    stage.namespace("vision", team="vision")
    stage.pod("high", pool="a", namespace="vision", cpu=FULL, priority=10)
    stage.until(lambda: stage.why("high") != "" or stage.node_of("high") != "")
    stage.release()
    stage.goes(high="a2")
    stage.evicted_nobody()


def test_pod_of_a_namespace_that_is_no_longer_allowed_evicts_no_pod(stage: LaggedStage) -> None:
    stage.namespace("vision", team="vision")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("low", pool="a", namespace="vision", cpu=FULL)
    stage.runs("low")
    stage.hold("namespaces")
    stage.patch("Namespace", "vision", {"metadata": {"labels": {"team": "speech"}}})
    stage.pod("high", pool="a", namespace="vision", cpu=FULL, priority=10)
    stage.is_considered("high")
    stage.release()
    stage.waits("high", "The pool a takes no pods from the namespace vision")
    stage.evicted_nobody()


def test_new_budget_protects_its_pod(stage: LaggedStage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("kept", pool="a", cpu="2", labels={"app": "kept"})
    stage.pod("plain", pool="a", cpu="2", priority=5)
    stage.runs("kept", "plain")
    stage.hold("poddisruptionbudgets")
    stage.budget("keep", min_available=1, app="kept")
    stage.pod("high", pool="a", cpu="2", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["plain"]


# Tenant queues.


def a_service_takes_nothing_back(stage: LaggedStage) -> None:
    """Let a service come: it evicts no pod, and runs on a new node."""
    serves(stage, "served")
    stage.waits("served", "Insufficient cpu")
    stage.node("d2")
    stage.goes(served="d2")
    stage.release()
    stage.evicted_nobody()


def test_pod_of_a_queue_that_is_not_seen_waits_and_starts_once_it_is(stage: LaggedStage) -> None:
    stage.create(queue_object(stage.own("other")))
    stage.node("d1")
    stage.hold("queues")
    stage.create(queue_object(stage.own("q")))
    stage.pod("p", annotations={QUEUE_KEY: stage.own("q")})
    stage.waits("p", "does not exist")
    stage.release()
    stage.goes(p="d1")


@pytest.mark.parametrize("edit", EDITS_THAT_SPARE)
def test_queue_that_has_just_been_spared_loses_no_pod_to_a_service(stage: LaggedStage, edit: str) -> None:
    a_tide(stage)
    trains(stage, "low")
    stage.hold("queues")
    stage.patch("Queue", "batch", {"spec": EDITS_THAT_SPARE[edit]})
    a_service_takes_nothing_back(stage)


@pytest.mark.parametrize("edit", EDITS_THAT_FORBID)
def test_service_whose_queue_has_just_been_limited_evicts_no_pod_until_it_may(stage: LaggedStage, edit: str) -> None:
    forbids, takes_back, why = EDITS_THAT_FORBID[edit]
    a_tide(stage)
    trains(stage, "low")
    stage.hold("queues")
    stage.patch("Queue", "online", {"spec": forbids})
    serves(stage, "served")
    stage.waits("served", why)
    stage.evicted_nobody()
    stage.release()
    stage.patch("Queue", "online", {"spec": takes_back})
    stage.evicts("low")
    stage.goes(served="d1")


def test_pod_whose_queue_drains_no_more_stays_beside_one_whose_queue_does(stage: LaggedStage) -> None:
    for name, seconds in (("opened", 6), ("drained", 7)):
        stage.node(f"of-{name}")
        a_queue(stage, name, drainAfter=f"{seconds}s")
        trains(stage, f"in-{name}", queue=name)
    for name in ("opened", "drained"):
        stage.patch("Queue", name, {"spec": {"state": "Draining"}})
        stage.until(lambda name=name: condition(stage.get("Queue", name), "Ready")["status"] == "False")  # type: ignore[misc]
    a_queue(stage, "after")
    stage.hold("queues")
    stage.patch("Queue", "opened", {"spec": {"state": "Open"}})
    stage.evicts("in-drained")
    stage.release()
    stage.goes_away("in-drained")
    assert stage.victims() == ["in-drained"], stage.report()


# Workloads.


@pytest.mark.parametrize("says", [{PREEMPTABLE_KEY: "false"}, {SERVICE_TYPE_KEY: ServiceType.INFERENCE}])
def test_pod_stays_whose_job_has_just_spared_it(stage: LaggedStage, says: dict[str, str]) -> None:
    a_tide(stage)
    stage.patch("Namespace", "ns", {"metadata": {"labels": VISION["matchLabels"]}})
    stage.set_pool("default", nonPreemptibleNamespaces=VISION)
    stage.heeded("default")
    a_job(stage, "train", terms(stage, "batch", ServiceType.TRAINING), {})
    stage.until(lambda: stage.bound("train") == 1)
    stage.hold("jobs")
    stage.patch("Job", "train", {"metadata": {"annotations": says}})
    a_service_takes_nothing_back(stage)


def test_pod_whose_job_is_not_seen_stays_until_it_is(stage: LaggedStage) -> None:
    a_tide(stage)
    stage.hold("jobs")
    a_job(stage, "train", {}, terms(stage, "batch", ServiceType.TRAINING), node="d1")
    serves(stage, "served")
    stage.waits("served", "Insufficient cpu")
    stage.evicted_nobody()
    stage.release()
    stage.goes(served="d1")
    assert len(stage.victims()) == 1


def test_pod_whose_job_is_not_seen_evicts_no_pod_until_it_is(stage: LaggedStage) -> None:
    a_tide(stage)
    trains(stage, "low")
    stage.hold("jobs")
    a_job(stage, "serve", {}, terms(stage, "online", ServiceType.INFERENCE))
    (served,) = (pod["metadata"]["name"] for pod in stage.all("Pod") if pod["metadata"]["name"] != "low")
    stage.waits(served, "Job serve is seen")
    stage.evicted_nobody()
    stage.release()
    stage.evicts("low")
    stage.until(lambda: stage.bound("serve") == 1)


# Namespaces of tenants.


def test_pod_stays_whose_namespace_may_say_so_since_just_now(stage: LaggedStage) -> None:
    a_tide(stage)
    stage.set_pool("default", nonPreemptibleNamespaces=VISION)
    stage.heeded("default")
    trains(stage, "low", **{PREEMPTABLE_KEY: "false"})
    stage.hold("namespaces")
    stage.patch("Namespace", "ns", {"metadata": {"labels": VISION["matchLabels"]}})
    a_service_takes_nothing_back(stage)


def test_pod_of_a_namespace_that_its_queue_no_longer_allows_evicts_no_pod(stage: LaggedStage) -> None:
    a_tide(stage)
    stage.namespace("vision", team="vision")
    stage.patch("Queue", "online", {"spec": {"allowedNamespaces": VISION}})
    a_queue(stage, "after")
    trains(stage, "low")
    stage.hold("namespaces")
    stage.patch("Namespace", "vision", {"metadata": {"labels": {"team": "speech"}}})
    serves(stage, "served", namespace="vision")
    stage.waits("served", "takes no pods from the namespace")
    stage.evicted_nobody()
    stage.release()
    stage.patch("Namespace", "vision", {"metadata": {"labels": {"team": "vision"}}})
    stage.evicts("low")
    stage.goes(served="d1")
