"""Exceptions at calls that a seeded generator chooses: in plugins, policies, and the steps of the engine."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from inspect import isfunction
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Any, Final

import pytest
from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.framework.plugin import Plugins
from aischeduler.model.actions import Action, ReportInternalError
from aischeduler.model.events import Event
from aischeduler.state.claims import Claims
from aischeduler.state.ledger import Ledger
from aischeduler.state.node_table import NodeTable
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.scheduling_queue import PoolQueue
from tests.checked_scheduler import CheckedScheduler
from tests.properties.world import World

MODULES: Final = (
    *(
        "admission",
        "bindings",
        "nominator",
        "count_hints",
        "cycle",
        "apply",
        "evictions",
        "gang_lifecycle",
        "lending",
        "node_events",
        "pod_classes",
        "pod_counting",
        "pod_events",
    ),
    *(
        "pool_events",
        "reclaim",
        "propose",
        "due_pools",
        "message_updates",
        "scheduler",
        "tasks",
        "object_events",
        "searches",
        "pool_status",
        "units",
        "queueing_hints",
        "permits",
        "volume_binding",
        "volume_claims",
        "device_events",
    ),
)
"""Modules of the engine in which every call of a function of the engine or of a policy may raise."""
RECOVERY: Final = (
    "attempt_failed",
    "break_off",
    "event_failed",
    "internal_error",
    "judging_failed",
    "proposal_failed",
    "set_aside",
    "step_failed",
    "before_attempt",
    "advance",
    "note_changes",
)
"""Functions that recover from an exception, or compare versions outside every step; they do not raise here."""
METHODS: Final[dict[type, tuple[str, ...]]] = {
    Cluster: ("enroll", "leave_queue", "offer", "rename", "strike"),
    Claims: ("end", "forget", "make"),
    Ledger: ("book",),
    NodeTable: ("add", "remove", "count_tentatively"),
    PoolQueue: ("add", "flush", "gate", "hold", "next_wakeup", "nominate", "park", "pop", "remove", "retry"),
    RunningPods: ("add", "change", "remove"),
}
"""Steps that change the state: each may raise before it begins and after it ends."""


class InjectedError(Exception):
    """An injected exception."""


class Injector:
    """Raises in a share of the calls while it is armed; `raised` counts the exceptions by call."""

    def __init__(self, seed: int) -> None:
        self.share = 0.0
        self.raised: Counter[str] = Counter()
        self._chance = Random(seed)
        self._armed = False

    @contextmanager
    def armed(self, *, now: bool) -> Iterator[None]:
        """Arm or disarm the injector while the context is open."""
        before, self._armed = self._armed, now
        try:
            yield
        finally:
            self._armed = before

    def may_raise(self, where: str) -> None:
        """Raise, at random, if armed."""
        if self._armed and self.share and self._chance.random() < self.share:
            self.raised[where] += 1
            raise InjectedError(where)

    def breaking(self, where: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with an exception that may be raised before it begins and after it ends."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.may_raise(f"before {where}")
            result = function(*args, **kwargs)
            self.may_raise(f"after {where}")
            return result

        return call

    def calm(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with the injector disarmed while it runs."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.armed(now=False):
                return function(*args, **kwargs)

        return call


class BreakingPlugin:
    """A plugin whose calls may all raise."""

    def __init__(self, plugin: Any, injector: Injector) -> None:
        self._plugin = plugin
        self._injector = injector

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._plugin, name)
        return self._injector.breaking(f"{self._plugin.name}.{name}", found) if callable(found) else found


def breaking_profile(injector: Injector, profile: Profile) -> Profile:
    """Return this profile with plugins that may raise."""

    def broken(plugins: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(BreakingPlugin(plugin, injector) for plugin in plugins)

    plugins = profile.plugins
    parts = (plugins.gates, plugins.filters, plugins.scores, plugins.cross_row, plugins.cross_scores)
    gates, filters, scores, cross_row, cross_scores = map(broken, parts)
    allocators = broken(plugins.allocators)
    units = None if plugins.units is None else BreakingPlugin(plugins.units, injector)
    return replace(
        profile, plugins=Plugins(gates, filters, scores, cross_row, cross_scores, allocators=allocators, units=units)
    )


def break_engine(monkeypatch: pytest.MonkeyPatch, injector: Injector) -> None:
    """Make every step of the engine, every policy and every change of the state raise at random."""
    for name in MODULES:
        module = import_module(f"aischeduler.engine.{name}")
        for attribute, found in tuple(vars(module).items()):
            home = getattr(found, "__module__", "")
            if not isfunction(found) or not home.startswith(("aischeduler.engine.", "aischeduler.policies.")):
                continue
            if attribute in RECOVERY:
                monkeypatch.setattr(module, attribute, injector.calm(found))
            elif not home.endswith(("recovery", "internal_errors")):
                monkeypatch.setattr(module, attribute, injector.breaking(f"{name}.{attribute}", found))
    for owner, names in METHODS.items():
        for method in names:
            found = getattr(owner, method)
            monkeypatch.setattr(owner, method, injector.breaking(f"{owner.__name__}.{method}", found))


class _Armed(Scheduler):
    """An engine with injected exceptions; it raises no other exception."""

    injector: Injector

    def observe(self, event: Event, now: float) -> None:
        with self.injector.armed(now=True), suppress(InjectedError):  # the daemon logs it and continues
            super().observe(event, now)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        with self.injector.armed(now=True):
            actions = super().decide(pool, now, limit)
        for action in actions:
            if isinstance(action, ReportInternalError):
                assert "InjectedError" in action.error, action.traceback
        return actions

    def ready(self, now: float) -> tuple[str, ...]:
        with self.injector.armed(now=True):
            with suppress(InjectedError):
                return super().ready(now)
            return ()  # the daemon searches again after a while


class BreakingScheduler(CheckedScheduler, _Armed):
    """Such an engine with checks."""

    def __init__(self, injector: Injector, profile: Profile, run: str, *, often: bool) -> None:
        self.injector = injector
        super().__init__(breaking_profile(injector, profile), run, often=often)


class BreakingWorld(World):
    """A world whose engine raises."""

    def __init__(self, injector: Injector) -> None:
        self.injector = injector
        super().__init__()

    def _start(self) -> CheckedScheduler:
        self.runs += 1
        return BreakingScheduler(self.injector, self.profile(), f"run{self.runs}", often=self._often)
