"""`ai-scheduler plan` with elastic jobs: what starts, to how many it grows, and which other jobs get another size."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import write_lines
from aischeduler.cli.app import main
from aischeduler.model.elastic import FREEZING_WINDOW_KEY, MAX_INSTANCES_KEY, MIN_INSTANCES_KEY
from tests.analysis.elastic_world import CORE_SECOND, HOUR, AJobSeen, a_snapshot
from tests.build import a_node, a_pod, a_pool
from tests.gang_objects import job_set_object
from tests.objects import job_object, pod_object

TERMS = {MIN_INSTANCES_KEY: "2", MAX_INSTANCES_KEY: "8"}


class Planned:
    """Plans documents on a cluster that a snapshot has: at first one node of six CPUs in the pool `a`."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._directory, self._capsys = directory, capsys
        self.cluster(a_node("n", cpu="6", labels={"pool": "a"}))

    def cluster(self, *things: Any) -> None:
        lines = write_lines(a_snapshot(a_pool("a", labels={"pool": "a"}), *things))
        (self._directory / "cluster.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def text(self, *documents: Any, options: tuple[str, ...] = (), status: int = 0) -> tuple[str, str]:
        """Return what is printed on both outputs."""
        path = self._directory / "f.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        options = ("-f", str(path), "--snapshot", str(self._directory / "cluster.jsonl"), *options)
        assert main(["plan", *options]) == status
        said = self._capsys.readouterr()
        return said.out, said.err.replace(f"{self._directory}/", "")

    def __call__(self, *documents: Any, options: tuple[str, ...] = ()) -> Any:
        out, err = self.text(*documents, options=("-o", "json", *options))
        assert err == ""
        return json.loads(out)


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    return Planned(tmp_path, capsys)


def a_job(parallelism: int = 5, window: str = "5m") -> Any:
    document = job_object("train", completions=parallelism, parallelism=parallelism, cpu="1", pool="a")
    document["spec"]["completionMode"] = "Indexed"
    document["metadata"]["annotations"] = {**TERMS, FREEZING_WINDOW_KEY: window}
    return document


def test_job_starts_with_its_minimum_and_grows_to_what_fits(planned: Planned) -> None:
    found = planned(a_job())
    (unit,) = found["units"]
    assert (unit["verdict"], unit["nodes"]) == ("starts", {"train-0": "n", "train-1": "n"})
    assert unit["instances"] == {"minimum": 2, "maximum": 8, "wouldGrowTo": 6}
    assert unit["notes"] == ["it starts with 2 instances, would grow to 6"]
    assert (found["alsoStarts"], found["atRest"], "resizes" in found) == ([], True, False)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_deployment_or_stateful_set_starts_with_its_minimum_and_grows_to_what_fits(planned: Planned, kind: str) -> None:
    pods = {key: pod_object("web", cpu="1", pool="a")[key] for key in ("metadata", "spec")}
    document = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "annotations": {**TERMS, FREEZING_WINDOW_KEY: "5m"}},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": pods},
    }
    found = planned(document)
    (unit,) = found["units"]
    assert (unit["verdict"], unit["nodes"]) == ("starts", {"web-0": "n", "web-1": "n"})
    assert unit["instances"] == {"minimum": 2, "maximum": 8, "wouldGrowTo": 6}


def test_text_says_so_below_the_table(planned: Planned) -> None:
    out, _ = planned.text(a_job())
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "Unit Start Verdict Nodes",
        "─" * len(out.splitlines()[1]),
        "Job/train 2/2 starts n ×2",  # noqa: RUF001
        "Job/train: it starts with 2 instances, would grow to 6",
    ]


def test_job_without_room_to_grow_says_why(planned: Planned) -> None:
    planned.cluster(a_node("n", cpu="2", labels={"pool": "a"}))
    (unit,) = planned(a_job())["units"]
    (note,) = unit["notes"]
    assert note.startswith("it starts with 2 instances, would not grow: The one node of the pool a does not have room")


def test_job_whose_minimum_does_not_fit_waits_and_does_not_grow(planned: Planned) -> None:
    planned.cluster(a_node("n", cpu="1", labels={"pool": "a"}))
    (unit,) = planned(a_job())["units"]
    assert (unit["verdict"], unit["notes"]) == ("waits", [])
    assert unit["instances"] == {"minimum": 2, "maximum": 8, "wouldGrowTo": 2}


def test_running_job_shrinks_for_the_minimum_of_a_planned_one(planned: Planned) -> None:
    running = AJobSeen("there", 1, 8, ["n"] * 6, service=HOUR * CORE_SECOND, pool="a")
    planned.cluster(a_node("n", cpu="6", labels={"pool": "a"}), running)
    document = a_job(window="30s")
    found = planned(document)
    (unit,) = found["units"]
    assert (unit["verdict"], unit["evicts"]) == ("starts", [])
    assert found["resizes"] == [{"job": "Job/there", "before": 6, "after": 3}]
    assert "Also resizes: Job/there from 6 to 3 instances.\n" in planned.text(document)[0]


def test_what_a_running_job_does_without_the_change_is_a_note(planned: Planned) -> None:
    planned.cluster(a_node("n", cpu="6", labels={"pool": "a"}), AJobSeen("there", 1, 8, ["n"] * 2, pool="a"))
    found = planned(pod_object("p", pool="a", cpu="7"))
    assert found["notes"] == ["Without this change too, Job/there would have the size 6 instead of 2"]
    assert found["alsoStarts"] == []


def test_home_pod_takes_surplus_by_a_smaller_size(planned: Planned) -> None:
    running = AJobSeen("there", 2, 8, ["n"] * 6, pool="a")
    planned.cluster(a_node("n", cpu="6", labels={"pool": "a"}), running)
    found = planned(pod_object("home", pool="a", cpu="2"))
    (unit,) = found["units"]
    assert (unit["verdict"], sorted(unit["evicts"])) == ("evicts", ["default/there-4", "default/there-5"])
    assert found["resizes"] == [{"job": "Job/there", "before": 6, "after": 4}]


def test_jobs_that_exchange_room_for_ever_come_to_rest(planned: Planned) -> None:
    jobs = [
        AJobSeen(name, 1, 8, ["n"] * 3, service=HOUR * CORE_SECOND * place, window=0.0, pool="a")
        for place, name in enumerate(("one", "two"), 1)
    ]
    planned.cluster(a_node("n", cpu="7", labels={"pool": "a"}), *jobs)
    assert planned(pod_object("p", pool="a", cpu="9"))["atRest"]


def test_job_that_is_not_elastic_is_planned_as_written_and_says_why(planned: Planned) -> None:
    document = a_job(parallelism=3)
    document["spec"]["managedBy"] = "example.com/x"
    (unit,) = planned(document)["units"]
    assert (len(unit["nodes"]), "instances" in unit) == (3, False)
    assert unit["notes"] == ["it is not elastic: spec.managedBy: 'example.com/x' controls it"]


def test_replicas_do_not_change_how_an_elastic_job_starts(planned: Planned) -> None:
    (unit,) = planned(a_job(), options=("--replicas", "4"))["units"]
    assert len(unit["nodes"]) == 2
    assert unit["notes"][0] == "it is elastic, so --replicas does not change how it starts"


def test_suspended_job_brings_no_pods(planned: Planned) -> None:
    document = a_job()
    document["spec"]["suspend"] = True
    (unit,) = planned(document)["units"]
    assert unit["pods"] == 0


def test_job_set_starts_with_the_minimum_of_its_elastic_part(planned: Planned) -> None:
    planned.cluster(a_node("n", cpu="6"))
    document = job_set_object("set", gang="", jobs={"leader": (2, 1), "workers": (1, 4)})
    document["metadata"]["annotations"] = TERMS
    (unit,) = planned(document)["units"]
    assert (unit["kind"], unit["verdict"], len(unit["nodes"])) == ("JobSet", "starts", 4)
    assert unit["instances"]["wouldGrowTo"] == 4


def a_training_job(**spec: Any) -> Any:
    return {
        "apiVersion": "resource.aibee.cn/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "train"},
        "spec": {
            "image": "registry.example.com/train:1",
            "faultTolerant": True,
            "pool": "a",
            "master": {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
            "pserver": {"minInstances": 1, "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}},
            "trainer": {
                "entrypoint": "python train.py",
                "minInstances": 2,
                "maxInstances": 8,
                "resources": {"requests": {"cpu": 1, "memory": "1Gi"}},
            },
        }
        | spec,
    }


def test_training_job_is_one_unit_with_master_and_servers_and_grows_by_its_trainers(planned: Planned) -> None:
    found = planned(a_training_job())
    (unit,) = found["units"]
    assert (unit["kind"], unit["name"], unit["verdict"]) == ("TrainingJob", "train", "starts")
    assert sorted(unit["nodes"]) == ["train-master-0", "train-pserver-0", "train-trainer-0", "train-trainer-1"]
    assert unit["instances"] == {"minimum": 2, "maximum": 8, "wouldGrowTo": 4}


def test_training_job_that_the_operator_refuses_is_a_finding(planned: Planned) -> None:
    out, err = planned.text(a_training_job(faultTolerant=False), status=1)
    assert out == ""
    assert err.startswith("f.yaml:1 TrainingJob/train: ")
    assert err.count("\n") == 1


def test_pods_of_other_jobs_are_planned_as_before(planned: Planned) -> None:
    planned.cluster(a_node("n", cpu="6", labels={"pool": "a"}), a_pod("there", pool="a", node="n"))
    document = job_object("plain", completions=3, parallelism=3, cpu="1", pool="a")
    (unit,) = planned(document)["units"]
    assert (len(unit["nodes"]), "instances" in unit, unit["notes"]) == (3, False, [])
