"""What plugins do around a Binding: before it is sent, and after it succeeded."""

from aischeduler.kube.pod_writes import BindAccepted
from aischeduler.model.actions import Bind
from aischeduler.model.events import BindRefusal, BindRefused
from tests.kube.binder_world import World, conflict, refusal
from tests.kube.scripted_server import reply


class Hooks:
    """Notes what it is asked, and answers as it is told."""

    def __init__(self, world: World, why: str = "") -> None:
        self._world, self._why = world, why
        self.log: list[str] = []

    async def before(self, action: Bind) -> str:
        self.log.append(f"before {action.pod.name}, {self._world.posts} sent")
        return self._why

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
    assert refusal(await world.bind(conflict("pod p is being deleted, cannot be assigned to a host")))
    assert hooks.log == ["before p, 0 sent"]


async def test_plugins_are_not_asked_for_a_binding_that_is_out_of_date() -> None:
    world = World()
    world.hooks = hooks = Hooks(world)
    world.engine.settled.add("u1")
    assert refusal(await world.bind()) is BindRefusal.STALE
    assert hooks.log == []
