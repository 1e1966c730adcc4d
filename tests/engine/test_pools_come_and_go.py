"""Pools that come and go leave nothing behind: what is kept is bounded by the pools that exist."""

from typing import Any

import numpy as np
import pytest

from aischeduler.engine.pool_status import _running
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.state.node_table import NodeTable
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds

ON_NODE = {"pool": "x"}


def kept(thing: Any, seen: set[int] | None = None) -> int:
    """Count the entries of all containers that can be reached from an object of the package."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None):
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.size
    if isinstance(thing, dict):
        return len(thing) + sum(kept(key, seen) + kept(value, seen) for key, value in tuple(thing.items()))
    if isinstance(thing, list | tuple | set | frozenset):
        return len(thing) + sum(kept(one, seen) for one in thing)
    if not type(thing).__module__.startswith(("aischeduler", "collections", "sortedcontainers", "cachetools")):
        return 0
    slots = (getattr(thing, name, None) for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
    return kept(getattr(thing, "__dict__", {}), seen) + sum(kept(value, seen) for value in slots)


def come_and_go(session: Session, number: int) -> None:
    """Create a pool with a node, a pod on loan and a waiting pod, and delete all of them."""
    name = f"pool-{number}"
    session.see(a_pool(name, labels=ON_NODE), a_pod(name, pool=name, cpu="9"))
    session.tell(gone(Pool, name), gone(Pod, f"uid-{name}"))


@pytest.mark.parametrize("times", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_pools_that_came_and_went_leave_nothing_behind(times: int) -> None:
    session = Session(a_node("n", labels=ON_NODE), a_node("m"), a_pod("p", node="n", started=1))
    session.scheduler.often = False
    cluster = session.scheduler.cluster
    sizes: list[tuple[int, ...]] = []
    for number in range(times):
        come_and_go(session, number)
        if number % 100 == 99:
            session.decide(1.0)
        if number in (times // 10 - 1, times - 1):
            session.see(a_pool("last", labels=ON_NODE))
            sums = _running(cluster)
            session.tell(gone(Pool, "last"))
            session.decide(1.0)
            state = [cluster, session.scheduler._readiness, session.scheduler._status]
            sizes.append((kept(state) - kept_histories(cluster), *map(len, sums)))
    session.scheduler.look()
    assert sizes[0] == sizes[1]
    assert sizes[1][1:] == (2, 2), "only the existing pools have summaries"


def kept_histories(cluster: Any) -> int:
    """Count the entries of journals and caches, which have limits of their own."""
    nodes: NodeTable = cluster.nodes
    return (
        len(nodes._changes._changes)
        + len(cluster.running._changes._changes)
        + kept(cluster.searches)
        + kept(cluster.runner._classes)
    )


def test_number_of_a_pool_that_is_gone_is_used_again_and_mixes_nothing_up() -> None:
    session = Session(a_pool("old", labels=ON_NODE), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", labels=ON_NODE), a_node("nb", labels={"pool": "b"}))
    session.see(a_pod("own", pool="old", node="n", started=1), a_pod("lent", pool="old", node="nb", started=1))
    session.decide()
    pools, number = session.scheduler.cluster.pools, session.scheduler.cluster.pools.id("old")
    session.tell(gone(Pool, "old"))
    session.see(a_pool("new", labels=ON_NODE))
    assert pools.id("new") == number
    session.decide(1.0)
    assert session.scheduler.loans() == {("b", "default"): 1, ("new", "default"): 1}
    session.see(a_pod("p", pool="new", cpu="3"))
    assert binds(session.decide()) == {"p": "n"}
    assert session.scheduler.loans() == {("b", "default"): 1, ("new", "default"): 1}
