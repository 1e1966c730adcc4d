"""`ai-scheduler check`: each way to get a file wrong has one line that says where and what."""

import asyncio
import io
import sys
from pathlib import Path

import pytest

from aischeduler.cli.app import main
from aischeduler.cli.demo_cluster import cluster, create
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.sandbox.http_server import HttpSandbox

ROOT = Path(__file__).resolve().parents[2]
EVERY_NODE = "every node that it selects is also selected by the Pool"
BOTH = ", and a node that two Pools select belongs to the pool default"
CONFIG = """\
apiVersion: config.resource.aibee.cn/v1alpha1
kind: AiSchedulerConfiguration
"""


def a_pool(name: str, spec: str = "{}") -> str:
    return f"apiVersion: resource.aibee.cn/v1alpha1\nkind: Pool\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def selecting(name: str, labels: str, rest: str = "") -> str:
    return a_pool(name, f"{{nodeSelector: {{matchLabels: {labels}}}{rest}}}")


def a_node(name: str, labels: str = "{}", cpu: str = "8") -> str:
    amounts = f"{{cpu: {cpu!r}, memory: 32Gi, pods: '110'}}"
    return (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {labels}}}\n"
        f"status: {{capacity: {amounts}, allocatable: {amounts}}}\n"
    )


def a_job(pool: str = "", scheduler: str = "schedulerName: ai-scheduler", cpu: str = "1", kind: str = "Job") -> str:
    """Return a Job, or something else that has a template where a Job has it."""
    annotations = f"{{resource.aibee.cn/pool: {pool}}}" if pool else "{}"
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return f"""\
apiVersion: {group}
kind: {kind}
metadata: {{name: train}}
spec:
  template:
    metadata: {{annotations: {annotations}}}
    spec:
      {scheduler}
      {"restartPolicy: Never" if kind == "Job" else ""}
      containers: [{{name: main, image: x, resources: {{requests: {{cpu: {cpu}}}}}}}]
"""


class Checked:
    """What `check` said of documents, each in a file of its own place: `f.yaml:1` is the first."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = directory / "f.yaml"
        self._capsys = capsys

    def __call__(self, *documents: str, options: tuple[str, ...] = ()) -> list[str]:
        self._path.write_text("---\n".join(documents))
        status = main(["check", "-f", str(self._path), *options])
        said = self._capsys.readouterr()
        lines = said.out.splitlines()
        assert status == (1 if lines else 0), said.err
        return [line.removeprefix(f"{self._path}:") for line in lines]


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(tmp_path, capsys)


def test_what_is_right_is_silent_and_says_so_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(ROOT / "examples" / name) for name in ("config.yaml", "pools.yaml", "nodes.yaml", "job.yaml")]
    assert main(["check", "-f", *files]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "ai-scheduler: 8 documents: nothing found\n")


def test_configuration_is_checked_by_its_schema(checked: Checked) -> None:
    assert checked(CONFIG + "logging: {levl: info}\n") == [
        "1 AiSchedulerConfiguration: 'logging.levl' is not a field; did you mean level?"
    ]


def test_configuration_in_a_config_map_is_checked_too(checked: Checked) -> None:
    text = "".join(f"    {line}\n" for line in (CONFIG + "eviction: Drain").splitlines())
    mounted = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  config.yaml: |\n{text}"
    assert checked(mounted) == ["1 ConfigMap/c: data[config.yaml]: eviction must be Delete or Evict, not 'Drain'"]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("{disableBorowing: true}", "spec.disableBorowing: is not a field; did you mean disableBorrowing?"),
        ("{borrowingPools: [a]}", "spec.borrowingPools: a pool cannot borrow from itself"),
        ("{lendingLimit: {cpu: 1x}}", "spec.lendingLimit.cpu: '1x' is not a quantity such as 1, 500m, 1.5 or 2Gi"),
        ("{makeRoom: Never}", "spec.makeRoom: must be PreemptThenBorrow or BorrowThenPreempt, not 'Never'"),
        ("{borrowingPools: [defualt]}", "spec.borrowingPools[0]: there is no Pool 'defualt'; did you mean default?"),
        ("{borrowingPools: [xyz]}", "spec.borrowingPools[0]: there is no Pool 'xyz'"),
    ],
)  # fmt: skip
def test_wrong_pool_is_named_with_its_field(spec: str, line: str, checked: Checked) -> None:
    assert checked(a_pool("a", spec)) == [f"1 Pool/a: {line}"]


def test_same_object_twice_is_one_too_many(checked: Checked, tmp_path: Path) -> None:
    (line,) = checked(a_pool("a"), a_pool("a"))
    assert line == f"2 Pool/a: is already defined at {tmp_path / 'f.yaml'}:1"


def test_pools_that_must_overlap_are_told_without_nodes(checked: Checked) -> None:
    narrow, wide = selecting("narrow", "{gpu: 'true', zone: x}"), selecting("wide", "{gpu: 'true'}")
    assert checked(narrow, wide, selecting("other", "{zone: x}")) == [
        f"1 Pool/narrow: spec.nodeSelector: {EVERY_NODE} other{BOTH}",
        f"1 Pool/narrow: spec.nodeSelector: {EVERY_NODE} wide{BOTH}",
    ]


def test_pools_that_share_a_node_are_told_where_nodes_are_given(checked: Checked) -> None:
    pools = selecting("a", "{gpu: 'true'}"), selecting("b", "{zone: x}")
    assert checked(*pools) == []
    said = checked(*pools, a_node("n", "{gpu: 'true', zone: x}"))
    assert [line.partition(": ")[0] for line in said] == ["1 Pool/a", "2 Pool/b"]
    assert said[0].endswith("Pool b also selects nodes, which belong to the pool default: n.")


@pytest.mark.parametrize(
    ("kind", "field"), [("Job", "spec.template."), ("Deployment", "spec.template."), ("DaemonSet", "spec.template.")]
)
def test_template_names_a_pool_that_exists(kind: str, field: str, checked: Checked) -> None:
    assert checked(a_pool("gpu-pool"), a_job("gpu-pol", kind=kind)) == [
        (
            f"2 {kind}/train: {field}metadata.annotations[resource.aibee.cn/pool]: there is no Pool 'gpu-pol'; "
            "did you mean gpu-pool?"
        )
    ]


def test_where_no_pools_are_given_nobody_knows_which_exist(checked: Checked) -> None:
    assert checked(a_job("anything")) == []


def test_template_is_found_however_deep_it_lies(checked: Checked) -> None:
    nested = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: t}
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        metadata: {labels: {resource.aibee.cn/pool: b}}
        spec: {schedulerName: ai-scheduler, containers: [{name: a, image: x}]}
"""
    assert checked(a_pool("a"), nested) == [
        (
            "2 PyTorchJob/t: spec.pytorchReplicaSpecs.Worker.template.metadata.labels[resource.aibee.cn/pool]: "
            "there is no Pool 'b', so the pods belong to the pool default"
        )
    ]


@pytest.mark.parametrize(
    ("scheduler", "sentence"),
    [
        ("", "is missing, so the default scheduler of the cluster takes the pods; set it to ai-scheduler"),
        ("schedulerName: ai-schduler", "'ai-schduler' is the name of another scheduler; did you mean ai-scheduler?"),
    ],
)
def test_pod_that_means_us_has_to_say_so(scheduler: str, sentence: str, checked: Checked) -> None:
    assert checked(a_job("default", scheduler)) == [f"1 Job/train: spec.template.spec.schedulerName: {sentence}"]


def test_pod_of_another_scheduler_is_left_alone(checked: Checked) -> None:
    assert checked(a_node("n", cpu="1"), a_job(scheduler="schedulerName: default-scheduler", cpu="64")) == []


def test_scheduler_name_is_that_of_the_configuration(checked: Checked) -> None:
    assert checked(CONFIG + "schedulerName: night-shift\n", a_job("default", "schedulerName: night-shift")) == []


def test_annotation_beside_the_template_and_a_misspelt_one_are_told(checked: Checked) -> None:
    beside = a_job().replace("{name: train}", "{name: train, annotations: {resource.aibee.cn/pool: a}}")
    misspelt = a_job("a", kind="Deployment").replace("aibee.cn/pool", "aibee.cn/pol")
    assert checked(beside, misspelt) == [
        (
            "1 Job/train: metadata.annotations[resource.aibee.cn/pool]: does not reach the pods; move it to "
            "spec.template.metadata.annotations"
        ),
        (
            "2 Deployment/train: spec.template.metadata.annotations[resource.aibee.cn/pol]: has no effect; did "
            "you mean resource.aibee.cn/pool?"
        ),
    ]


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_malformed_quantity_is_told_once_with_its_path(kind: str, checked: Checked) -> None:
    assert checked(a_job(cpu="4x", kind=kind)) == [
        (
            f"1 {kind}/train: spec.template.spec.containers[0].resources.requests.cpu: '4x' is not a quantity such "
            "as 1, 500m, 1.5 or 2Gi"
        )
    ]
    assert checked(a_node("n", cpu="many"))[0].startswith("1 Node/n: status.allocatable.cpu: 'many' is not a quantity")


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("affinity: {nodeAffinity: 7}", "affinity.nodeAffinity: must be a mapping, not a whole number"),
        ("tolerations: {a: b}", "tolerations: must be a list, not a mapping"),
        ("initContainers: 3", "initContainers: must be a list, not a whole number"),
    ],
)
def test_template_that_the_reader_refuses_is_told_with_its_path(field: str, line: str, checked: Checked) -> None:
    wrong = a_job().replace("restartPolicy: Never", field)
    assert checked(wrong) == [f"1 Job/train: spec.template.spec.{line}"]


def test_pod_without_requests_is_judged_by_its_limits(checked: Checked) -> None:
    job = a_job(cpu="9").replace("requests", "limits")
    (line,) = checked(a_node("n"), job)
    assert "1 Insufficient cpu" in line


def test_pod_that_no_node_has_room_for_is_told_with_the_reason(checked: Checked) -> None:
    nodes = a_node("n1", "{pool: a}"), a_node("n2", "{pool: b}", cpu="16")
    pools = (selecting("a", "{pool: a}", ", borrowingPools: [default]"), selecting("b", "{pool: b}"))
    assert checked(*nodes, *pools, a_job("a", cpu="8")) == []
    assert checked(*nodes, *pools, a_job("b", cpu="16"), a_job("b", cpu="17", kind="Deployment")) == [
        (
            "6 Deployment/train: spec.template.spec: cannot run even when all nodes are empty: 0/1 nodes are "
            "available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for "
            "scheduling. borrowing: no node fits: a, default."
        )
    ]
    (line,) = checked(*nodes, *pools, a_job("a", cpu="9"))
    assert "1 Insufficient cpu" in line


def test_pod_that_fits_only_where_it_may_borrow_can_run(checked: Checked) -> None:
    nodes = a_node("n1", "{pool: a}"), a_node("n2", "{pool: b}", cpu="16")
    assert checked(*nodes, selecting("a", "{pool: a}"), selecting("b", "{pool: b}"), a_job("a", cpu="9")) == []


def test_pod_whose_namespace_nobody_knows_is_not_judged_by_it(checked: Checked) -> None:
    pool = selecting("a", "{pool: a}", ", allowedNamespaces: {matchLabels: {team: x}}")
    node, job = a_node("n", "{pool: a}"), a_job("a")
    assert checked(node, pool, job) == []
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: y}}\n"
    (line,) = checked(node, pool, job, namespace)
    assert "cannot run even when all nodes are empty" in line
    assert checked(node, pool, job, namespace.replace("y}", "x}")) == []


@pytest.mark.parametrize(("least", "found"), [("4", []), ("four", ["gang-min"])])
def test_pod_of_a_gang_is_judged_without_the_others_but_for_its_labels(
    checked: Checked, least: str, found: list[str]
) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n"
        f"  labels: {{resource.aibee.cn/gang: g, resource.aibee.cn/gang-min: '{least}'}}\n"
        "spec:\n  schedulerName: ai-scheduler\n"
        "  containers: [{name: a, image: x, resources: {requests: {cpu: 1}}}]\n"
    )
    lines = checked(a_node("n"), pod)
    assert len(lines) == len(found)
    assert all(words in line for words, line in zip(found, lines, strict=True))


def test_gated_pod_is_judged_without_its_gates(checked: Checked) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  schedulerName: ai-scheduler\n"
        "  schedulingGates: [{name: x}]\n  containers: [{name: a, image: x, resources: {requests: {cpu: 9}}}]\n"
    )
    (line,) = checked(a_node("n"), pod)
    assert line.startswith("2 Pod/p: spec: cannot run even when all nodes are empty: 0/1 nodes are available: 1 Insuff")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ("a: b: c", "1: is not YAML at line 1, column 5: mapping values are not allowed here"),
        ("- 1", "1: is not a Kubernetes object, which is a mapping with apiVersion and kind"),
        ("{apiVersion: resource.aibee.cn/v1alpha1, kind: Pol, metadata: {name: a}}",
         ("1 Pol/a: kind: 'Pol' is not a kind of resource.aibee.cn/v1alpha1; the kinds are Pool, Queue, BatchProcess "
          "and TrainingJob")),
        ("{apiVersion: resource.aibee.cn/v1, kind: Pool, metadata: {name: a}}",
         "1 Pool/a: apiVersion: 'resource.aibee.cn/v1' does not exist; did you mean resource.aibee.cn/v1alpha1?"),
        ("x: \0", "1: is not YAML: it contains bytes that YAML does not allow"),
        ('{apiVersion: resource.aibee.cn/v1alpha1, kind: Pool, metadata: {name: "\\e[31m"}}', ("1 Pool/\\x1b[31m: "
         "metadata.name")),
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_what_is_no_object_is_a_finding(document: str, line: str, checked: Checked) -> None:
    (said,) = checked(document)
    assert said.startswith(line)


def test_document_without_version_and_kind_is_a_finding(checked: Checked) -> None:
    assert checked("a: 1") == ["1: apiVersion: is missing", "1: kind: is missing"]


def test_object_without_a_name_is_a_finding(checked: Checked) -> None:
    assert checked(a_pool("a").replace("{name: a}", "{}")) == ["1 Pool: metadata.name: is missing"]


def test_pool_is_told_all_that_is_wrong_with_it_at_once(checked: Checked) -> None:
    spec = "{disableSharing: 1, placement: pack, nodeSelector: {matchLabels: {gpu: true}}, lendingLimit: {cpu: 1x}}"
    assert checked(a_pool("a", spec)) == [
        "1 Pool/a: spec.disableSharing: must be true or false, not 1",
        "1 Pool/a: spec.nodeSelector.matchLabels.gpu: must be a string, not true",
        "1 Pool/a: spec.placement: must be Spread, Pack or Fragmentation, not 'pack'; did you mean Pack?",
    ]


def test_aliases_that_make_a_few_lines_many_are_a_finding(checked: Checked) -> None:
    levels = [f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 9)}]" for number in range(1, 9)]
    (line,) = checked("\n".join(["l0: &l0 [x]", *levels]))
    assert line == "1: has more than 1000000 values"
    (line,) = checked("a: &a [*a]")
    assert line == "1: has more than 1000000 values"


def test_list_counts_as_what_is_in_it(checked: Checked) -> None:
    items = "".join(
        f"- {a_pool(name, '{makeRoom: Nope}')}".replace("\n", "\n  ").rstrip() + "\n" for name in ("a", "b")
    )
    said = checked(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    assert [line.split(":")[0] for line in said] == ["1.items[0] Pool/a", "1.items[1] Pool/b"]


def test_object_as_it_was_read_from_a_cluster_is_taken(checked: Checked) -> None:
    read = a_pool("a").replace("{name: a}", "{name: a, uid: u, resourceVersion: '7', generation: 3}")
    assert checked(read + "status: {nodes: 3}\n") == []


def test_documentation_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "configure.md").read_text()
    command, _, shown = text.partition("$ ai-scheduler check ")[2].partition("```")[0].partition("\n")
    monkeypatch.chdir(tmp_path)
    pools = (
        selecting("cpu-pool", "{a: b}"),
        selecting("gpu-pool", "{c: d}").replace("{node", "{disableBorowing: true, node"),
    )
    Path("pools.yaml").write_text("---\n".join(pools))
    jobs = a_job("gpu-pol", "schedulerName: ai-schduler"), a_job("cpu-pool").replace("train", "other")
    Path("jobs.yaml").write_text("---\n".join(jobs))
    assert main(["check", *command.split()]) == 1
    said = capsys.readouterr()
    assert said.out + said.err == shown


def test_standard_input_is_a_file_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(a_pool("a", "{x: 1}").encode())))
    assert main(["check", "-f", "-"]) == 1
    assert capsys.readouterr().out == "-:1 Pool/a: spec.x: is not a field\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "no file is given: use -f FILE, or -f - for standard input"),
        (["-f", "/nowhere/x.yaml"], "/nowhere/x.yaml: cannot be read: No such file or directory"),
        (["-f", "-", "--config", "/nowhere/c.yaml"], "/nowhere/c.yaml: cannot be read: No such file or directory"),
        (["-f", "-", "--kubeconfig", "/nowhere/k"], ("the cluster cannot be read: /nowhere/k: there is no such "
         "kubeconfig file")),
    ],
)  # fmt: skip
def test_check_that_cannot_be_made_has_status_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["check", *arguments]) == 2
    assert capsys.readouterr().err == f"ai-scheduler: {sentence}\n"


@pytest.mark.parametrize("installed", [True, False])
async def test_nodes_and_pools_of_a_cluster_count_where_it_is_named(tmp_path: Path, *, installed: bool) -> None:
    path, job = tmp_path / "kubeconfig", tmp_path / "job.yaml"
    job.write_text(a_job("gpu-pol", cpu="1k"))
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *(item for item in cluster() if installed or item["kind"] == "Node"))
        command = (sys.executable, "-m", "aischeduler", "check", "-f", str(job), "--kubeconfig", str(path))
        running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await running.communicate()
    assert running.returncode == 1
    unknown, never = out.decode().splitlines()
    meant = "; did you mean gpu-pool?" if installed else ", so the pods belong to the pool default"
    assert unknown.endswith(f"there is no Pool 'gpu-pol'{meant}")
    assert "cannot run even when all nodes are empty: 0/" in never
