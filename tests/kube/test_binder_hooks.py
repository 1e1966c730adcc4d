"""What plugins do around a Binding: before it is sent, and after it succeeded."""

import json

from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.write.binder import Outcome
from aischeduler.kube.write.pod_writes import BindAccepted, Unknown, unavailable
from aischeduler.model.actions import Bind, ReadPod
from aischeduler.model.binding_request import BindingRequest
from aischeduler.model.events import BindRefusal, BindRefused
from tests.build import a_pod
from tests.kube.binder_world import BIND, BOUND, FREE, PATH, World, refusal
from tests.kube.scripted_server import reply, status, until


class Hooks:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self, world: World, why: str = "") -> None:
        self._world, self._why = world, why
        self.log: list[str] = []
        self.binding: Outcome | Unknown | None = None
        """What the plugins that bind answer."""
        self.requests: list[BindingRequest] = []

    async def before(self, action: Bind) -> str:
        self.log.append(f"before {action.pod.name}, {self._world.posts} sent")
        return self._why

    def may_bind(self, action: Bind) -> bool:
        return True

    async def bind(self, action: Bind, request: BindingRequest) -> Outcome | Unknown | None:
        self.requests.append(request)
        return self.binding

    def after(self, action: Bind) -> None:
        self.log.append(f"after {action.pod.name}, {self._world.posts} sent")


async def test_plugins_are_asked_before_a_binding_is_sent_and_told_once_it_succeeded() -> None:
    world = World()
    world.hooks = hooks = Hooks(world)
    assert isinstance(await world.bind(reply(201)), BindAccepted)
    assert hooks.log == ["before p, 0 sent", "after p, 1 sent"]


async def test_binding_that_a_plugin_does_not_prepare_is_not_sent_and_tried_again() -> None:
    world = World()
    world.hooks = hooks = Hooks(world, "the plugin Mount did not prepare it")
    outcome = await world.bind()
    assert isinstance(outcome, BindRefused)
    assert (outcome.refusal, outcome.message, world.posts) == (
        BindRefusal.UNAVAILABLE,
        "the plugin Mount did not prepare it",
        0,
    )
    assert hooks.log == ["before p, 0 sent"]


async def test_plugins_do_not_hear_of_a_refused_binding() -> None:
    world = World()
    world.hooks = hooks = Hooks(world)
    assert refusal(await world.bind(status(422, "Invalid", "no")))
    assert hooks.log == ["before p, 0 sent"]


async def test_plugins_are_not_asked_for_a_binding_that_is_out_of_date() -> None:
    world = World()
    world.hooks = hooks = Hooks(world)
    world.engine.settled.add("u1")
    assert refusal(await world.bind()) is BindRefusal.STALE
    assert hooks.log == []


def world_where(answer: Outcome | Unknown | None) -> tuple[World, Hooks]:
    world = World()
    world.hooks = hooks = Hooks(world)
    hooks.binding = answer
    return world, hooks


async def test_pod_that_a_plugin_bound_gets_no_second_binding_and_plugins_are_told() -> None:
    world, hooks = world_where(BindAccepted("u1", "n1"))
    assert isinstance(await world.bind(), BindAccepted)
    assert (world.posts, world.asked) == (0, 0)
    assert hooks.log == ["before p, 0 sent", "after p, 0 sent"]


async def test_plugin_that_binds_gets_the_request_that_is_sent_where_it_leaves_the_pod_to_others() -> None:
    world, hooks = world_where(None)
    assert isinstance(await world.bind(reply(201)), BindAccepted)
    (request,), (sent,) = hooks.requests, world.script.asked("post")
    assert (request.path, json.loads(request.body)) == (PATH, sent.json)
    assert (sent.json["target"]["name"], sent.json["metadata"]["uid"]) == ("n1", "u1")


async def test_pod_on_no_node_after_an_exception_of_the_plugin_is_tried_again() -> None:
    world, hooks = world_where(Unknown("the plugin Far did not bind it: OSError()"))
    world.reads = [FREE]
    outcome = await world.bind()
    assert isinstance(outcome, BindRefused)
    assert (outcome.refusal, outcome.message) == (
        BindRefusal.UNAVAILABLE,
        "the plugin Far did not bind it: OSError()",
    )
    assert (world.posts, hooks.log) == (0, ["before p, 0 sent"])


async def test_pod_on_its_node_after_an_exception_of_the_plugin_is_bound() -> None:
    world, hooks = world_where(Unknown("the plugin Far did not bind it: OSError()"))
    world.reads = [BOUND]
    assert isinstance(await world.bind(), BindAccepted)
    assert hooks.log == ["before p, 0 sent", "after p, 0 sent"]


async def test_pod_that_a_plugin_bound_to_another_node_is_taken() -> None:
    world, _ = world_where(Unknown("the plugin Far did not bind it: OSError()"))
    world.reads = [a_pod("p", uid="u1", node="elsewhere")]
    assert refusal(await world.bind()) is BindRefusal.TAKEN


async def test_pod_that_cannot_be_read_after_an_exception_is_in_doubt_until_it_is_read() -> None:
    world, _ = world_where(Unknown("the plugin Far did not bind it: OSError()"))
    world.reads = [RefusedError(403, "Forbidden", "no")] * 3
    async with world.running() as binder:
        binder.submit(BIND)
        await until(lambda: binder.in_doubt == 1)
        assert world.outcomes == []
        binder.settle(ReadPod(BIND.pod, BIND.node, BIND.decision), FREE, world.hear)
    assert [refusal(outcome) for outcome in world.outcomes] == [BindRefusal.UNAVAILABLE]


async def test_refusal_of_plugins_is_the_outcome_without_a_read() -> None:
    world, _ = world_where(unavailable(BIND, "no plugin binds it"))
    assert refusal(await world.bind()) is BindRefusal.UNAVAILABLE
    assert (world.posts, world.asked) == (0, 0)


async def test_pod_that_is_gone_once_it_is_prepared_is_not_bound_by_a_plugin() -> None:
    world, hooks = world_where(BindAccepted("u1", "n1"))

    async def settled(action: Bind) -> str:
        world.engine.settled.add("u1")
        return ""

    hooks.before = settled  # type: ignore[method-assign]
    assert refusal(await world.bind()) is BindRefusal.STALE
    assert hooks.requests == []
