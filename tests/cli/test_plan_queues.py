"""`ai-scheduler plan` of tenant queues: who starts, who is reclaimed, and which queue would be over its quota."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, write_lines
from aischeduler.cli.app import main
from aischeduler.model.events import Event, Seen
from aischeduler.model.pod import Pod
from aischeduler.model.workload import ServiceType
from tests.build import replace
from tests.objects import Json
from tests.queue_objects import queue_object, volcano_queue_object
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

NOW = 1_767_225_600
QUEUE = "resource.aibee.cn/queue"


def running(pod: Pod) -> Pod:
    return replace(pod, node_name="n", phase="Running", started_seconds=NOW - 100)


CLUSTER: tuple[Event, ...] = (
    Seen(a_queue("org", cards={"NVIDIA-H200": 8})),
    Seen(a_queue("day", parent="org", priority=9)),
    Seen(a_queue("night", parent="org", cards={"H200": 6})),
    Seen(a_card_node("n", "NVIDIA-H200")),
    *(
        Seen(running(in_queue(a_card_pod(f"train-{at}", 2, priority=at), "night", service=ServiceType.TRAINING)))
        for at in range(3)
    ),
    Seen(in_queue(a_card_pod("more", 2, created=5), "night", service=ServiceType.TRAINING)),
)


class Planned:
    """Plans files on the cluster."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory, self._capsys = directory, capsys
        lines = write_lines(ClusterSnapshot(NOW, CLUSTER, ()))
        (directory / "cluster.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def __call__(self, *documents: Json, form: str = "json") -> Any:
        path = self._directory / "f.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        output = ("-o", "json") if form == "json" else ()
        assert main(["plan", "--snapshot", str(self._directory / "cluster.jsonl"), "-f", str(path), *output]) == 0
        said = self._capsys.readouterr()
        assert said.err == ""
        return json.loads(said.out) if form == "json" else said.out


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    return Planned(tmp_path, capsys)


def a_deployment(queue: str, replicas: int, gpus: int, service: str = "inference") -> Json:
    """Return a Deployment that says on itself alone whose share it uses, as Volcano's users do."""
    requests = {"cpu": "1", "nvidia.com/gpu": gpus}
    container = {"name": "a", "image": "x", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": "ai-scheduler", "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "annotations": {QUEUE: queue, "volcano.sh/service.type": service}},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }


def test_service_takes_back_what_training_uses_within_its_quota(planned: Planned) -> None:
    plan = planned(queue_object("org", cards={"NVIDIA-H200": 12}), a_deployment("day", 2, 2))
    (unit,) = plan["units"]
    assert (unit["verdict"], unit["nodes"]) == ("evicts", {"serve-0": "n", "serve-1": "n"})
    assert unit["evictions"] == [
        {
            "pod": "default/train-0",
            "node": "n",
            "cause": "QueueReclaimed",
            "beneficiary": "default/serve-1",
            "queue": "night",
        }
    ]
    text = planned(queue_object("org", cards={"NVIDIA-H200": 12}), a_deployment("day", 2, 2), form="text")
    assert "takes back from the queue night: default/train-0." in text


def test_service_beyond_the_quota_of_an_ancestor_waits_and_says_which(planned: Planned) -> None:
    (unit,) = planned(a_deployment("day", 2, 2))["units"]
    assert (len(unit["nodes"]), unit["verdict"], unit["evicts"]) == (1, "waits", [])
    assert unit["waitsFor"] == (
        "Queue org has insufficient NVIDIA-H200 quota: requested 2, total would be 10, but capability is 8"
    )


def test_raised_quota_starts_who_waits_and_a_lowered_one_is_named(planned: Planned) -> None:
    raised = planned(queue_object("night", parent="org", cards={"H200": 8}))
    assert ([start["pod"] for start in raised["alsoStarts"]], raised["overQuota"]) == (["default/more"], [])
    lowered = queue_object("night", parent="org", cards={"H200": 4}, capability={"cpu": "2"})
    plan = planned(lowered)
    assert plan["overQuota"] == [
        {"queue": "night", "kind": "resource", "name": "cpu", "used": "3", "quota": "2"},
        {"queue": "night", "kind": "card", "name": "H200", "used": "6", "quota": "4"},
    ]
    assert (plan["alsoStarts"], plan["alsoEvicts"]) == ([], [])
    assert "The queue night is over its quota: H200 6 of 4." in planned(lowered, form="text")


def test_service_that_waits_names_the_training_that_it_may_not_evict(planned: Planned) -> None:
    kept = queue_object("night", parent="org", cards={"H200": 6}, reclaimable=False)
    (unit,) = planned(queue_object("org", cards={"NVIDIA-H200": 12}), kept, a_deployment("day", 2, 2))["units"]
    text = "default/train-0, default/train-1, default/train-2: reclaimable of the queue night is false"
    assert (unit["verdict"], f"it may not evict {text}" in unit["notes"]) == ("waits", True)


@pytest.mark.parametrize(
    ("queue", "note"),
    [
        (
            queue_object("night", parent="org", cards={"H200": 4}, shrinkAfter="10m"),
            "The queue night is above its quota: pods are evicted for it from 2026-01-01T00:10:",
        ),
        (
            queue_object("night", parent="org", state="Draining", drainAfter="10m"),
            "The queue night drains: pods are evicted for it from 2026-01-01T00:10:",
        ),
        (queue_object("night", parent="gro"), "The queue night takes nothing new: its parent gro does not exist"),
        (volcano_queue_object("night", cards={"H200": 2}), "The queue night of Volcano does not count, because"),
    ],
)
def test_queue_that_takes_nothing_or_evicts_later_than_the_plan_goes_is_a_note(
    planned: Planned, queue: Json, note: str
) -> None:
    plan = planned(queue)
    assert [said[: len(note)] for said in plan["notes"]] == [note]
    assert plan["alsoEvicts"] == []


def test_queue_that_is_new_takes_the_pods_that_wait_for_it(planned: Planned) -> None:
    plan = planned(queue_object("new", parent="org"), a_deployment("new", 1, 2))
    assert plan["units"][0]["verdict"] == "starts"
    assert planned(a_deployment("new", 1, 2))["units"][0]["waitsFor"].startswith("The queue new does not exist")
