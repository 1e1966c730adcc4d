"""The pools as their statuses tell: what is shown, and what is said beside it."""

import asyncio
import io
import json
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest
from rich.console import Console

from aischeduler.cli.output import print_trimmed
from aischeduler.cli.pool_numbers import pool_numbers, read_pool_numbers
from aischeduler.cli.pools import watch_pools
from aischeduler.cli.pools_output import pool_table, pools_json
from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.report.pool_writes import pool_status
from aischeduler.kube.report.status_writes import STATUS_EXPIRY_SECONDS
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary
from tests.build import replace
from tests.kube.api_objects import line, listing
from tests.kube.api_objects import pool as api_pool
from tests.kube.pool_reports import EMPTY, NOTHING, WRITER, a_report
from tests.kube.scripted_server import Script, reply, serving, stream, until
from tests.objects import pool_object

POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
NOW = WRITER.now
LENDING = replace(
    EMPTY,
    nodes=3,
    pods=7,
    pending_pods=2,
    capacity={**NOTHING, CPU: 96_000, MEMORY: 2**40, GPU: 10, "nvidia.com/gpu": 8, "amd.com/gpu": 2},
    used={**NOTHING, CPU: 1_500, MEMORY: 100_000_001, GPU: 3, "nvidia.com/gpu": 3},
    preemption=False,
)


class Pages:
    """Answers lists from prepared pages, by path and continue token; what is not prepared is not served."""

    def __init__(self, pages: Mapping[tuple[str, str], bytes]) -> None:
        self._pages = pages
        self.asked: list[tuple[str, str]] = []

    async def get(self, path: str, query: Mapping[str, str], _seconds: float) -> bytes:
        self.asked.append((path, query.get("continue", "")))
        if self.asked[-1] not in self._pages:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return self._pages[self.asked[-1]]


def page(*items: Any, more: str = "") -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": more}, "items": items}).encode()


def as_client(pages: Pages) -> Client:
    return cast(Client, pages)


def pool(name: str, summary: PoolSummary | None = None, **spec: Any) -> Any:
    """Return a Pool whose status says this, or has none."""
    document: dict[str, Any] = pool_object(name, **spec)
    return (
        document if summary is None else document | {"status": pool_status(a_report(name, summary=summary), {}, WRITER)}
    )


def read(*documents: Any) -> list[PoolDocument]:
    return [msgspec.json.decode(json.dumps(document).encode(), type=PoolDocument) for document in documents]


def test_numbers_are_those_that_the_scheduler_wrote_to_the_byte() -> None:
    numbers = pool_numbers(read(pool("b", LENDING), pool("a", EMPTY)), NOW)
    assert numbers.pools == (replace(EMPTY, name="a"), replace(LENDING, name="b"))
    assert numbers.notes() == []


def test_parts_of_gpus_are_exact_in_the_table_and_rounded_up_in_json() -> None:
    used = {**LENDING.used, "nvidia.com/gpu": 2, GPU: 3, "nvidia.com/gpu/100": 50}
    lending = replace(LENDING, used=used, cards=(CardCount("A100", 8, 300),))
    numbers = pool_numbers(read(pool("b", lending)), NOW)
    assert numbers.pools == (replace(lending, name="b"),)
    text = io.StringIO()
    print_trimmed(Console(file=text, width=200), pool_table(numbers.pools))
    (row,) = [line.split() for line in text.getvalue().splitlines() if " gpu " in line]
    assert row[-6:-3] == ["10", "0", "3.5"]
    (document,) = json.loads(pools_json(numbers.pools))
    assert (document["used"]["gpus"], document["used"]["others"]) == (4, {"nvidia.com/gpu": 3})


async def test_only_pools_are_asked_for_and_every_page_is_read() -> None:
    pages = Pages({(POOLS, ""): page(pool("b", EMPTY), more="next"), (POOLS, "next"): page(pool("a", EMPTY))})
    numbers = await read_pool_numbers(as_client(pages), NOW)
    assert [pool.name for pool in numbers.pools] == ["a", "b"]
    assert pages.asked == [(POOLS, ""), (POOLS, "next")]


def test_pool_without_a_status_has_the_switches_of_its_spec_and_is_named() -> None:
    numbers = pool_numbers(read(pool("a", EMPTY), pool("new", disableSharing=True), pool("more")), NOW)
    shown = {pool.name: pool for pool in numbers.pools}
    assert shown["new"] == replace(EMPTY, name="new", sharing=False)
    assert numbers.notes() == ["no scheduler has written the status of more, new yet; is ai-scheduler running?"]


def test_status_that_nobody_renews_is_said_to_be_old_in_one_line() -> None:
    documents = read(*(pool(f"p{number}", LENDING) for number in range(7)))
    assert pool_numbers(documents, NOW + STATUS_EXPIRY_SECONDS - 1).notes() == []
    assert pool_numbers(documents, NOW + STATUS_EXPIRY_SECONDS + 1).notes() == [
        (
            "the numbers may be old: no scheduler has renewed the status of p0, p1, p2, p3, p4 and 2 more since "
            "2026-01-02T03:04:05Z; is ai-scheduler running?"
        )
    ]


@pytest.mark.parametrize(
    "wrong", [{"nodes": "many"}, {"used": {"cpu": "1.5.3"}}, {"used": 5}, {"gpus": {"used": "x"}}, {"renewTime": "x"}]
)
def test_status_that_cannot_be_read_is_named_and_hides_nothing(wrong: Any) -> None:
    broken = pool("broken", LENDING)
    broken["status"] |= wrong
    numbers = pool_numbers(read(broken, pool("fine", LENDING)), NOW)
    assert [pool.name for pool in numbers.pools] == ["fine"]
    (note,) = numbers.notes()
    assert note.startswith("the pool broken is not shown, because its status cannot be read: ")


def test_cluster_without_pools_says_so() -> None:
    assert pool_numbers([], NOW).notes() == ["there are no Pools; ai-scheduler creates the pool default when it starts"]


async def test_missing_definition_of_pools_is_an_error_and_not_one_default_pool() -> None:
    with pytest.raises(RefusedError):
        await read_pool_numbers(as_client(Pages({})), NOW)


async def test_answer_that_is_no_list_is_an_error() -> None:
    with pytest.raises(MalformedAnswerError, match="pools: the list cannot be read"):
        await read_pool_numbers(as_client(Pages({(POOLS, ""): b"<html>"})), NOW)


async def test_watch_shows_a_pool_that_was_made_again_between_two_looks() -> None:
    script, drawn = Script(), list[list[str]]()
    again = pool_document("a", uid="second", version=101)
    script.on("get", POOLS, reply(200, listing(pool_document("a"))))
    script.on("watch", POOLS, stream(line("MODIFIED", again), line("ADDED", pool_document("b", version=102))))
    async with serving(script) as server, Client(server) as client:
        watching = asyncio.create_task(
            watch_pools(client, lambda shown: drawn.append([pool.name for pool in shown.pools]))
        )
        await until(lambda: drawn and "b" in drawn[-1])
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert drawn[-1] == ["a", "b"]


def pool_document(name: str, *, uid: str = "first", version: int = 1) -> dict[str, Any]:
    document = api_pool(name, version=version)
    return document | {"metadata": document["metadata"] | {"uid": uid}}
