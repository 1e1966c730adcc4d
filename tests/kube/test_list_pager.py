import asyncio
from contextlib import aclosing

import pytest

from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.list_pager import PREFETCHED_PAGES_MAX, pages, read_raw
from tests.kube.scripted_server import Script, hang, reply, serving, settled, status, until

NODES = "/api/v1/nodes"


def a_page(*names: str, more: str = "") -> dict[str, object]:
    items = [{"metadata": {"name": name}} for name in names]
    return {"metadata": {"resourceVersion": "7", "continue": more}, "items": items}


async def test_next_page_is_requested_while_this_one_is_read() -> None:
    script = Script()
    script.on("get", NODES, reply(200, a_page("a", more="then")), reply(200, a_page("b")))
    async with (
        serving(script) as server,
        Client(server) as client,
        aclosing(pages(client, watched_resources.nodes(), read_raw)) as found,
    ):
        assert len((await anext(found)).items or ()) == 1
        await until(lambda: [request.query.get("continue") for request in script.requests] == [None, "then"])
        assert len((await anext(found)).items or ()) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(found)
        assert len(script.requests) == 2


async def test_reader_that_leaves_early_waits_for_no_page_and_leaves_no_task() -> None:
    script = Script()
    script.on("get", NODES, reply(200, a_page("a", more="then")), hang)
    async with serving(script) as server, Client(server) as client:
        async with asyncio.timeout(120), aclosing(pages(client, watched_resources.nodes(), read_raw)) as found:
            await anext(found)
            await until(lambda: len(script.requests) == 2)
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("list ")] == []


async def test_page_that_is_refused_raises_when_its_turn_comes() -> None:
    script = Script()
    script.on("get", NODES, reply(200, a_page("a", more="then")), status(410, "Expired", "too old"))
    async with (
        serving(script) as server,
        Client(server) as client,
        aclosing(pages(client, watched_resources.nodes(), read_raw)) as found,
    ):
        await anext(found)
        with pytest.raises(RefusedError) as refused:
            await anext(found)
        assert refused.value.status == 410


async def test_pages_requested_ahead_of_the_reader_are_limited() -> None:
    script, last = Script(), 3 * PREFETCHED_PAGES_MAX
    for number in range(last):
        script.on("get", NODES, reply(200, a_page(str(number), more=str(number + 1))))
    script.on("get", NODES, reply(200, a_page(str(last))))
    async with (
        serving(script) as server,
        Client(server) as client,
        aclosing(pages(client, watched_resources.nodes(), read_raw)) as found,
    ):
        await anext(found)
        await until(lambda: len(script.requests) == 1 + PREFETCHED_PAGES_MAX)
        await settled()
        assert len(script.requests) == 1 + PREFETCHED_PAGES_MAX
        assert len([page async for page in found]) == last
    assert [request.query.get("continue", "0") for request in script.requests] == [str(n) for n in range(last + 1)]


async def test_items_that_come_before_the_metadata_hide_no_page() -> None:
    script = Script()
    script.on("get", NODES, reply(200, b'{"kind":"List","items":[{}],"metadata":{"continue":"then"}}'))
    script.on("get", NODES, reply(200, a_page("b")))
    async with serving(script) as server, Client(server) as client:
        assert len([page async for page in pages(client, watched_resources.nodes(), read_raw)]) == 2
