"""`ai-scheduler jobs`, and `explain` of elastic jobs: the table, the paragraph, JSON, and exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from aischeduler.analysis.cluster_snapshot import write_lines
from aischeduler.cli.app import main
from aischeduler.model.elastic import PriorityLevel, Problem
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pod import Pod
from aischeduler.model.workload import Workload
from tests.analysis.elastic_world import CORE_SECOND, HOUR, AJobSeen, a_snapshot
from tests.build import a_node, a_pod, replace

FIELDS = {
    "place", "kind", "namespace", "name", "level", "weight", "serviceCoreSeconds", "shareThousandths", "size",
    "nextSize", "running", "minInstances", "maxInstances", "allowedInstances", "freezingWindowSeconds",
    "frozenUntilSeconds", "waitsSinceSeconds", "state", "growth", "ignored",
}  # fmt: skip

TRAIN = AJobSeen("train", 2, 8, ["n1"] * 4, service=2 * HOUR * CORE_SECOND, level=PriorityLevel.OFFLINE)
TUNE = AJobSeen("tune", 1, 4, ["n2"] * 3, service=HOUR * CORE_SECOND, resized_before=15)


class Asked:
    """Runs commands on a snapshot of a cluster."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path, self._capsys = directory / "cluster.jsonl", capsys

    def cluster(self, *things: Any) -> None:
        lines = write_lines(a_snapshot(*things))
        self._path.write_bytes(b"".join(line + b"\n" for line in lines))

    def __call__(self, words: str, status: int = 0) -> tuple[str, str]:
        """Return what a command printed on both outputs."""
        assert main([*words.split(), "--snapshot", str(self._path)]) == status
        said = self._capsys.readouterr()
        return said.out, said.err


@pytest.fixture
def asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    found = Asked(tmp_path, capsys)
    found.cluster(
        a_node("n1", cpu="4"),
        a_node("n2", cpu="3"),
        TRAIN,
        TUNE,
        AJobSeen("next", 2, 4, [], waits=2),
        a_pod("other", namespace="team", scheduler_name="default-scheduler"),
    )
    return found


def test_table_has_the_least_served_first(asked: Asked) -> None:
    out, err = asked("jobs")
    assert err == ""
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "Job Level Service Share Size Frozen State",
        "─" * len(out.splitlines()[1]),
        "Job/next Normal 0 0 % 0/2/2-4 waits for its minimum since 2025-12-31T23:00:00Z",
        "Job/tune Normal 3.6k 83 % 3/3/1-4 15s running",
        "Job/train Offline 7.2k 17 % 4/2/2-8 shrinking to 2",
    ]


def test_json_has_every_field_with_its_unit(asked: Asked) -> None:
    out, _ = asked("jobs -o json")
    found = json.loads(out)
    assert [one["name"] for one in found] == ["next", "tune", "train"]
    assert all(one.keys() == FIELDS for one in found)
    tune = found[1]
    assert (tune["place"], tune["serviceCoreSeconds"], tune["shareThousandths"]) == (2, HOUR, 833)
    assert (tune["minInstances"], tune["maxInstances"], tune["freezingWindowSeconds"]) == (1, 4, 30)
    assert (tune["state"], tune["growth"]["obstacle"], tune["growth"]["next"]) == ("running", "frozen", 4)


def test_namespace_leaves_out_the_others_and_says_where_there_is_none(asked: Asked) -> None:
    assert len(asked("jobs -n default")[0].splitlines()) == 5
    out, err = asked("jobs -n team")
    assert len(out.splitlines()) == 2
    assert err.startswith("no job asks to be elastic, by the annotations resource.aibee.cn/min-instances and ")
    assert err.endswith(" in the namespace team\n")


def test_snapshot_that_cannot_be_read_is_one_sentence(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--snapshot", "/nowhere"]) == 1
    assert capsys.readouterr().err == "ai-scheduler: /nowhere: cannot be read: No such file or directory\n"


def test_explain_begins_with_the_job_and_goes_on_with_its_pods(asked: Asked) -> None:
    asked.cluster(a_node("n1", cpu="4"), a_node("n2", cpu="3"), TRAIN, TUNE)
    lines = asked("explain job/train")[0].splitlines()
    assert lines[:4] == [
        "Job/train is elastic: 4 of its 4 instances are on nodes, between 2 and 8.",
        "Number 2 of 2, the least served first: level Offline, has received 7.2k core-seconds, 17 % of all.",
        (
            "Why this size: None of the 2 nodes of the pool default has room for one more instance (2 by "
            "NodeResourcesFit); n1 lacks 1 of 1 cpu."
        ),
        "What makes it grow: 1 more cpu free on n1 of the pool default.",
    ]
    assert lines[4] == ""
    assert lines[5].split() == ["Pod", "Verdict", "Ahead", "Nearest", "node", "Starts", "with"]
    assert [line.split()[:2] for line in lines[7:]] == [[f"default/train-{n}", "bound"] for n in range(4)]


def test_explain_says_that_a_job_shrinks_while_another_waits_for_its_minimum(asked: Asked) -> None:
    assert "Why this size: It shrinks from 4 to 2 instances now.\n" in asked("explain job/train")[0]


def test_explain_of_a_frozen_job_names_the_end_of_its_window(asked: Asked) -> None:
    out, _ = asked("explain job/tune")
    assert (
        "Why this size: It is frozen until 2026-01-01T00:00:15Z: 30 s from its last resize it keeps its size.\n" in out
    )
    assert "What makes it grow: Its window ends; none of the 2 nodes of the pool default has room for one more" in out


def test_explain_as_json_has_the_job(asked: Asked) -> None:
    found = json.loads(asked("explain job/next -o json")[0])
    assert found["job"].keys() == FIELDS
    assert (found["job"]["state"], found["job"]["growth"]["obstacle"]) == ("waiting", "minimumWaits")
    assert [item["verdict"] for item in found["items"]] == ["waits"]
    assert json.loads(asked("explain --all --pool default -o json")[0])["job"] is None


def test_job_that_asks_to_be_elastic_and_is_not_says_why(asked: Asked) -> None:
    problem = Problem(EventReason.NOT_ELASTIC, "spec.managedBy: 'example.com/x' controls it")
    asked.cluster(a_node("n"), *AJobSeen("a", 1, 2, ["n"]).seen(problem=problem))
    out, _ = asked("explain job/a")
    assert out.splitlines()[:2] == [
        "Job/a asks to be elastic and is not: spec.managedBy: 'example.com/x' controls it. It keeps its size.",
        "Let only this scheduler choose its size.",
    ]
    assert "not elastic: spec.managedBy: 'example.com/x' controls it" in asked("jobs")[0]


def test_explain_names_the_sizes_that_have_no_effect(asked: Asked) -> None:
    asked.cluster(a_node("n"), *AJobSeen("a", 1, 2, ["n"], allowed=(1,)).seen(ignored="16 has no effect"))
    out, _ = asked("explain job/a")
    assert out.splitlines()[2:5] == [
        "Why this size: It has 1, the largest size allowed to it.",
        "What makes it grow: Allow a size above 1.",
        "What has no effect: 16 has no effect.",
    ]


def test_suspended_job_without_pods_is_explained(asked: Asked) -> None:
    asked.cluster(a_node("n"), *AJobSeen("a", 1, 2, []).seen(suspended=True)[:2])
    out, _ = asked("explain job/a")
    assert out.splitlines()[-2:] == [
        "Why this size: It is suspended, and keeps its size.",
        "What makes it grow: Resume it.",
    ]


def test_job_that_does_not_ask_to_be_elastic_is_explained_as_before(asked: Asked) -> None:
    asked.cluster(a_node("n"), a_pod("plain-0", labels={"job-name": "plain"}, created=5))
    out, _ = asked("explain job/plain")
    assert out.splitlines()[0].split()[0] == "Pod"
    assert json.loads(asked("explain job/plain -o json")[0])["job"] is None


def owned(job: AJobSeen, owner: str) -> list[Any]:
    """Return a job whose object another one controls."""
    return [replace(one, owner=owner) if isinstance(one, Workload) else one for one in job.seen()]


def test_training_job_is_its_job_of_trainers_with_master_and_servers(asked: Asked) -> None:
    master = a_pod("a-master-0", created=5)
    asked.cluster(
        a_node("n", cpu="4"),
        *owned(AJobSeen("a-trainer", 2, 8, ["n", "n"]), "TrainingJob/a"),
        replace(master, owner="TrainingJob/a", node_name="n"),
    )
    for target in ("tj/a", "trainingjob/a"):
        lines = asked(f"explain {target}")[0].splitlines()
        assert lines[0] == "Job/a-trainer is elastic: 2 of its 2 instances are on nodes, between 2 and 8."
        assert [line.split()[0] for line in lines if line.startswith("default/a-")] == [
            "default/a-master-0",
            "default/a-trainer-0",
            "default/a-trainer-1",
        ]


def test_trainers_are_found_by_their_name_where_no_owner_is_known(asked: Asked) -> None:
    asked.cluster(a_node("n", cpu="4"), AJobSeen("a-trainer", 2, 8, ["n", "n"]))
    assert asked("explain tj/a")[0].startswith("Job/a-trainer is elastic:")


@pytest.mark.parametrize(("target", "kind"), [("jobset", "JobSet"), ("deployment", "Deployment")])
def test_other_kinds_are_found_with_the_pods_below_them(target: str, kind: str, asked: Asked) -> None:
    seen = AJobSeen("a", 1, 8, ["n", "n"]).seen()
    workload = next(one for one in seen if isinstance(one, Workload))
    above = replace(workload, kind=kind, name="top")
    below = replace(workload, elastic=None, owner=f"{kind}/top")
    pods = [one for one in seen if one is not workload][1:]
    asked.cluster(a_node("n", cpu="4"), above, below, *pods)
    lines = asked(f"explain {target}/top")[0].splitlines()
    assert lines[0].startswith(f"{kind}/top is elastic: 2 of its 2 instances are on nodes")
    assert sum(line.startswith("default/a-") for line in lines) == 2


CLONE_SETS = "elastic: {kinds: [{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, resource: clonesets}]}"


@pytest.mark.parametrize("above", ["CloneSet/top", "ReplicaSet/top-1"])
def test_kind_of_the_configuration_is_found_with_its_pods(above: str, asked: Asked, tmp_path: Path) -> None:
    seen = AJobSeen("a", 1, 8, ["n", "n"]).seen()
    workload = next(one for one in seen if isinstance(one, Workload))
    pods = [replace(one, owner=above, gang=None) for one in seen if isinstance(one, Pod)]
    between = Workload("ReplicaSet", workload.namespace, "top-1", "uid-between", owner="CloneSet/top")
    asked.cluster(a_node("n", cpu="4"), replace(workload, kind="CloneSet", name="top"), between, *pods)
    (tmp_path / "config.yaml").write_text(CLONE_SETS)
    config = f"--config {tmp_path / 'config.yaml'}"
    lines = asked(f"explain cloneset/top {config}")[0].splitlines()
    assert lines[0].startswith("CloneSet/top is elastic: 2 of its 2 instances are on nodes")
    assert sum(line.startswith("default/a-") for line in lines) == 2
    assert "CloneSet/top" in asked(f"jobs {config}")[0]
    assert "nor statefulset/NAME" in asked("explain cloneset/top", 2)[1]
    assert "nor cloneset/NAME" in asked(f"explain clone/top {config}", 2)[1]


@pytest.mark.parametrize(
    ("target", "status", "sentence"),
    [
        ("job/none", 3, "there is no unfinished pod of the Job default/none"),
        ("tj/none", 3, "there is no unfinished pod of the TrainingJob default/none"),
        ("deployment/", 2, "deployment/ is neither a pod, nor pod/NAME, nor job/NAME, nor jobset/NAME"),
    ],
)
def test_reason_for_no_explanation_has_its_status(target: str, status: int, sentence: str, asked: Asked) -> None:
    out, err = asked(f"explain {target}", status)
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err
