"""How `explain` and `plan` print pods that start together, as text and as JSON."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, write_lines
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation
from aischeduler.analysis.plan import Plan, plan
from aischeduler.cli.app import main
from aischeduler.cli.documents import Document
from aischeduler.cli.explain_output import explanation_json, explanation_text, summary_table
from aischeduler.cli.plan_documents import Variant, change_of, plan_input
from aischeduler.cli.plan_output import plan_json, print_plans
from aischeduler.model.events import Event, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session
from tests.objects import Json, job_object, pod_object
from tests.pairs import PAIR, pair_profile

DOCS = Path(__file__).resolve().parents[2] / "docs"


def one_of(pair: str, name: str, **fields: Any) -> Pod:
    return a_pod(name, cpu="2", labels={PAIR: pair}, **fields)


def explained(name: str, *objects: Node | Pod) -> Explanation:
    session = Session(*objects, profile=pair_profile())
    session.decide()
    cluster = session.scheduler.cluster
    return explain(cluster, cluster.records[f"uid-{name}"], session.now)


def printed(*parts: RenderableType) -> list[str]:
    console = Console(width=140, file=StringIO())
    with console.capture() as caught:
        console.print(*parts, sep="\n")
    return [line.rstrip() for line in caught.get().splitlines()]


SHORT = (a_node("n", cpu="3"), a_node("m", cpu="2", unschedulable=True), one_of("x", "x-0"), one_of("x", "x-1"))


def test_text_says_which_pods_start_together_and_how_many_must() -> None:
    lines = printed(*explanation_text(explained("x-0", *SHORT), ""))
    assert lines[2] == (
        "It starts together with default/x-1: both must fit. "
        "The first that does not fit is default/x-1, for which the nodes are shown."
    )
    assert "uncordon the node m                    at once on n, m (default)" in lines
    three = printed(*explanation_text(explained("x-0", *SHORT, one_of("x", "x-2")), ""))
    assert three[2].startswith("It starts together with default/x-1, default/x-2: 2 of the 3 must fit.")


def test_text_of_a_pod_that_waits_for_itself_or_runs_names_its_unit() -> None:
    gated = printed(*explanation_text(explained("x-0", a_node("n"), one_of("x", "x-0")), ""))
    assert gated[0] == "default/x-0 waits in the pool default; it is gated."
    assert gated[2:] == ["Its unit is default/x.", "waits for 1 more pod of its pair"]
    running = explained("x-0", a_node("n"), *(one_of("x", f"x-{index}", node="n") for index in (0, 1)))
    assert printed(*explanation_text(running, ""))[2] == "Its unit is default/x, with default/x-1."


def test_list_shows_a_unit_in_one_line() -> None:
    assert any(line.startswith("default/x-0 and 1 more") for line in printed(summary_table([explained("x-0", *SHORT)])))


def test_json_has_the_unit_and_the_node_of_each_pod_and_the_page_names_the_fields() -> None:
    found = json.loads(explanation_json(explained("x-0", *SHORT), None))
    names = ["default/x-0", "default/x-1"]
    assert found["unit"] == {
        "name": "default/x",
        "pods": names,
        "required": 2,
        "firstRefused": "default/x-1",
        "fit": 1,
        "lacks": [],
    }
    assert found["remedies"][0]["starts"]["nodes"] == {"default/x-0": "n", "default/x-1": "m"}
    page = (DOCS / "cli.md").read_text()
    assert [name for name in (*found["unit"], "nodes") if f"`{name}`" not in page] == []
    assert json.loads(explanation_json(explained("p", a_node("n"), a_pod("p")), None))["unit"] is None


@pytest.mark.parametrize("words", [("--all", "--pool", "default"), ("job/j",)])
def test_pods_that_wait_together_are_one_object_of_a_list(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [one_of("x", "x-0"), one_of("x", "x-1"), one_of("y", "y-0"), one_of("z", "z-0")]
    pods = [replace(pod, labels={**pod.labels, "job-name": "j"}) for pod in pods]
    events: tuple[Event, ...] = (Seen(a_node("n", cpu="3")), *(Seen(pod) for pod in pods))
    file = tmp_path / "cluster.jsonl"
    file.write_bytes(b"\n".join(write_lines(ClusterSnapshot(0, events, ()))))
    monkeypatch.setattr("aischeduler.cli.explain.profile_of", lambda _: pair_profile())
    assert main(["explain", *words, "--snapshot", str(file), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(item["pod"], item["verdict"]) for item in found["items"]] == [
        ("x-0", "waits"),
        ("y-0", "gated"),
        ("z-0", "gated"),
    ]
    assert found["items"][0]["unit"]["pods"] == ["default/x-0", "default/x-1"]


def planned(variant: Variant, *objects: Json) -> Plan:
    snapshot = ClusterSnapshot(0, (Seen(a_node("n1", cpu="2")), Seen(a_node("n2", cpu="2"))), ())
    documents = [Document("f.yaml", str(number), body) for number, body in enumerate(objects, 1)]
    change = change_of(plan_input(documents), snapshot, variant, ())
    return plan(ClusterCopy(pair_profile(), snapshot), change)


def plans_printed(plans: list[tuple[Variant, Plan]]) -> list[str]:
    out = StringIO()
    print_plans(Console(width=120, file=out), plans)
    return out.getvalue().splitlines()


def a_job(name: str) -> Json:
    job = job_object(name, cpu="2", parallelism=1, completions=1)
    job["spec"]["template"]["metadata"] = {"labels": {PAIR: "x"}}
    return job


def test_plan_shows_the_objects_of_a_pair_in_one_line_and_its_kind_is_on_the_page() -> None:
    pods = [pod_object(f"x-{index}", cpu="2", labels={PAIR: "x"}) for index in (0, 1)]
    made = planned(Variant(), *pods)
    (unit,) = json.loads(plan_json([(Variant(), made)], 0, []))["units"]
    assert (unit["kind"], unit["namespace"], unit["name"], unit["pods"]) == ("Unit", "", "default/x", 2)
    assert sorted(unit["nodes"]) == ["default/x-0", "default/x-1"]
    assert plans_printed([(Variant(), made)])[-1].split() == ["Unit/default/x", "2/2", "starts", "n1,", "n2"]
    assert "`Unit`" in (DOCS / "cli.md").read_text()


def test_variants_with_and_without_the_pods_of_a_pair_stand_side_by_side() -> None:
    variants = [Variant(replicas) for replicas in (0, 1)]
    plans = [(variant, planned(variant, a_job("a"), a_job("b"))) for variant in variants]
    rows = {line.split()[0]: line.split()[1:] for line in plans_printed(plans)[2:5]}
    assert rows == {"Job/a": ["starts", "0/0"], "Job/b": ["starts", "0/0"], "Unit/default/x": ["starts", "2/2"]}
