"""`ai-scheduler plan`: what it reads, what it prints, and what it says of files that cannot be planned."""

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass, write_lines
from aischeduler.cli.app import main
from aischeduler.cli.demo_cluster import cluster, create
from aischeduler.cli.plan_output import VERSION
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.model.events import Event, Seen
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from aischeduler.sandbox.http_server import HttpSandbox
from tests.build import a_node, a_pod, a_pool
from tests.gang_objects import indexed_job_object, job_set_object
from tests.objects import job_object, pod_object, pool_object

UNIT_FIELDS = {
    "name", "kind", "namespace", "pods", "verdict", "nodes", "evicts", "evictions", "lender", "lenders",
    "waitsFor", "waits", "notes",
}  # fmt: skip
PLAN_FIELDS = {
    "replicas", "pool", "units", "alsoStarts", "alsoEvicts", "loanChanges", "poolNodes", "overQuota", "notes", "atRest",
}  # fmt: skip
CLASSES = (
    PriorityClass("base", 3, global_default=True),
    PriorityClass("high", 9),
    PriorityClass("kind", 9, False, "Never"),
)


class Planned:
    """Plans files on a cluster of two pools: `a` has two nodes with a low pod on one of them, `b` has one node."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capsys = capsys
        nodes = [a_node(name, cpu="2", labels={"pool": name[0]}) for name in ("a1", "a2", "b1")]
        pools = [a_pool(name, labels={"pool": name}) for name in ("a", "b")]
        self.snapshot(*(Seen(pool) for pool in pools), *(Seen(node) for node in nodes), Seen(self.low))

    @property
    def low(self) -> Pod:
        return a_pod("low", namespace="team", cpu="1", pool="a", node="a1")

    def snapshot(self, *events: Event, gaps: tuple[str, ...] = ()) -> None:
        lines = write_lines(ClusterSnapshot(1_767_225_600, events, CLASSES, gaps))
        (self.directory / "cluster.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def file(self, *documents: Any, name: str = "f.yaml") -> str:
        path = self.directory / name
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    def run(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """Return what the command printed on both outputs."""
        assert main(["plan", "--snapshot", str(self.directory / "cluster.jsonl"), *arguments]) == status
        said = self._capsys.readouterr()
        return said.out, said.err.replace(f"{self.directory}/", "")

    def __call__(self, *documents: Any, options: tuple[str, ...] = ()) -> Any:
        """Return the plan of these documents as JSON."""
        out, _ = self.run("-f", self.file(*documents), "-o", "json", *options)
        return json.loads(out)


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Planned:
    return Planned(tmp_path, capsys)


def template(**spec: Any) -> dict[str, Any]:
    pod = pod_object("ignored", pool="a")
    return {"metadata": {"annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"] | spec}


def an_object(kind: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def names(unit: dict[str, Any]) -> list[str]:
    return sorted([*unit["nodes"], *unit["waits"]])


def test_json_has_a_version_and_every_field(planned: Planned) -> None:
    found = planned(pod_object("p", pool="a"))
    assert found["version"] == VERSION == 1
    assert found.keys() == PLAN_FIELDS | {"version", "takenSeconds", "gaps"}
    (unit,) = found["units"]
    assert unit.keys() == UNIT_FIELDS
    assert (unit["name"], unit["verdict"], unit["nodes"]) == ("p", "starts", {"p": "a2"})
    assert (unit["lender"], unit["waitsFor"]) == (None, None)


def test_json_of_each_verdict(planned: Planned) -> None:
    found = planned(*(pod_object(f"p{i}", cpu=cpu, pool="a") for i, cpu in enumerate(["2", "2", "2", "9"])))["units"]
    assert [unit["verdict"] for unit in found] == ["starts", "evicts", "borrows", "waits"]
    assert [unit["nodes"] for unit in found] == [{"p0": "a2"}, {"p1": "a1"}, {"p2": "b1"}, {}]
    assert [unit["evicts"] for unit in found] == [[], ["team/low"], [], []]
    assert [unit["lender"] for unit in found] == [None, None, "b", None]
    assert found[3]["waitsFor"].startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_who_would_be_evicted_has_namespace_and_name(planned: Planned) -> None:
    objects = [pod_object(f"p{i}", cpu="2", pool="a", priority_class="high") for i in range(2)]
    rule = pool_object("a", labels={"pool": "a"}, disableBorrowing=True)
    found = planned(rule, *objects)["units"]
    assert [unit["evicts"] for unit in found] == [[], ["team/low"]]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (job_object("j", parallelism=3, completions=2, pool="a"), ["j-0", "j-1"]),
        (an_object("Deployment", replicas=2, template=template()), ["web-0", "web-1"]),
        (an_object("ReplicaSet", template=template()), ["web-0"]),
        (an_object("StatefulSet", replicas=0, template=template()), []),
        (an_object("Job", parallelism=2, template=template()), ["web-0", "web-1"]),
        (an_object("Job", parallelism=2, suspend=True, template=template()), []),
        (an_object("CronJob", jobTemplate={"spec": {"parallelism": 2, "template": template()}}), ["web-0", "web-1"]),
        (
            an_object(
                "PyTorchJob",
                pytorchReplicaSpecs={
                    "Master": {"template": template()},
                    "Worker": {"replicas": 2, "template": template()},
                },
            ),
            ["web-master-0", "web-worker-0", "web-worker-1"],
        ),
        (
            an_object(
                "JobSet",
                replicatedJobs=[
                    {"replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}},
                    {"template": {"spec": {"template": template()}}},
                ],
            ),
            ["web-replicatedjobs-0-0", "web-replicatedjobs-0-1", "web-replicatedjobs-0-2", "web-replicatedjobs-0-3",
             "web-replicatedjobs-1-0"],
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_controllers_bring_their_pods(document: dict[str, Any], expected: list[str], planned: Planned) -> None:
    (unit,) = planned(document)["units"]
    assert names(unit) == expected
    assert unit["pods"] == len(expected)


@pytest.mark.parametrize(
    "document", [indexed_job_object(pods=6), job_set_object(jobs={"driver": (1, 1), "workers": (1, 5)})]
)
def test_job_that_asks_for_a_gang_starts_whole_or_waits_whole(document: dict[str, Any], planned: Planned) -> None:
    (unit,) = planned(document, options=("--pool", "a"))["units"]
    assert (unit["verdict"], unit["nodes"], unit["evicts"]) == ("waits", {}, [])
    assert "of the 6 pods that start together fit" in unit["waitsFor"]
    (fewer,) = planned(document, options=("--pool", "a", "--replicas", "1"))["units"]
    assert (fewer["verdict"], len(fewer["nodes"])) == ("starts", fewer["pods"])


def test_pod_gets_the_priority_of_its_class_and_else_that_of_the_default_class(planned: Planned) -> None:
    """Its own pool has only room for one of two pods: that of the higher priority."""
    rule = pool_object("b", labels={"pool": "b"}, disableBorrowing=True)
    first, second = planned(rule, pod_object("p0", cpu="2", pool="b"), pod_object("p1", cpu="2", pool="b"))["units"]
    assert (first["verdict"], second["verdict"]) == ("starts", "waits")
    high = pod_object("p1", cpu="2", pool="b", priority_class="high")
    first, second = planned(rule, pod_object("p0", cpu="2", pool="b"), high)["units"]
    assert (first["verdict"], second["verdict"]) == ("waits", "starts")


@pytest.mark.parametrize(("priority_class", "verdict"), [("high", "evicts"), ("kind", "waits")])
def test_class_says_whether_its_pods_evict(priority_class: str, verdict: str, planned: Planned) -> None:
    rule = pool_object("a", labels={"pool": "a"}, disableBorrowing=True)
    pods = job_object("j", cpu="2", parallelism=2, completions=2, pool="a")
    pods["spec"]["template"]["spec"]["priorityClassName"] = priority_class
    (unit,) = planned(rule, pods)["units"]
    assert unit["verdict"] == verdict


def test_class_that_does_not_exist_is_a_note(planned: Planned) -> None:
    (unit,) = planned(pod_object("p", priority_class="nope", pool="a"))["units"]
    assert unit["notes"] == ["there is no PriorityClass 'nope', so the API server refuses the pods"]


def test_class_of_the_file_counts(planned: Planned) -> None:
    rule = pool_object("a", labels={"pool": "a"}, disableBorrowing=True)
    own = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "own"}, "value": 50}
    pods = [pod_object(f"p{i}", cpu="2", pool="a", priority_class="own") for i in range(2)]
    assert [unit["verdict"] for unit in planned(rule, own, *pods)["units"]] == ["starts", "evicts"]


def test_variants_stand_side_by_side_each_on_its_own_cluster(planned: Planned) -> None:
    job = job_object("j", cpu="2", pool="a")
    options = ("--replicas", "1", "--replicas", "3", "--pool", "a", "--pool", "b")
    found = planned(job, options=options)["variants"]
    assert [(plan["replicas"], plan["pool"]) for plan in found] == [(1, "a"), (1, "b"), (3, "a"), (3, "b")]
    assert [plan["units"][0]["nodes"] for plan in found][:2] == [{"j-0": "a2"}, {"j-0": "b1"}]
    assert [plan["units"][0]["pods"] for plan in found] == [1, 1, 3, 3]


def test_one_variant_is_a_plan_like_any_other(planned: Planned) -> None:
    found = planned(job_object("j", pool="a"), options=("--pool", "b"))
    assert (found["pool"], found["units"][0]["nodes"]) == ("b", {"j-0": "b1"})


def test_drained_node_is_a_unit(planned: Planned) -> None:
    out, _ = planned.run("--without", "a1", "-o", "json")
    (unit,) = json.loads(out)["units"]
    assert (unit["kind"], unit["name"], unit["nodes"]) == ("Node", "a1", {"team/low": "a2"})


def test_standard_input_is_read(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(pod_object("p", pool="a")).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    out, _ = planned.run("-f", "-", "-o", "json")
    assert json.loads(out)["units"][0]["name"] == "p"


def test_gaps_of_the_snapshot_are_told_and_stand_in_the_json(planned: Planned) -> None:
    planned.snapshot(Seen(a_node("n")), gaps=("a gap",))
    out, err = planned.run("-f", planned.file(pod_object("p")), "-o", "json")
    assert (json.loads(out)["gaps"], err) == (["a gap"], "a gap\n")


def test_kinds_without_pods_are_named(planned: Planned) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
    agent = an_object("DaemonSet", template=template())
    out, err = planned.run("-f", planned.file(service, agent, pod_object("p", pool="a")), "-o", "json")
    assert err == "not planned: DaemonSet (1), Service (1)\n"
    assert [unit["name"] for unit in json.loads(out)["units"]] == ["p"]


def test_namespace_that_does_not_exist_is_a_note(planned: Planned) -> None:
    planned.snapshot(Seen(a_node("n")), Seen(Namespace("default", {})))
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
    pods = [pod_object(name, namespace=name) for name in ("default", "own", "nope")]
    found = planned(own, *pods)["units"]
    assert [unit["notes"] for unit in found] == [
        [], [], ["there is no namespace 'nope', so the API server refuses the pods"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (pod_object("p", cpu="1.5.3"), "f.yaml:1 Pod/p: spec.containers[0].resources.requests.cpu: '1.5.3' is"),
        (an_object("Deployment", replicas="2", template=template()), "f.yaml:1 Deployment/web: spec.replicas: must be"),
        (an_object("Job", parallelism=-1, template=template()), "f.yaml:1 Job/web: spec.parallelism: must be a whole"),
        (pool_object("x", lendingLimit={"cpu": "x"}), "f.yaml:1 Pool/x: spec.lendingLimit.cpu:"),
        (an_object("Deployment", replicas=10**9, template=template()), "f.yaml:1 Deployment/web: the files have"),
        ("text", "f.yaml:1: is not a Kubernetes object"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_names_file_document_and_field(document: Any, line: str, planned: Planned) -> None:
    out, err = planned.run("-f", planned.file(document), status=1)
    assert out == ""
    assert err.startswith(line)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence", "status"),
    [
        ([], "there is nothing to plan: use -f FILE, or --without NODE", 2),
        (["--without", "a1", "--replicas", "2"], "--replicas and --pool change the pods of a file: use them with", 2),
        (["-f", "nope.yaml"], "nope.yaml: cannot be read: No such file or directory", 2),
        (["--without", "zz"], "there is no node zz", 1),
    ],
)  # fmt: skip
def test_wrong_command_line_is_one_sentence(arguments: list[str], sentence: str, status: int, planned: Planned) -> None:
    out, err = planned.run(*arguments, status=status)
    assert out == ""
    assert err.startswith(f"ai-scheduler: {sentence}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("width", [80, 200])
def test_text_fits_the_terminal_and_one_screen(width: int, planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aischeduler.cli.output.PIPE_WIDTH", width)
    jobs = [job_object(f"a-job-with-a-long-name-{i}", parallelism=9, completions=9, pool="a") for i in range(40)]
    out, _ = planned.run("-f", planned.file(*jobs))
    lines = out.splitlines()
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= 50
    assert "25 more units are not shown; -o json has all." in out


def test_text_of_a_change_that_changes_nothing_says_so(planned: Planned) -> None:
    out, _ = planned.run("-f", planned.file(pool_object("b", labels={"pool": "b"})))
    assert out == "Nothing changes: no pod starts, moves or is evicted.\n"


def test_text_has_no_escape_sequences_in_a_pipe_and_none_of_a_name(planned: Planned) -> None:
    out, _ = planned.run("-f", planned.file(pod_object("p\x1b[31m", pool="a")))
    assert "\x1b" not in out
    assert "Pod/p\\x1b[31m" in out


async def test_cluster_is_listed_and_nothing_is_written(
    planned: Planned, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        kubeconfig.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(kubeconfig), None, lambda: 0.0)) as client:
            await create(client, *cluster())
            before = orjson.loads(await client.get("/api/v1/pods"))["metadata"]["resourceVersion"]
            file = planned.file(pod_object("p", cpu="4", pool="cpu-pool"))
            options = ["plan", "-f", file, "-o", "json", "--kubeconfig", str(kubeconfig)]
            assert await asyncio.to_thread(main, options) == 0
            after = orjson.loads(await client.get("/api/v1/pods"))["metadata"]["resourceVersion"]
    found = json.loads(capsys.readouterr().out)
    assert (found["units"][0]["verdict"], found["units"][0]["nodes"]) == ("starts", {"p": "cpu-0"})
    assert before == after
