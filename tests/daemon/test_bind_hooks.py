"""Plugins around a Binding: what PreBind refuses is not sent, and PostBind is told of what was bound."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from aischeduler.daemon import bind_hooks
from aischeduler.daemon.bind_hooks import hooks_of
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.kube.http.connection_pool import no_fence
from aischeduler.kube.write.pod_writes import BindAccepted, Unknown
from aischeduler.model.actions import Bind
from aischeduler.model.binding_request import BindingRequest
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.pod import Pod
from tests.build import a_pod
from tests.build import replace as with_fields


class Mount:
    """Prepares pods and notes it; raises for pods named bad, and never ends for pods named slow."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    async def pre_bind(self, pod: Pod, node: str) -> None:
        self._log.append(f"{self.name} prepares {pod.name} on {node}")
        if pod.name == "bad":
            raise OSError("no such volume")
        if pod.name == "slow":
            await asyncio.sleep(3600.0)
        if pod.name == "late":
            await asyncio.sleep(0.25)
        if pod.name == "own":
            raise TimeoutError("the server")
        if pod.name == "cancelled":
            raise asyncio.CancelledError

    def post_bind(self, pod: Pod, node: str) -> None:
        self._log.append(f"{self.name} hears of {pod.name} on {node}")
        if pod.name == "odd":
            raise KeyError("odd")


def profile_with(*plugins: Mount) -> Profile:
    profile = default_profile()
    return replace(profile, plugins=replace(profile.plugins, pre_binds=plugins, post_binds=plugins))


def bind(name: str, profile: str = "") -> Bind:
    pod = a_pod(name)
    return Bind(with_fields(pod, spec=replace(pod.spec, profile=profile)), "n", "default", "default", "d-1", 1)


@pytest.fixture
def failures() -> list[str]:
    return []


def noted(failures: list[str]) -> Any:
    return lambda job, error, **_: failures.append(f"{job}: {error!r}")


async def test_plugins_prepare_in_order_and_hear_of_the_binding(failures: list[str]) -> None:
    log: list[str] = []
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.before(bind("p")) == ""
    hooks.after(bind("p"))
    assert log == ["first prepares p on n", "second prepares p on n", "first hears of p on n", "second hears of p on n"]
    assert failures == []


async def test_exception_refuses_the_binding_and_names_the_plugin(failures: list[str]) -> None:
    log: list[str] = []
    errors = Counter[str]()
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), errors, noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.before(bind("bad")) == "the plugin first did not prepare it: OSError('no such volume')"
    assert log == ["first prepares bad on n"], "the second is not asked"
    assert (errors, failures) == ({"first": 1}, ["plugin first: OSError('no such volume')"])


async def test_plugins_have_their_time_to_prepare_together(
    monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    monkeypatch.setattr(bind_hooks, "PRE_BIND_SECONDS", 0.4)
    log: list[str] = []
    hooks = hooks_of(
        profile_with(Mount("a", log), Mount("b", log), Mount("c", log)), Counter(), noted(failures), no_fence
    )
    assert hooks is not None
    assert await hooks.before(bind("late")) == "the plugin b did not prepare it: took more than 0.4 s"


async def test_timeout_of_the_plugins_own_is_named_as_it_is(failures: list[str]) -> None:
    hooks = hooks_of(profile_with(Mount("first", [])), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.before(bind("own")) == "the plugin first did not prepare it: TimeoutError('the server')"


async def test_cancelled_task_of_a_plugin_costs_one_binding_and_not_the_binder(failures: list[str]) -> None:
    hooks = hooks_of(profile_with(Mount("first", [])), Counter(), noted(failures), no_fence)
    assert hooks is not None
    said = await hooks.before(bind("cancelled"))
    assert said == "the plugin first did not prepare it: RuntimeError('a task of the plugin was cancelled')"


async def test_plugin_that_takes_too_long_refuses_the_binding(
    monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    monkeypatch.setattr(bind_hooks, "PRE_BIND_SECONDS", 0.01)
    hooks = hooks_of(profile_with(Mount("first", [])), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.before(bind("slow")) == "the plugin first did not prepare it: took more than 0.01 s"


async def test_exception_after_the_binding_is_counted_and_keeps_no_other_plugin_from_hearing(
    failures: list[str],
) -> None:
    log: list[str] = []
    errors = Counter[str]()
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), errors, noted(failures), no_fence)
    assert hooks is not None
    hooks.after(bind("odd"))
    assert (len(log), errors) == (2, {"first": 1, "second": 1})


async def test_plugins_of_another_profile_are_not_asked(failures: list[str]) -> None:
    log: list[str] = []
    profile = profile_with(Mount("first", log))
    hooks = hooks_of(
        replace(profile, others={"plain": default_profile().plugins}), Counter(), noted(failures), no_fence
    )
    assert hooks is not None
    assert await hooks.before(bind("bad", profile="plain")) == ""
    assert log == []


def test_without_such_plugins_there_are_no_hooks(failures: list[str]) -> None:
    assert hooks_of(default_profile(), Counter(), noted(failures), no_fence) is None


REQUEST = BindingRequest("/binding", b"{}")


class Agent:
    """Binds the pods of its name; leaves the others to the next, but raises for pods named bad."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    async def bind(self, pod: Pod, node: str, request: BindingRequest) -> bool:
        self._log.append(f"{self.name}: {pod.name} to {node} by {request.path}")
        if pod.name == "bad":
            raise OSError("no agent")
        if pod.name == "slow":
            await asyncio.sleep(3600.0)
        return pod.name == self.name


def bound_by(*agents: Agent, default_binds: bool = True) -> Profile:
    found = default_profile()
    return replace(found, plugins=replace(found.plugins, binds=agents, default_binds=default_binds))


async def test_first_plugin_that_does_not_skip_binds_the_pod(failures: list[str]) -> None:
    log: list[str] = []
    hooks = hooks_of(bound_by(Agent("a", log), Agent("b", log), Agent("c", log)), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.bind(bind("b"), REQUEST) == BindAccepted("uid-b", "n")
    assert log == ["a: b to n by /binding", "b: b to n by /binding"]


async def test_default_binder_binds_what_all_plugins_skip(failures: list[str]) -> None:
    hooks = hooks_of(bound_by(Agent("a", [])), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.bind(bind("p"), REQUEST) is None


async def test_pod_that_all_plugins_skip_is_refused_without_the_default_binder(failures: list[str]) -> None:
    hooks = hooks_of(
        bound_by(Agent("a", []), Agent("b", []), default_binds=False), Counter(), noted(failures), no_fence
    )
    assert hooks is not None
    refused = await hooks.bind(bind("p"), REQUEST)
    assert isinstance(refused, BindRefused)
    why = "no plugin binds it: a, b left it to others, and DefaultBinder is disabled"
    assert (refused.refusal, refused.message) == (BindRefusal.UNAVAILABLE, why)


async def test_exception_of_a_plugin_that_binds_leaves_the_outcome_open_and_names_it(failures: list[str]) -> None:
    log: list[str] = []
    errors = Counter[str]()
    hooks = hooks_of(bound_by(Agent("a", log), Agent("b", log)), errors, noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.bind(bind("bad"), REQUEST) == Unknown("the plugin a did not bind it: OSError('no agent')")
    assert (len(log), errors, failures) == (1, {"a": 1}, ["plugin a: OSError('no agent')"])


async def test_plugin_that_takes_too_long_to_bind_leaves_the_outcome_open(
    monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    monkeypatch.setattr(bind_hooks, "BIND_SECONDS", 0.01)
    hooks = hooks_of(bound_by(Agent("a", [])), Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert await hooks.bind(bind("slow"), REQUEST) == Unknown("the plugin a did not bind it: took more than 0.01 s")


async def test_plugin_binds_only_once_this_scheduler_may_write(failures: list[str]) -> None:
    log: list[str] = []

    async def renewed() -> None:
        log.append("waits for the Lease")

    waits = iter([renewed, renewed])
    fence = lambda: next((wait() for wait in waits), None)  # noqa: E731
    hooks = hooks_of(bound_by(Agent("a", log)), Counter(), noted(failures), fence)
    assert hooks is not None
    await hooks.bind(bind("a"), REQUEST)
    assert log == ["waits for the Lease", "waits for the Lease", "a: a to n by /binding"]


async def test_only_pods_of_a_profile_with_such_a_plugin_may_be_bound_by_one(failures: list[str]) -> None:
    profile = replace(bound_by(Agent("a", [])), others={"plain": default_profile().plugins})
    hooks = hooks_of(profile, Counter(), noted(failures), no_fence)
    assert hooks is not None
    assert [hooks.may_bind(bind("p", profile=name)) for name in ("", "plain")] == [True, False]
