"""Plugins around a Binding: what PreBind refuses is not sent, and PostBind is told of what was bound."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from aischeduler.daemon import bind_hooks
from aischeduler.daemon.bind_hooks import hooks_of
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Bind
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
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), Counter(), noted(failures))
    assert hooks is not None
    assert await hooks.before(bind("p")) == ""
    hooks.after(bind("p"))
    assert log == ["first prepares p on n", "second prepares p on n", "first hears of p on n", "second hears of p on n"]
    assert failures == []


async def test_exception_refuses_the_binding_and_names_the_plugin(failures: list[str]) -> None:
    log: list[str] = []
    errors = Counter[str]()
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), errors, noted(failures))
    assert hooks is not None
    assert await hooks.before(bind("bad")) == "the plugin first did not prepare it: OSError('no such volume')"
    assert log == ["first prepares bad on n"], "the second is not asked"
    assert (errors, failures) == ({"first": 1}, ["plugin first: OSError('no such volume')"])


async def test_plugin_that_takes_too_long_refuses_the_binding(
    monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    monkeypatch.setattr(bind_hooks, "PRE_BIND_SECONDS", 0.01)
    hooks = hooks_of(profile_with(Mount("first", [])), Counter(), noted(failures))
    assert hooks is not None
    assert await hooks.before(bind("slow")) == "the plugin first did not prepare it: took more than 0.01 s"


async def test_exception_after_the_binding_is_counted_and_keeps_no_other_plugin_from_hearing(
    failures: list[str],
) -> None:
    log: list[str] = []
    errors = Counter[str]()
    hooks = hooks_of(profile_with(Mount("first", log), Mount("second", log)), errors, noted(failures))
    assert hooks is not None
    hooks.after(bind("odd"))
    assert (len(log), errors) == (2, {"first": 1, "second": 1})


async def test_plugins_of_another_profile_are_not_asked(failures: list[str]) -> None:
    log: list[str] = []
    profile = profile_with(Mount("first", log))
    hooks = hooks_of(replace(profile, others={"plain": default_profile().plugins}), Counter(), noted(failures))
    assert hooks is not None
    assert await hooks.before(bind("bad", profile="plain")) == ""
    assert log == []


def test_without_such_plugins_there_are_no_hooks(failures: list[str]) -> None:
    assert hooks_of(default_profile(), Counter(), noted(failures)) is None
