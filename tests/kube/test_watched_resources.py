"""Watched budgets and namespaces: their events, and what is reported of those that cannot be decoded."""

from typing import Any

from aischeduler.kube.watch import watched_resources
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Seen, gone
from aischeduler.model.pool import Namespace
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until

BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
NAMESPACES = "/api/v1/namespaces"


def budget(name: str, namespace: str = "team-a", *, version: int = 1, selector: Any = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"u-{namespace}-{name}", "resourceVersion": str(version)}
    return {"kind": "PodDisruptionBudget", "metadata": metadata, "spec": {"selector": selector}}


def namespace(name: str, *, version: int = 1, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": str(version), "labels": labels}
    return {"kind": "Namespace", "metadata": metadata}


async def test_budgets_of_one_name_in_two_namespaces_are_two_objects() -> None:
    world = World()
    world.script.on("get", BUDGETS, reply(200, listing(budget("b", "team-a"), budget("b", "team-b"), version=10)))
    world.script.on("watch", BUDGETS, stream(line("DELETED", budget("b", "team-b", version=11))))
    async with world.running(watched_resources.budgets()):
        await until(lambda: len(world.events) == 3)
    seen = [
        event.object.namespace
        for event in world.events
        if isinstance(event, Seen) and isinstance(event.object, DisruptionBudget)
    ]
    assert seen == ["team-a", "team-b"]
    assert world.events[2] == gone(DisruptionBudget, "team-b", "b")


async def test_budget_that_a_later_list_lacks_is_gone_by_namespace_and_name() -> None:
    world = World()
    world.script.on("get", BUDGETS, reply(200, listing(budget("b"), version=10)), reply(200, listing(version=20)))
    world.script.on("watch", BUDGETS, *[stream(end="clean")] * 3)
    async with world.running(watched_resources.budgets()):
        await until(lambda: len(world.events) == 2)
    assert world.events[1] == gone(DisruptionBudget, "team-a", "b")


async def test_budget_with_an_invalid_selector_covers_nothing_and_is_reported() -> None:
    world = World()
    bad = budget("bad", selector={"matchExpressions": [{"key": "a", "operator": "In"}]})
    world.script.on("get", BUDGETS, reply(200, listing(bad, budget("good"), version=10)))
    async with world.running(watched_resources.budgets()) as reflector:
        await until(lambda: len(world.events) == 2)
        assert reflector.counts.unreadable_objects == 1
    event = world.events[0]
    assert isinstance(event, Seen)
    assert isinstance(event.object, DisruptionBudget)
    assert event.object.selector is None
    (told,) = world.unreadable
    assert (told.kind, told.namespace, told.name) == ("PodDisruptionBudget", "team-a", "bad")
    assert told.message == "spec.selector.matchExpressions[0].values: In needs at least one value"


async def test_namespaces_come_change_their_labels_and_go() -> None:
    world = World()
    world.script.on("get", NAMESPACES, reply(200, listing(namespace("team-a", team="a"), version=10)))
    world.script.on(
        "watch",
        NAMESPACES,
        stream(
            line("MODIFIED", namespace("team-a", version=11, team="b")),
            line("DELETED", namespace("team-a", version=12)),
        ),
    )
    async with world.running(watched_resources.namespaces()):
        await until(lambda: len(world.events) == 3)
    assert world.events == [
        Seen(Namespace("team-a", {"team": "a"})),
        Seen(Namespace("team-a", {"team": "b"})),
        gone(Namespace, "team-a"),
    ]
