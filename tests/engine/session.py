"""A scheduler under test, with short methods, and exceptions at a chosen step of the engine."""

from importlib import import_module
from itertools import count
from typing import Any

import pytest

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import (
    Action,
    Bind,
    CreatePool,
    Evict,
    Nominate,
    Refresh,
    ReportInternalError,
    ReportPool,
    ReportQueue,
    ReportWaiting,
    Warn,
)
from aischeduler.model.device import NodeDevices
from aischeduler.model.events import Event, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from tests.checked_scheduler import CheckedScheduler, answers


class Session:
    """A checked engine and its clock; `said` has every action so far."""

    def __init__(self, *objects: Node | Pod | Pool | NodeDevices, profile: Profile | None = None) -> None:
        self.scheduler = CheckedScheduler(profile or default_profile(), "run")
        self.now = 0.0
        self.said: list[Action] = []
        self.see(*objects)

    def see(self, *objects: Node | Pod | Pool | NodeDevices) -> None:
        """Let the engine observe objects as they are now."""
        self.tell(*map(Seen, objects))

    def tell(self, *events: Event) -> None:
        """Let the engine observe events."""
        for event in events:
            self.scheduler.observe(event, self.now)

    def decide(self, seconds: float = 0.0) -> list[Action]:
        """Advance the clock, then decide for every pool until none is ready; return the actions on pods and nodes.

        Status reports and reads are only in `said`.
        """
        self.now += seconds
        said: list[Action] = []
        while pools := self.scheduler.ready(self.now):
            for pool in pools:
                actions = self.scheduler.decide(pool, self.now, 1)
                said.extend(actions)
                self.tell(*answers(actions))
        self.said += said
        unsaid = ReportPool | ReportQueue | CreatePool | Refresh
        return [action for action in said if not isinstance(action, unsaid)]


def binds(actions: list[Action]) -> dict[str, str]:
    """Return pod -> node of the binds among the actions."""
    return {action.pod.name: action.node for action in actions if isinstance(action, Bind)}


def reports(actions: list[Action]) -> dict[str, str]:
    """Return pod -> reason of the reports among the actions."""
    return {action.pod.name: action.message for action in actions if isinstance(action, ReportWaiting)}


def warnings(actions: list[Action]) -> list[tuple[str, str]]:
    """Return (object, reason) of the warnings among the actions."""
    return [(action.about.name, action.reason) for action in actions if isinstance(action, Warn)]


def conditions(actions: list[Action], pool: str) -> dict[str, tuple[bool, str]]:
    """Return type -> (status, message) of the conditions that were reported last."""
    told = [action for action in actions if isinstance(action, ReportPool) and action.name == pool]
    return {c.type: (c.status, c.message) for c in told[-1].conditions} if told else {}


def evictions(actions: list[Action]) -> dict[str, str]:
    """Return victim -> cause of the evictions among the actions."""
    return {action.victim.name: str(action.cause) for action in actions if isinstance(action, Evict)}


def nominations(actions: list[Action]) -> dict[str, str]:
    """Return pod -> node (empty where cleared) of the last nominations among the actions."""
    return {action.pod.name: action.node for action in actions if isinstance(action, Nominate)}


def errors(actions: list[Action]) -> list[ReportInternalError]:
    return [action for action in actions if isinstance(action, ReportInternalError)]


def fail_once(monkeypatch: pytest.MonkeyPatch, module: str, step: str) -> None:
    """Make a step of the engine raise the first time that this module calls it."""
    path = f"aischeduler.engine.{module}"
    function, calls = getattr(import_module(path), step), count()

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            raise ValueError("a bug in a step")
        return function(*args, **kwargs)

    monkeypatch.setattr(f"{path}.{step}", failing)
