"""docs/elastic.md: its examples are elastic, its limits are those of the product, its commands print this."""

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import write_lines
from aischeduler.cli.app import main
from aischeduler.cli.documents import Document, read_objects
from aischeduler.config.load import read_config
from aischeduler.config.schema import KIND
from aischeduler.model import elastic
from aischeduler.model.elastic import PriorityLevel, Problem
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import objects_of
from aischeduler.model.workload import Workload
from tests.analysis.elastic_world import CORE_SECOND, HOUR, AJobSeen, a_snapshot
from tests.build import a_node, a_pool, replace

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "elastic.md").read_text()
_BLOCKS = [
    list(yaml.safe_load_all(text)) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
EXAMPLES = [documents for documents in _BLOCKS if documents[0]["kind"] != KIND]
CONFIGURATIONS = [documents[0] for documents in _BLOCKS if documents[0]["kind"] == KIND]
FILES = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```console\n\$ ai-scheduler (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def cluster_of_the_page() -> list[Any]:
    """Return a pool of two nodes of eight GPUs: three jobs, and a Deployment that an autoscaler scales too."""
    pool = a_pool("gpu-pool", labels={"pool": "gpu"})
    nodes = [a_node(f"gpu-{n}", cpu="64", memory="512Gi", gpu=8, labels={"pool": "gpu"}) for n in range(2)]
    one: dict[str, Any] = {"cpu": "4", "gpu": 1, "pool": "gpu-pool"}
    hours, levels = 104 * HOUR * CORE_SECOND, PriorityLevel
    train = AJobSeen("train", 2, 8, ["gpu-0"] * 6, service=40 * hours, window=300.0, resized_before=400, **one)
    sweep = AJobSeen(
        "sweep", 2, 8, ["gpu-1"] * 2, level=levels.EXPERIMENT, service=30 * 100 * hours, window=300.0, **one
    )
    large = AJobSeen(
        "large",
        4,
        12,
        ["gpu-1"] * 6,
        level=levels.OFFLINE,
        service=12 * 10 * hours,
        window=300.0,
        resized_before=108,
        **one,
    )
    problem = Problem(EventReason.NOT_ELASTIC, "the HorizontalPodAutoscaler 'serve' scales it")
    serve = AJobSeen("serve", 2, 4, ["gpu-0"] * 2, pool="gpu-pool", gpu=1)
    renamed = [
        replace(thing, kind="Deployment") if isinstance(thing, Workload) else replace(thing, owner="Deployment/serve")
        for thing in serve.seen(problem=problem)[1:]
    ]
    return [pool, *nodes, train, sweep, large, *renamed]


def empty_cluster() -> list[Any]:
    """Return the pool with one node of six GPUs."""
    return [
        a_pool("gpu-pool", labels={"pool": "gpu"}),
        a_node("gpu-0", cpu="64", memory="512Gi", gpu=6, labels={"pool": "gpu"}),
    ]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory with the files of the page and its cluster."""
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    for name, things in (("cluster", cluster_of_the_page()), ("empty", empty_cluster())):
        lines = write_lines(a_snapshot(*things))
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(documents: list[Any]) -> list[Workload]:
    found = read_objects(Document("page", str(number), body) for number, body in enumerate(documents))
    assert found.findings == []
    return objects_of(found.events, Workload)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_is_elastic_as_written(number: int) -> None:
    jobs = [found.elastic for found in read(EXAMPLES[number]) if found.elastic is not None]
    (job,) = jobs
    assert (job.problem, job.ignored) == (None, "")
    assert job.size == job.terms.min_instances < job.terms.max_instances
    assert job.completions_follow


def test_configuration_is_accepted() -> None:
    (kind,) = read_config(CONFIGURATIONS[0]).elastic.kinds
    assert f"explain {kind.kind.lower()}/NAME" in PAGE


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_command_prints_what_is_written_below_it(
    command: str, output: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = "empty.jsonl" if command.startswith("plan") else "cluster.jsonl"
    assert main([*command.split(), "--snapshot", snapshot]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (output, "")


def test_every_annotation_of_a_user_is_in_the_table_and_those_of_the_scheduler_are_named() -> None:
    keys = {value for name, value in vars(elastic).items() if name.endswith("_KEY")}
    assert {key for key in keys if f"`{key}`" not in PAGE and f"`{key.partition('/')[2]}`" not in PAGE} == set()


def test_limits_and_defaults_are_those_of_the_product() -> None:
    assert f"{elastic.INSTANCES_MAX:,}" in PAGE
    assert f"`{elastic.FREEZING_WINDOW_SECONDS / 60:.0f}m`" in PAGE
    for level, weight in elastic.WEIGHTS.items():
        assert f"`{level}` ({weight:,})" in PAGE


def test_every_field_of_the_json_is_described(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--snapshot", "cluster.jsonl", "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    described = set(re.findall(r"`(\w+)`", PAGE))
    assert {name for row in made for name in (*row, *row["growth"])} <= described


def test_events_of_elastic_jobs_are_described() -> None:
    reasons = (EventReason.NOT_ELASTIC, EventReason.INVALID_ELASTIC, EventReason.RESIZED)
    assert [reason for reason in reasons if f"`{reason}`" not in PAGE] == []
    assert orjson.dumps(EXAMPLES)
