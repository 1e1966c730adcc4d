"""`ai-scheduler explain`: what docs/cli.md shows, exit statuses, JSON, and the width of a terminal."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from rich.console import Console

from aischeduler.analysis.cluster_snapshot import loaded
from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation
from aischeduler.cli.app import kubectl_pool, main
from aischeduler.cli.cluster_source import ClusterSource, read_cluster
from aischeduler.cli.explain_output import explanation_json, explanation_text
from aischeduler.engine.profile import default_profile
from aischeduler.model.events import Seen
from aischeduler.model.workload import ServiceType, Workload
from tests.build import a_node, a_pod, replace, spread
from tests.cli.explain_cluster import carry_out, cluster, document
from tests.cli.jq import filtered
from tests.engine.session import Session
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
SECTION = PAGE[PAGE.index("\n## Explain a pod\n") : PAGE.index("\n## Plan a change\n")]
SCREEN_LINES = 45
COMMANDS = re.findall(r"```console\n\$ ((?:ai-scheduler|kubectl pool) explain[^\n]*)\n(.*?)```", SECTION, re.DOTALL)


@pytest_asyncio.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    async with cluster(tmp_path) as path:
        yield path


async def said(kubeconfig: Path, words: str) -> int:
    """Run a command as the page shows it; return its exit status."""
    program, *arguments = words.split()
    run, rest = (kubectl_pool, arguments[1:]) if program == "kubectl" else (main, arguments)
    return await asyncio.to_thread(run, [*rest, "--kubeconfig", str(kubeconfig)])


async def explained(kubeconfig: Path, name: str) -> Explanation:
    snapshot = await read_cluster(ClusterSource(kubeconfig, None))
    scheduler = loaded(default_profile(), snapshot)
    now = float(snapshot.taken_seconds)
    decide_all(scheduler, now)
    (record,) = [record for record in scheduler.cluster.records.values() if record.pod.name == name]
    return explain(scheduler.cluster, record, now)


def test_every_example_of_the_page_is_compared() -> None:
    assert len(COMMANDS) == SECTION.count("```console") > 0


@pytest.mark.parametrize(("words", "output"), COMMANDS, ids=[words for words, _ in COMMANDS])
async def test_page_shows_what_the_commands_print(
    words: str, output: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, _, jq = words.partition(" | jq ")
    assert await said(kubeconfig, command) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert (filtered(told.out, jq) if jq else told.out) == output


@pytest.mark.parametrize("number", range(5))
async def test_each_remedy_starts_the_pod_once_its_steps_are_carried_out(number: int, tmp_path: Path) -> None:
    async with cluster(tmp_path) as path:
        remedy = json.loads(explanation_json(await explained(path, "sweep-1"), await document(path, "sweep-1")))[
            "remedies"
        ][number]
        assert remedy["steps"]
        await carry_out(path, remedy["steps"])
        found = await explained(path, "sweep-1")
        assert found.start is not None
        assert (found.start.node, found.start.pool) == (remedy["starts"]["node"], remedy["starts"]["pool"])


async def test_step_has_the_fields_that_the_page_names(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await said(kubeconfig, "ai-scheduler explain tune-0 -o json") == 0
    step = json.loads(capsys.readouterr().out)["remedies"][0]["steps"][0]
    sentence = PAGE[PAGE.index("The `steps` of a remedy can") : PAGE.index("| `verb` | What to do |")]
    assert [f"`{name}`" for name in step] == re.findall(r"`\w+`", sentence)[1:]


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ("nope", 3, "there is no pod default/nope"),
        ("tune-0 -n team", 3, "there is no pod team/tune-0"),
        ("job/nope", 3, "there is no unfinished pod of the Job default/nope"),
        ("--all --pool nope", 3, "there is no Pool nope"),
        ("web", 4, "the pod default/web belongs to the scheduler default-scheduler, not to ai-scheduler"),
        ("done", 5, "the pod default/done has finished: its phase is Succeeded"),
        ("pod/", 2, "pod/ is neither a pod, nor pod/NAME, nor job/NAME"),
        ("tune-0?x=1", 3, "there is no pod default/tune-0?x=1"),
        ("tune-0 -n default/pods/tune-0?", 3, "there is no pod default/pods/tune-0?/tune-0"),
        ("..", 3, "there is no pod default/.."),
        ("queue/x", 2, "queue/x is neither a pod, nor pod/NAME, nor job/NAME"),
        ("--all", 2, "name a pod, or a Job as job/NAME, or use --all with --pool"),
        ("tune-0 --config /nowhere", 1, "/nowhere"),
    ],
)
async def test_each_reason_for_no_explanation_has_a_status(
    words: str, status: int, sentence: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await said(kubeconfig, f"ai-scheduler explain {words}") == status
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert sentence in told.err
    if status > 2:
        assert f"| {status} |" in PAGE


async def test_pod_with_line_ends_in_its_name_is_one_request_for_a_pod_that_does_not_exist(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tune-0\r\nX-Injected: yes"
    assert await asyncio.to_thread(main, ["explain", name, "--kubeconfig", str(kubeconfig)]) == 3
    assert capsys.readouterr().err.endswith("there is no pod default/tune-0\\r\\nX-Injected: yes\n")


def test_cluster_that_cannot_be_reached_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kubeconfig"
    server = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    users = [{"name": "c", "user": {}}]
    path.write_text(json.dumps({"clusters": [server], "contexts": [context], "users": users, "current-context": "c"}))
    assert main(["explain", "p", "--kubeconfig", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


async def test_snapshot_explains_the_same_but_for_the_steps_of_a_request(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.jsonl"
    assert await said(kubeconfig, f"ai-scheduler snapshot -o {file}") == 0
    for target in ("tune-0", "sweep-0", "later"):
        capsys.readouterr()
        assert await said(kubeconfig, f"ai-scheduler explain {target} -o json") == 0
        live = json.loads(capsys.readouterr().out)
        assert await said(kubeconfig, f"ai-scheduler explain {target} --snapshot {file} -o json") == 0
        kept = json.loads(capsys.readouterr().out)
        for remedy in live["remedies"]:
            if remedy["kind"] == "request":
                remedy["steps"] = []
        assert kept == live
    assert await said(kubeconfig, f"ai-scheduler explain done --snapshot {file}") == 3


async def test_job_and_pool_as_json_have_the_same_objects(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await said(kubeconfig, "kubectl pool explain job/tune -o json") == 0
    of_job = json.loads(capsys.readouterr().out)
    assert await said(kubeconfig, "ai-scheduler explain --all --pool research -o json") == 0
    of_pool = json.loads(capsys.readouterr().out)
    assert [item["pod"] for item in of_job["items"]] == ["tune-0"]
    found = sorted((item["pod"], item["verdict"]) for item in of_pool["items"])  # in the list the older pods come first
    assert found == [
        ("later", "gated"),
        ("sweep-1", "waits"),
        ("tune-0", "waits"),
    ]
    assert (of_pool["version"], of_pool["leftOut"]) == (1, 0)


async def test_every_field_is_documented(kubeconfig: Path) -> None:
    document = json.loads(explanation_json(await explained(kubeconfig, "tune-0"), None))
    table = SECTION[SECTION.index("### Explanations as JSON") :]
    undocumented = {name for name in _names(document) if f"`{name}`" not in table}
    assert undocumented == set()


def test_numbers_of_a_spread_constraint_are_in_the_text_in_the_json_and_on_the_page() -> None:
    nodes = [a_node(zone, cpu="4", labels={"zone": zone}) for zone in ("east", "west")]
    app = [a_pod(f"app-{number}", node="east", labels={"app": "foo"}) for number in range(3)]
    full = a_pod("full", node="west", cpu="4", labels={"app": "foo"})
    pod = a_pod("p", cpu="1", topology_spread=(spread("zone", app="foo", itself=False),))
    cluster = Session(*nodes, *app, full, pod).scheduler.cluster
    found = explain(cluster, cluster.records[pod.uid], 0.0)
    nearest = json.loads(explanation_json(found, None))["nodes"]["refused"][-1]["nearest"]
    numbers = {"matching": 3, "withPod": 3, "fewest": 1, "maxSkew": 1, "minDomains": None}
    assert nearest == {"node": "east", "missing": [{"kind": "spread", "name": "zone=east", **numbers}]}
    console = Console(width=120, file=StringIO())
    with console.capture() as caught:
        console.print(*explanation_text(found, ""), sep="\n")
    assert "1  east: zone=east has 3 matching pods, the fewest is 1, maxSkew is 1\n" in caught.get()
    assert [name for name in ("spread", *numbers) if f"`{name}`" not in SECTION] == []


def test_page_names_the_pods_that_stay_until_when_and_what_makes_those_that_end() -> None:
    training = in_queue(a_card_pod("t", 8, node="n"), "train", service=ServiceType.TRAINING, owner="Job/j")
    asker = in_queue(a_card_pod("p", 8), "serve", service=ServiceType.INFERENCE)
    session = Session(a_card_node("n", "H200"), replace(training, placed_seconds=60), asker)
    for seen in (
        a_queue("train", min_runtime_seconds=60),
        a_queue("serve", priority=9),
        Workload("Job", "default", "j"),
    ):
        session.tell(Seen(seen))
    session.decide()
    cluster = session.scheduler.cluster
    found = explain(cluster, cluster.records[asker.uid], 0.0)
    console = Console(width=120, file=StringIO())
    with console.capture() as caught:
        console.print(*explanation_text(found, ""), sep="\n")
    said = caught.get()
    assert (
        "default/t    minRuntime of the queue train has not passed: the first may go at 1970-01-01T00:02:00Z\n" in said
    )
    assert "Pods that end are made again, unless you shrink Job default/j.\n" in said
    (kept,) = json.loads(explanation_json(found, None))["kept"]
    assert (kept["pods"], kept["until"]) == (["default/t"], "1970-01-01T00:02:00Z")


def _names(value: Any) -> set[str]:
    """Return the names of all fields but the resources of requests and the parts of a step's body."""
    if isinstance(value, list):
        return set().union(*map(_names, value))
    if not isinstance(value, dict):
        return set()
    inner = [_names(part) for name, part in value.items() if name not in ("requests", "body")]
    return set(value).union(*inner)


@pytest.mark.parametrize("name", ["tune-0", "sweep-0", "train-0", "later"])
async def test_page_fits_on_a_narrow_and_on_a_wide_screen(name: str, kubeconfig: Path) -> None:
    found = await explained(kubeconfig, name)
    for width in (80, 200):
        console = Console(width=width, file=StringIO())
        with console.capture() as caught:
            console.print(*explanation_text(found, ""), sep="\n")
        lines = caught.get().splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= SCREEN_LINES
        assert "…" not in caught.get()
        words = re.sub(r"\s+", "", caught.get())
        for remedy in found.remedies:
            assert all(word in words for word in remedy.text.split())


async def test_kubectl_pool_alone_is_still_the_table(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await said(kubeconfig, "kubectl pool") == 0
    assert capsys.readouterr().out.startswith("Pools")
