"""A snapshot survives its file byte by byte, and a file that is not a whole snapshot is refused in one sentence."""

import pytest

from aischeduler.analysis.cluster_snapshot import (
    ClusterSnapshot,
    PriorityClass,
    SnapshotError,
    loaded,
    read_lines,
    write_lines,
)
from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Bind
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import QueuesServed, Seen
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace
from aischeduler.model.selectors import Operator, label_selector
from aischeduler.model.storage_objects import StorageClass
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import TenantTerms, Workload
from tests.build import a_node, a_pod, a_pool, a_taint, a_term, expression, tolerates
from tests.tenants import a_queue

SNAPSHOT = ClusterSnapshot(
    1_767_225_600,
    (
        Seen(Namespace("team", {"team": "a"})),
        Seen(a_pool("a", labels={"pool": "a"}, lending_limit={"cpu": 1000}, allowed_namespaces={"team": "a"})),
        Seen(a_node("n1", cpu="4", labels={"pool": "a", "zone": "x"}, taints=(a_taint("closed"),))),
        Seen(DisruptionBudget("team", "b", "uid-b", None, 2, frozenset(("x",)))),
        QueuesServed(served=True),
        Seen(a_queue("vision", cards={"NVIDIA-H200": 8}, cpu="4", priority=7)),
        Seen(Workload("ReplicaSet", "team", "web-7", owner="Deployment/web", terms=TenantTerms(queue="vision"))),
        Seen(StorageClass("fast", "csi.example", waits=True)),
        Seen(Volume("v", (a_term(expression("zone", Operator.IN, "x")),))),
        Seen(VolumeClaim("team", "c", "v", bound=True)),
        Seen(PodSet("ReplicaSet", "team", "web-7", label_selector("spec.selector", {"app": "web"}, ()))),
        Seen(
            a_pod(
                "p1",
                namespace="team",
                cpu="500m",
                pool="a",
                priority=7,
                required=(a_term(expression("zone", Operator.IN, "x", "y")),),
                tolerations=(tolerates("closed"),),
            )
        ),
    ),
    (PriorityClass("high", 10, global_default=True, preemption_policy="Never"),),
    ("a gap",),
)
LINES = tuple(write_lines(SNAPSHOT))


def actions(snapshot: ClusterSnapshot) -> list[Action]:
    scheduler, now = loaded(default_profile(), snapshot), float(snapshot.taken_seconds)
    return [action for pool in scheduler.ready(now) for action in scheduler.decide(pool, now, 10)]


def test_lines_give_the_same_snapshot() -> None:
    assert read_lines(LINES) == SNAPSHOT
    assert tuple(write_lines(read_lines(LINES))) == LINES


def test_engine_of_a_read_snapshot_decides_the_same() -> None:
    assert any(isinstance(action, Bind) for action in actions(SNAPSHOT))
    assert actions(read_lines(LINES)) == actions(SNAPSHOT)


@pytest.mark.parametrize("count", range(1, len(LINES)))
def test_file_that_ends_after_a_line_is_cut_off(count: int) -> None:
    with pytest.raises(SnapshotError, match=f"cut off after {count - 1} objects"):
        read_lines(LINES[:count])


def test_file_that_ends_inside_a_line_names_the_line() -> None:
    with pytest.raises(SnapshotError, match="line 3 is cut off"):
        read_lines([*LINES[:2], LINES[2][:-5]])


def test_file_that_lacks_a_line_in_the_middle_is_refused() -> None:
    with pytest.raises(SnapshotError, match=f"it has {len(LINES) - 3} objects and should have {len(LINES) - 2}"):
        read_lines([*LINES[:3], *LINES[4:]])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"snapshot":2,"other":1}', "the snapshot has version 2, and this program reads version 1"),
        (b'{"journal":1}', "it is not a snapshot: its first line has no version"),
        (b"apiVersion: v1", "it is not a snapshot: its first line cannot be read"),
        (b"", "it is not a snapshot: its first line cannot be read"),
        (b"\xff\xfe", "it is not a snapshot: its first line cannot be read"),
    ],
)
def test_other_first_line_is_one_sentence(line: bytes, sentence: str) -> None:
    with pytest.raises(SnapshotError, match=sentence):
        read_lines([line, *LINES[1:]])
