"""A journal has every call of an engine, and a new engine that makes the calls returns the same actions."""

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest
from msgspec.structs import astuple

from aischeduler.engine.journal import JournaledScheduler, JournalError, Observed, read_call, replay
from aischeduler.engine.profile import default_profile
from aischeduler.model.device import GPU, DeviceHint, NodeDevices, Partition
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    DevicesListed,
    Event,
    EvictRefusal,
    EvictRefused,
    Gone,
    Object,
    QueuesServed,
    Refreshed,
    RefreshFailed,
    ResizeRefused,
    Seen,
    TenantsConfigured,
    VolumesRefused,
    VolumesWritten,
    gone,
)
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangSource, TopologyLevel
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import NodeSelectorTerm, Operator, label_selector
from aischeduler.model.storage_objects import StorageCapacity, StorageObject
from aischeduler.model.tenant_queue import TenantQueue, TenantSettings
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import ServiceType, TenantTerms, Workload
from tests.build import a_node, a_pod, a_pool, a_taint, expression, group_rule, replace, tolerates
from tests.devices import asks, gpus, has, whole
from tests.elastic import AJob
from tests.tenants import a_queue

GANG = Gang(
    GangKey(GangSource.COSCHEDULING, "default", "g"),
    min_member=2,
    uid="uid-g",
    timeout_seconds=60,
    roles=(("worker", 2),),
    topology=(TopologyLevel("rack", required=True),),
)
POD = a_pod(
    "p",
    cpu="1",
    memory="1Gi",
    gpu=1,
    pool="a",
    labels={"app": "x"},
    gates=("wait",),
    host_ports=(HostPort("TCP", 80),),
    tolerations=(tolerates("t"),),
    node_selector={"disk": "ssd"},
    required=(NodeSelectorTerm((expression("zone", Operator.IN, "z1"),)),),
)
CLAIM = GangClaim(GANG.key, "worker", 1, GANG, (GangKey(GangSource.JOB, "default", "j"),))
HINT = DeviceHint(selector=label_selector("", {"a": "b"}, ()), every=True)
EVENTS: list[Event] = [
    Seen(msgspec.structs.replace(POD, gang=CLAIM, terms=TenantTerms("q", "inference"), owner="Job/j")),
    gone(Pod, "uid-p"),
    Seen(a_node("n", cpu="4", labels={"pool": "a"}, taints=(a_taint("t"),))),
    gone(Node, "n"),
    Seen(a_pool("a", labels={"pool": "a"}, lending_limit={"cpu": 1000}, allowed_namespaces={"team": "a"})),
    gone(Pool, "a"),
    Seen(DisruptionBudget("default", "b", "uid-b", label_selector("spec.selector", {"app": "x"}, ()), 1)),
    gone(DisruptionBudget, "default", "b"),
    Seen(Namespace("default", {"team": "a"})),
    gone(Namespace, "default"),
    Seen(VolumeClaim("default", "c", "v", bound=True)),
    gone(VolumeClaim, "default", "c"),
    Seen(Volume("v", (NodeSelectorTerm((expression("zone", Operator.IN, "z1"),)),), {"a": "b"})),
    gone(Volume, "v"),
    Seen(StorageCapacity("team", "c", "fast", label_selector("topology", {"zone": "z1"}, ()), 5)),
    Gone("CsiNode", ("", "n")),
    Seen(GANG),
    gone(Gang, *astuple(GANG.key)),
    Seen(PodSet("Service", "default", "web", label_selector("spec.selector", {"app": "x"}, ()))),
    gone(PodSet, "Service", "default", "web"),
    Seen(a_queue("q", parent="root", cpu="4", cards={"NVIDIA-H200": 8}, allowed_namespaces=label_selector("", {}, ()))),
    gone(TenantQueue, "Queue", "q"),
    Seen(Workload("Job", "default", "j", "uid-j", "JobSet/s", TenantTerms("q", "training", preemptable=True))),
    gone(Workload, "Job", "default", "j"),
    Seen(replace(gpus("n", 2), partitions=(Partition((0, 1)),), links={"0-1": 4}, faults=("spec",))),
    gone(NodeDevices, "n"),
    Seen(a_pod("holder", node="n", devices=replace(asks(100), hints=((GPU, HINT),)), has=has(whole(0)))),
    QueuesServed(served=True),
    DevicesListed(listed=False),
    DevicesListed(listed=True),
    TenantsConfigured(TenantSettings(over_commit_milli=1500, service_types=(("Job", ServiceType.TRAINING),))),
    BindRefused("uid-p", "n", BindRefusal.TAKEN, "no"),
    VolumesWritten("uid-p", "run-1", ("7",)),
    VolumesRefused("uid-p", "run-1", "no"),
    EvictRefused("uid-p", EvictRefusal.BUDGET, "no"),
    Seen(replace(AJob("e", 2, 8, allowed=(2, 4, 8)).workload, kind="JobSet")),
    ResizeRefused("Job", "default", "e", "uid-e", "no", changed=True),
    Refreshed(""),
    RefreshFailed("", "no rights"),
    Refreshed(""),
    Refreshed("a"),
    RefreshFailed("a", "timeout"),
]


def journal_of_a_session() -> list[bytes]:
    """Return the journal of an engine that binds two pods and parks one."""
    lines: list[bytes] = []
    scheduler = JournaledScheduler(default_profile(), "run", lines.append)
    scheduler.observe(Seen(a_node("n", cpu="2")), 0.0)
    for name in ("p1", "p2", "p3"):
        scheduler.observe(Seen(a_pod(name, cpu="1")), 0.0)
    while pools := scheduler.ready(0.0):
        for pool in pools:
            scheduler.decide(pool, 0.0, 1)
    scheduler.stand_by(1.0)
    return lines


def test_every_kind_of_event_has_an_example_here() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    kinds = {kind.__name__ for kind in get_args(Object)}
    of_storage = {kind.__name__ for kind in get_args(StorageObject)}
    seen = {type(event.object).__name__ for event in EVENTS if isinstance(event, Seen)}
    ended = {event.kind for event in EVENTS if isinstance(event, Gone)}
    for told in (seen, ended):
        assert told | of_storage == kinds
        assert len(told & of_storage) == 1, "one stands for all of storage.k8s.io"


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_is_read_as_it_was_written(event: Event) -> None:
    lines: list[bytes] = []
    JournaledScheduler(default_profile(), "run", lines.append).observe(event, 1.5)
    assert read_call(2, lines[1]) == Observed(1.5, event)


def test_replay_of_a_session_has_no_difference() -> None:
    lines = journal_of_a_session()
    assert [line[:9] for line in lines[1:5]] == [b'["observe'] * 4
    assert sum(line.count(b'["Bind"') for line in lines) == 2
    assert replay(lines) is None


def test_difference_names_the_call_and_both_actions() -> None:
    lines = [line.replace(b'["Bind","uid-p2","n"', b'["Bind","uid-p2","m"') for line in journal_of_a_session()]
    found = replay(lines)
    assert found is not None
    assert b'"uid-p2","m"' in lines[found.line - 1]
    assert (found.now, found.pool) == (0.0, "default")
    assert found.recorded.startswith('["Bind","uid-p2","m","default"')
    assert found.replayed.startswith('["Bind","uid-p2","n","default"')


def test_action_that_only_one_side_has_is_a_difference() -> None:
    lines = journal_of_a_session()
    decided = next(i for i, line in enumerate(lines) if b'"Bind"' in line)
    del lines[decided]
    found = replay(lines)
    assert found is not None
    assert found.recorded != found.replayed


Change = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:0], "line 1: it is not the first line of a journal"),
        (lambda lines: [lines[0].replace(b'"journal":1', b'"journal":9'), *lines[1:]], "has the format 9"),
        (lambda lines: [*lines[:-1], lines[-1][:10]], "line 10: it is cut off or is no line of a journal"),
        (lambda lines: [*lines, b'["sing",1.0,[]]'], "'sing' is no call"),
        (lambda lines: [*lines, b'["observe",1.0,"PodSung",{}]'], "is cut off or is no line of a journal"),
    ],
)
def test_journal_that_cannot_be_read_is_refused_by_line(change: Change, message: str) -> None:
    with pytest.raises(JournalError, match=message):
        replay(change(journal_of_a_session()))


def test_profile_of_the_journal_decides() -> None:
    lines: list[bytes] = []
    scheduler = JournaledScheduler(default_profile(SCHEDULER_NAME, preemption=False), "run", lines.append)
    scheduler.observe(Seen(a_node("n", cpu="1")), 0.0)
    scheduler.observe(Seen(a_pod("low", cpu="1", node="n")), 0.0)
    scheduler.observe(Seen(a_pod("high", cpu="1", priority=9)), 0.0)
    actions = scheduler.decide("default", 0.0, 1)
    assert any("switched off for the whole scheduler" in str(action) for action in actions)
    assert replay(lines) is None


def test_rules_for_cards_and_groups_of_the_journal_decide() -> None:
    lines: list[bytes] = []
    rules = {"gpu_type_labels": ("card",), "rare_types": ("H200",), "machine_groups": (group_rule("g", team="x"),)}
    profile = msgspec.structs.replace(default_profile(gpu_type_labels=("card",)), **rules)
    scheduler = JournaledScheduler(profile, "run", lines.append)
    for event in (
        Seen(a_node("n", labels={"card": "NVIDIA-H200"})),
        Seen(a_pod("plain")),
        Seen(a_pod("named", gpu_types=("H200",))),
        Seen(a_pod("grouped", machine_group="g")),
    ):
        scheduler.observe(event, 0.0)
    text = str([scheduler.decide("default", 0.0, 9) for _ in range(3)])
    assert "had the rare GPU type H200" in text
    assert "may not name the machine group g" in text
    assert replay(lines) is None
