"""The one look at the cluster behind the table of pools."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from aischeduler.cli.snapshot import take_snapshot
from aischeduler.engine.profile import default_profile
from aischeduler.kube.client import Client
from aischeduler.kube.errors import GarbledError, RefusedError
from tests.objects import node_object, pod_object

PODS, NODES, POOLS = "/api/v1/pods", "/api/v1/nodes", "/apis/resource.aibee.cn/v1alpha1/pools"


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


async def test_every_page_is_read() -> None:
    pages = Pages(
        {
            (POOLS, ""): page(),
            (NODES, ""): page(node_object("a"), more="next"),
            (NODES, "next"): page(node_object("b")),
            (PODS, ""): page(),
        }
    )
    (pool,) = (await take_snapshot(as_client(pages), default_profile())).pools
    assert (pool.name, pool.nodes) == ("default", 2)


async def test_object_that_cannot_be_read_is_named_and_hides_nothing() -> None:
    broken = {"metadata": {"namespace": "team", "name": "broken"}, "spec": 5}
    pages = Pages(
        {
            (POOLS, ""): page(),
            (NODES, ""): page(node_object("a"), 5),
            (PODS, ""): page(broken, pod_object("fine", node="a")),
        }
    )
    snapshot = await take_snapshot(as_client(pages), default_profile())
    assert snapshot.pools[0].pods == 1
    nameless, named = snapshot.unreadable
    assert nameless.startswith("Node without a name: ")
    assert named.startswith("Pod team/broken: ")


async def test_missing_pods_are_an_error_and_not_an_empty_cluster() -> None:
    pages = Pages({(POOLS, ""): page(), (NODES, ""): page()})
    with pytest.raises(RefusedError):
        await take_snapshot(as_client(pages), default_profile())


async def test_missing_definition_of_pools_is_an_error_and_not_one_default_pool() -> None:
    pages = Pages({(NODES, ""): page(), (PODS, ""): page()})
    with pytest.raises(RefusedError):
        await take_snapshot(as_client(pages), default_profile())


async def test_answer_that_is_no_list_is_an_error() -> None:
    pages = Pages({(POOLS, ""): page(), (NODES, ""): b"<html>"})
    with pytest.raises(GarbledError, match="/api/v1/nodes: the list cannot be read"):
        await take_snapshot(as_client(pages), default_profile())
