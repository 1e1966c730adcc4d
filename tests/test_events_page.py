"""The page on events and conditions has every reason that is written, on what it is written, and nothing else."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.report import event_messages, gang_writes
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.storage_resources import storage_resources
from aischeduler.kube.write import pod_writes
from aischeduler.kube.write.eviction_writes import Eviction
from aischeduler.model.actions import (
    Bind,
    Evict,
    EvictionCause,
    ReportGang,
    ReportPool,
    ReportQueue,
    ReportWaiting,
    Warn,
)
from aischeduler.model.device import NodeDevices
from aischeduler.model.elastic import MAX_INSTANCES_KEY, MIN_INSTANCES_KEY, Problem
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.events import Seen, objects_of
from aischeduler.model.gang import Gang, GangKey, GangPhase, GangSource, GangStatus
from aischeduler.model.names import MACHINE_GROUP_KEY as GROUP
from aischeduler.model.pod import CRITICAL_PRIORITY
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueSource, QueueState
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from aischeduler.model.workload import CARD_REQUEST_KEY, JobRef, TenantTerms, Workload
from tests.build import a_node, a_pod, a_pool, replace
from tests.devices import asks, has, part_of
from tests.engine.session import Session
from tests.gangs import a_gang, a_key, member
from tests.kube.resizes import a_resize
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

GANG_REPORTS = [
    ReportGang(
        Gang(GangKey(source, "default", "g"), 2, uid="u", invalid=invalid),
        GangStatus(phase, 2, members=2, placed=2, running=0),
    )
    for source in GangSource
    for phase in GangPhase
    for invalid in ("", "spec.minMember: bad")
]
"""Every report of a gang that there is."""
ELASTIC = ("Job", "JobSet", "Deployment", "StatefulSet")
"""The kinds that may be elastic."""

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "reference" / "events.md").read_text()
DEVICE = Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims")
POD = a_pod(
    "p",
    pool="nowhere",
    unsupported_constraints=(DEVICE,),
    gpu_types=("A10O",),
    gpu_type_required=False,
    machine_group="visoin",
)
BIND = Bind(POD, "n", "a", "a", "d-1", 1)
EVICT = Evict(POD, "n", "a", "a", EvictionCause.PREEMPTED, a_pod("owner"), "d-1")
WAITING = ReportWaiting(POD, "a", "a", "no room", "d-1")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table of a section, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]


def played() -> Session:
    """Return a session in which everything is wrong that the engine warns of."""
    a, b = ({"team": name} for name in "ab")
    session = Session(
        a_pool("bad", labels=b, invalid="spec.placement: 'x' is not one of Spread"),
        a_pool("a", labels=a),
        a_pool("also-a", labels=a),
        a_pool("empty", labels={"team": "c"}),
        a_pool("guest"),
        a_node("m", labels={GROUP: "vision", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}),
        a_node("n", labels=a, invalid="status.allocatable.cpu: '1.5.3' is not a quantity"),
        NodeDevices("n", faults=("spec.devices[0].type is missing",)),
        POD,
        member(a_pod("low"), "g", others=(a_key("g", source=GangSource.VOLCANO),)),
        member(a_pod("high", priority=1), "g"),
        profile=replace(default_profile(), hold_unsupported=False),
    )
    half = [member(a_pod(f"half-{turn}", cpu="64", priority=CRITICAL_PRIORITY), "half") for turn in (0, 1)]
    session.see(*half)
    session.tell(Seen(a_gang("g", 2)), Seen(a_gang("half", 2)))
    session.decide(1)
    session.see(replace(half[0], node_name="m"))
    holder = a_pod("holder", node="m", devices=asks(50), has=has(part_of(0, 50)))
    session.see(holder, replace(holder, devices=None))
    session.decide()
    session.decide(61)
    return session


def played_queues() -> Session:
    """Return a session with every reason that tenant queues give."""
    session = Session(profile=default_profile())
    queues = (
        a_queue("bad", invalid="spec.cards: has 65 names"),
        a_queue("ignored", source=QueueSource.VOLCANO, ignored=("spec.weight",)),
        a_queue("orphan", parent="missing"),
        a_queue("own-parent", parent="own-parent"),
        a_queue("closed", state=QueueState.CLOSED),
        a_queue("draining", state=QueueState.DRAINING),
        a_queue("fenced", allowed_namespaces=label_selector("", {"team": "a"}, ())),
        a_queue("cpu", cpu="1m"),
        a_queue("memory", memory="1"),
        a_queue("none", cpu="0"),
        a_queue("open", cards={"H200": 1}),
    )
    names = ("bad", "orphan", "closed", "fenced", "cpu", "memory", "none", "nowhere")
    session.tell(*(Seen(queue) for queue in queues))
    session.see(*(in_queue(a_pod(f"in-{name}"), name) for name in names), a_card_node("n", "NVIDIA-H200"))
    terms = TenantTerms("open", invalid=f"metadata.annotations[{CARD_REQUEST_KEY}]: is not JSON")
    session.see(replace(a_pod("asks"), terms=terms), in_queue(a_card_pod("cards", 2), "open"))
    session.see(in_queue(a_pod("says"), "open", service="trainning", preemptable=False))
    session.see(replace(in_queue(a_card_pod("runs"), "open"), node_name="n"))
    session.decide()
    session.tell(Seen(a_queue("open", cards={"H200": 0}, generation=2)))
    session.tell(Seen(Workload("Job", "default", "j", "uid-j", retries=1, managed=True)))
    session.tell(Seen(a_gang("j", 2, GangSource.JOB)))
    session.decide(2)
    return session


def written_events() -> list[tuple[EventReason, str]]:
    """Return reason and kind of object of every Event that there is."""
    of_pods = (
        event_messages.scheduled(BIND),
        event_messages.preempted(EVICT),
        *(event_messages.suspended(EVICT, JobRef(kind, "a", "j", "u")) for kind in ("Job", "JobSet")),
        event_messages.failed_scheduling(WAITING),
        *map(event_messages.resized, map(a_resize, ELASTIC)),
    )
    watched = (watched_resources.pods(SpecCache()), watched_resources.nodes(), watched_resources.pools())
    others = (watched_resources.budgets(), watched_resources.namespaces())
    kinds = [one.kind for one in (*watched, *others)] + [one.kind for one in storage_resources()]
    kinds += [one.kind for one in pod_set_resources()]
    kinds += sorted({one.kind.partition(".")[0] for one in (*gang_resources(GangOwners()), *queue_resources())})
    said = [*played().said, *played_queues().said]
    of_gangs = [note for report in GANG_REPORTS if (note := gang_writes.phase_event(report, None)) is not None]
    return [
        *((note.reason, note.regarding.kind) for note in of_pods),
        *((note.reason, note.regarding.kind.partition(".")[0]) for note in of_gangs),
        *((warn.reason, warn.about.kind.partition(".")[0]) for warn in said if isinstance(warn, Warn)),
        *((event_messages.failed_scheduling(told).reason, "Pod") for told in said if isinstance(told, ReportWaiting)),
        *((problem.reason, kind) for kind in ELASTIC for problem in problems_of_elastic(kind)),
        *((EventReason.FAILED_SCHEDULING, kind) for kind in ELASTIC),  # `engine.elastic.note_wait`
        *((EventReason.UNREADABLE, kind) for kind in kinds),
    ]


def problems_of_elastic(kind: str) -> list[Problem]:
    """Return the problems of workloads of this kind that ask to be elastic: a bad minimum, and another writer."""
    (resource,) = (one for one in (*gang_resources(GangOwners()), *pod_set_resources()) if one.kind == kind)
    found = []
    for lowest, labels in (("0", {}), ("1", {"kueue.x-k8s.io/queue-name": "q"})):
        annotations = {MIN_INSTANCES_KEY: lowest, MAX_INSTANCES_KEY: "2"}
        metadata = {"name": "w", "namespace": "a", "annotations": annotations, "labels": labels}
        (workload,) = objects_of(resource.read(json.dumps({"metadata": metadata}).encode()), Workload)
        assert workload.elastic is not None
        assert workload.elastic.problem is not None
        found.append(workload.elastic.problem)
    return found


def conditions_of_gangs() -> list[Any]:
    """Return every condition of a PodGroup that there is."""
    reports = [report for report in GANG_REPORTS if gang_writes.object_paths(report.gang)]
    bodies = [gang_writes.status_patch(report, {"metadata": {"uid": "u"}}, "T") for report in reports]
    patches: list[Any] = [json.loads(body) for body in bodies if body is not None]
    return [one for patch in patches for one in patch["status"]["conditions"]]


def written_conditions() -> list[tuple[str, ...]]:
    """Return reason, kind of object, type and status of every condition that there is."""
    told = [action for action in played().said if isinstance(action, ReportPool)]
    queues = [action for action in played_queues().said if isinstance(action, ReportQueue)]
    mark = Eviction(EVICT, "ai-scheduler", honour_budgets=False).request("T").body
    patches: list[Any] = [json.loads(body) for body in (pod_writes.waiting_condition(POD, "no room", "T")[1], mark)]
    of_pods = [one for patch in patches for one in patch["status"]["conditions"]]
    return [
        *((one.reason, "Pool", one.type, str(one.status)) for report in told for one in report.conditions),
        *((one.reason, "Queue", one.type, str(one.status)) for report in queues for one in report.conditions),
        *((one["reason"], "Pod", one["type"], one["status"]) for one in of_pods),
        *((one["reason"], "PodGroup", one["type"], one["status"]) for one in conditions_of_gangs()),
    ]


def test_every_reason_of_an_event_is_explained_with_its_type_and_its_objects_and_nothing_else_is() -> None:
    found = {(reason, str(reason.type), kind) for reason, kind in written_events()}
    assert {reason for reason, *_ in found} == set(EventReason)
    table = [(cells[0].strip("`"), cells[1], kind) for cells in rows("Events") for kind in cells[2].split(", ")]
    assert sorted(table) == sorted(found)


def test_every_reason_of_a_condition_is_explained_with_its_condition_and_nothing_else_is() -> None:
    found = set(written_conditions())
    assert {reason for reason, *_ in found} == set(ConditionReason)
    table = [tuple(cell.strip("`") for cell in cells[:4]) for cells in rows("Conditions")]
    assert sorted(table) == sorted(found)


@pytest.mark.parametrize("heading", ["Events", "Conditions"])
def test_every_row_says_what_it_means_and_what_to_do(heading: str) -> None:
    head = next(line for line in PAGE.partition(f"\n## {heading}\n")[2].splitlines() if line.startswith("| Reason"))
    assert head.endswith("| Means | What to do |")
    assert [cells for cells in rows(heading) if len(cells) != head.count("|") - 1 or not all(cells)] == []


def test_no_document_has_a_reason_that_is_not_one_of_the_list() -> None:
    texts = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "aischeduler" / "kube").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "reason" and isinstance(value, ast.Constant)
    ]
    assert texts == []
