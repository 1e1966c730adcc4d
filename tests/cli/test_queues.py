"""The tenant queues as a user sees them: the tree, as JSON, live, and when the API server is of no help."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console
from typer import TyperException

from aischeduler.cli.app import main
from aischeduler.cli.output import print_trimmed
from aischeduler.cli.queue_numbers import QueueNumbers, queue_numbers
from aischeduler.cli.queues import UNCOMPUTED, queues_view, watch_queues
from aischeduler.cli.queues_output import COLUMNS, queue_table, queues_json
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.crds import NOT_INSTALLED, QUEUES_NOT_INSTALLED, crd
from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.report.queue_writes import queue_path, queue_status
from aischeduler.kube.report.status_writes import STATUS_EXPIRY_SECONDS
from aischeduler.model.actions import Condition
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.names import CPU
from aischeduler.model.tenant_queue import CardUse, QueueSummary
from aischeduler.sandbox.http_server import HttpSandbox
from tests.kube.pool_reports import WRITER
from tests.kube.queue_reports import BUSY, EMPTY, a_queue_report
from tests.objects import Json, node_object, pod_object
from tests.queue_objects import queue_object, volcano_queue_crd, volcano_queue_object

GIB = 2**30
NOW = WRITER.now
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
QUEUES = "/apis/resource.aibee.cn/v1alpha1/queues"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/queues"
SHARE = {"cards": {"RTX-4090": 8, "H200": 4}, "capability": {"cpu": 4, "memory": "4Gi"}}
OVER = QueueSummary(
    used={CPU: 5000}, pending={}, borrowed={}, quota={CPU: 2000}, cards=(CardUse("H200", 450, 4),), pods=5
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "queues.md"

GOLDEN = """
Queue        Priority  State   Card      Used  Quota  Pending  CPU   Memory
───────────────────────────────────────────────────────────────────────────
vision              0  Open                                 2  3/4  3Gi/4Gi
                               H200         0      4
                               RTX-4090     6      8
                               V100         1      -
  serving      80,000  Open                                 0    5        0
  training     20,000  Closed                               0  5/2        0
                               H200       4.5      4
    nightly         0  Closed                               -  -/8        -
                               H200         -      2
"""


def told(queue: Json, summary: QueueSummary = EMPTY, **conditions: bool) -> QueueDocument:
    """Return a Queue whose status tells these numbers; the conditions are True or not."""
    found = tuple(
        Condition(kind, status=status, reason=ConditionReason.VALID, message="") for kind, status in conditions.items()
    )
    status = queue_status(a_queue_report(conditions=found, summary=summary), {}, WRITER)
    return untold({**queue, "status": {**status, "state": queue["spec"].get("state", "Open")}})


def untold(queue: Json) -> QueueDocument:
    return msgspec.convert(queue, QueueDocument)


def numbers(*ours: QueueDocument, volcano: tuple[Json, ...] = ()) -> QueueNumbers:
    return queue_numbers(ours, map(untold, volcano), NOW)


TENANT = numbers(
    told(queue_object("vision", **SHARE), BUSY, Accepted=True),
    told(queue_object("serving", parent="vision", priority=80_000), replace(OVER, quota={}, cards=())),
    told(
        queue_object("training", parent="vision", priority=20_000, state="Closed", capability={"cpu": 2}),
        OVER,
        OverQuota=True,
    ),
    volcano=(volcano_queue_object("nightly", parent="training", cards={"NVIDIA-H200": 2}, capability={"cpu": "8"}),),
)


def table(shown: QueueNumbers) -> str:
    to = Console(file=io.StringIO(), width=200)
    print_trimmed(to, queue_table(shown.queues))
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def shape(shown: QueueNumbers) -> list[str]:
    return [f"{'.' * row.depth}{row.queue.name}" for row in shown.queues]


def test_table_is_a_tree_with_a_row_for_each_queue_and_each_of_its_cards() -> None:
    assert table(TENANT) == GOLDEN[1:]
    assert TENANT.notes() == []


def test_json_has_every_field_for_every_queue_with_units_in_their_names() -> None:
    queues: list[dict[str, Any]] = json.loads(queues_json(TENANT.queues))
    assert [list(queue) for queue in queues] == [list(queues[0])] * 4
    vision, _, training, nightly = queues
    assert vision == {
        "name": "vision",
        "kind": "Queue",
        "parent": None,
        "depth": 0,
        "priority": 0,
        "reclaimable": True,
        "state": "Open",
        "accepted": True,
        "overQuota": False,
        "pods": 5,
        "pendingPods": 2,
        "cards": [
            {"name": "H200", "used": 0, "quota": 4},
            {"name": "RTX-4090", "used": 6, "quota": 8},
            {"name": "V100", "used": 1, "quota": None},
        ],
        "capability": {"cpuMilli": 4000, "memoryBytes": 4 * GIB, "others": {}},
        "used": {"cpuMilli": 3000, "memoryBytes": 3 * GIB, "others": {"nvidia.com/gpu": 6}},
        "pending": {"cpuMilli": 500, "memoryBytes": 0, "others": {}},
        "borrowed": {"cpuMilli": 1500, "memoryBytes": 0, "others": {"nvidia.com/gpu": 2}},
    }
    assert (training["overQuota"], training["capability"]["memoryBytes"]) == (True, None)
    unsaid = ("accepted", "overQuota", "pods", "pendingPods", "used", "pending", "borrowed")
    assert [nightly[field] for field in unsaid] == [None] * len(unsaid)
    assert (nightly["kind"], nightly["parent"]) == ("Queue.scheduling.volcano.sh", "training")


@pytest.mark.parametrize(
    ("queues", "rows", "note"),
    [
        ({"b": "a", "a": "missing"}, ["a", ".b"], "the parent 'missing' of the queue a does not exist"),
        (
            {"b": "team-aa", "team-a": ""},
            ["b", "team-a"],
            "the parent 'team-aa' of the queue b does not exist; is it team-a?",
        ),
        ({"a": "b", "b": "a", "c": "a"}, ["a", ".c", "b"], "the queue a is its own ancestor, by way of b"),
        ({"a": "a"}, ["a"], "the queue a takes nothing new: spec.parent: a queue cannot be its own parent"),
    ],
    ids=["missing parent", "misspelt parent", "cycle", "own parent"],
)
def test_queue_without_a_usable_parent_is_a_root_with_a_note(
    queues: dict[str, str], rows: list[str], note: str
) -> None:
    shown = numbers(*(told(queue_object(name, parent=parent)) for name, parent in queues.items()))
    assert shape(shown) == rows
    assert note in shown.notes()


def test_of_one_name_our_queue_counts_and_queues_of_volcano_below_a_closed_one_are_closed() -> None:
    shown = numbers(
        told(queue_object("a", priority=7, state="Draining")),
        volcano=(
            volcano_queue_object("a", priority=9),
            volcano_queue_object("b", parent="a"),
            volcano_queue_object("c", parent="root", state="Closing"),
        ),
    )
    assert [(row.queue.name, row.queue.priority, str(row.state)) for row in shown.queues] == [
        ("a", 7, "Draining"),
        ("b", 0, "Draining"),
        ("c", 0, "Closed"),
    ]
    assert shown.notes() == ["there are two queues a: the Queue counts, that of Volcano does not"]


def test_status_that_is_missing_old_or_unreadable_is_a_note_and_hides_no_queue() -> None:
    odd = untold({**queue_object("odd"), "status": {"pods": "many"}})
    shown = queue_numbers(
        [untold(queue_object("new")), odd, told(queue_object("old"))], (), NOW + STATUS_EXPIRY_SECONDS + 1
    )
    assert shape(shown) == ["new", "odd", "old"]
    notes = " ".join(shown.notes())
    assert "no scheduler has written the status of new yet" in notes
    assert "the use of the queue odd is not shown, because its status cannot be read" in notes
    assert "no scheduler has renewed the status of old since" in notes


def test_volcano_that_may_not_be_listed_is_a_note_and_one_that_is_not_served_is_none() -> None:
    ours = [told(queue_object("a"))]
    assert queue_numbers(ours, (), NOW, RefusedError(404, "NotFound", "no")).notes() == []
    notes = queue_numbers(ours, (), NOW, RefusedError(403, "Forbidden", "not you")).notes()
    assert notes == ["queues of Volcano are not shown, because you may not list them: not you"]


def test_name_shows_that_queue_with_all_below_it_and_an_unknown_one_names_the_nearest() -> None:
    assert shape(TENANT.below("training")) == ["training", ".nightly"]
    with pytest.raises(TyperException, match="there is no Queue 'trainin'; is it training"):
        TENANT.below("trainin")


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[Client, Server, Path]]:
    """A cluster with both kinds of queues, and one queue of each."""
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        server = await connect(str(path), None, lambda: 0.0)
        async with Client(server) as client:
            for definition in (crd("queues"), volcano_queue_crd()):
                await post(client, CRDS, definition)
            await post(client, QUEUES, queue_object("vision", **SHARE))
            await post(client, VOLCANO, volcano_queue_object("research", parent="vision", cards={"H200": 2}))
            yield client, server, path


async def post(client: Client, path: str, item: Json) -> None:
    await client.post(path, json.dumps(item).encode())


async def test_command_prints_both_kinds_of_queues_and_an_unknown_name_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as (_, _server, path):
        assert await asyncio.to_thread(main, ["queues", "--kubeconfig", str(path)]) == 0
        said = capsys.readouterr()
        assert await asyncio.to_thread(main, ["queues", "vison", "--kubeconfig", str(path)]) == 1
        wrong = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[2:]] == ["vision", "H200", "RTX-4090", "research", "H200"]
    assert said.err.splitlines() == [
        f"the use of Volcano's queues is not shown: the API server does not serve Pools: {NOT_INSTALLED}",
        "no scheduler has written the status of vision yet; is ai-scheduler running?",
    ]
    assert (wrong.out, wrong.err) == ("", "ai-scheduler: there is no Queue 'vison'; is it vision?\n")


async def test_use_of_queues_of_volcano_is_counted_from_the_pods_and_as_the_configuration_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("overCommitFactor: 1.5\n")
    async with served(tmp_path) as (client, _server, path):
        await post(client, CRDS, crd("pools"))
        await post(client, VOLCANO, volcano_queue_object("night", parent="research", capability={"cpu": "4"}))
        await post(client, "/api/v1/nodes", node_object("n", gpu=8, labels={"nvidia.com/gpu.product": "NVIDIA-H200"}))
        for name, gpus, node in (("runs", 1, "n"), ("waits", 2, "")):
            said_queue = {"scheduling.volcano.sh/queue-name": "night"}
            pod = pod_object(name, cpu="3", gpu=gpus, node=node, annotations=said_queue)
            await post(client, "/api/v1/namespaces/default/pods", pod)
        arguments = ["queues", "research", "--kubeconfig", str(path), "--config", str(config)]
        assert await asyncio.to_thread(main, arguments) == 0
        said = capsys.readouterr()
        assert await asyncio.to_thread(main, [*arguments, "-o", "json"]) == 0
        _, night = json.loads(capsys.readouterr().out)
    rows = [line.split() for line in said.out.splitlines()[2:]]
    assert rows[0] == ["research", "0", "Open", "1", "3", "1Gi"]
    assert rows[1] == ["H200", "1", "2"]
    assert rows[2][:5] == ["night", "0", "Open", "1", "3/6"]
    assert said.err == ""
    assert (night["pods"], night["pending"]["others"], night["accepted"]) == (1, {"nvidia.com/gpu": 2}, True)


async def test_watch_draws_a_new_status_and_new_queues_of_both_kinds(tmp_path: Path) -> None:
    drawn: list[QueueNumbers] = []
    async with served(tmp_path) as (client, _server, _path), asyncio.timeout(60):
        watching = asyncio.create_task(watch_queues(client, drawn.append))
        status = queue_status(a_queue_report("vision", summary=BUSY), {}, WRITER)
        await drawn_until(drawn, lambda shown: len(shown.queues) == 2)
        body = json.dumps({"status": status}).encode()
        await client.patch(queue_path("vision", "status"), body, "application/merge-patch+json")
        await drawn_until(drawn, lambda shown: shown.queues[0].use is not None)
        await post(client, VOLCANO, volcano_queue_object("late", parent="research"))
        await drawn_until(drawn, lambda shown: shape(shown) == ["vision", ".research", "..late"])
        assert UNCOMPUTED in drawn[-1].notes()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def drawn_until(drawn: list[QueueNumbers], true: Any) -> None:
    while not (drawn and true(drawn[-1])):
        await asyncio.sleep(0.05)


async def test_cluster_that_does_not_know_queues_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        server = await connect(str(path), None, lambda: 0.0)
        assert await asyncio.to_thread(main, ["queues", "--kubeconfig", str(path)]) == 1
        async with Client(server) as client:
            with pytest.raises(RefusedError) as refused:
                await watch_queues(client, lambda _: None)
    text = f"{server.url} does not serve Queues: {QUEUES_NOT_INSTALLED}"
    assert capsys.readouterr().err == f"ai-scheduler: {text}\n"
    assert queues_view().error_sentence(server, refused.value) == text


def test_documentation_names_every_column() -> None:
    text = PAGE.read_text()
    assert [column for column in COLUMNS if column not in text] == []
