"""The plugins that prepare Bindings, bind pods themselves, and are told of Bindings (PreBind, Bind, PostBind).

Invariants:
- The plugins of a pod's profile run in order, before its Binding is sent. The first that raises, or takes too long,
  refuses the Binding: the pod is tried again after a backoff, and its reason names the plugin.
- A plugin binds only while this scheduler may write. DefaultBinder binds what all plugins leave to it.
- A Binding whose outcome only a later read shows has no PostBind, as after a restart.

Source: RunPreBindPlugins, RunBindPlugins and RunPostBindPlugins of kube-scheduler.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from aischeduler.engine.profile import Profile
from aischeduler.framework.plugin import Plugins
from aischeduler.kube.http.connection_pool import Fence
from aischeduler.kube.http.errors import OnInternalError
from aischeduler.kube.write.binder import Outcome
from aischeduler.kube.write.pod_writes import BindAccepted, Unknown, unavailable
from aischeduler.model.actions import Bind
from aischeduler.model.binding_request import BindingRequest

PRE_BIND_SECONDS: Final = 20.0
"""The longest that all plugins may take to prepare: after 30 seconds a decision is too old to be sent."""
BIND_SECONDS: Final = 20.0

T = TypeVar("T")


class Failure(NamedTuple):
    """Why a plugin failed."""

    why: str


class Deadline:
    """When plugins must have ended that begin now and have so many `seconds` together."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.at = seconds, asyncio.get_running_loop().time() + seconds


class PluginHooks:
    """Runs the plugins of the pod's profile; their exceptions are counted in `errors` by name.

    `fence` is called before a plugin binds, as before every write.
    """

    def __init__(
        self, profile: Profile, errors: Counter[str], on_internal_error: OnInternalError, fence: Fence
    ) -> None:
        self._profile, self._errors = profile, errors
        self._on_internal_error, self._fence = on_internal_error, fence

    async def before(self, action: Bind) -> str:
        """Run PreBind; return why the pod must not be bound, empty where it may."""
        end = Deadline(PRE_BIND_SECONDS)
        for plugin in self._plugins(action).pre_binds:
            found = await self._run(plugin.name, partial(plugin.pre_bind, action.pod, action.node), end)
            if isinstance(found, Failure):
                return f"the plugin {plugin.name} did not prepare it: {found.why}"
        return ""

    def may_bind(self, action: Bind) -> bool:
        """Return whether the pod's profile has a plugin that binds."""
        return bool(self._plugins(action).binds)

    async def bind(self, action: Bind, request: BindingRequest) -> Outcome | Unknown | None:
        """Run Bind; return None where DefaultBinder is to bind the pod."""
        plugins = self._plugins(action)
        while (wait := self._fence()) is not None:
            await wait
        end = Deadline(BIND_SECONDS)
        for plugin in plugins.binds:
            found = await self._run(plugin.name, partial(plugin.bind, action.pod, action.node, request), end)
            if isinstance(found, Failure):
                return Unknown(f"the plugin {plugin.name} did not bind it: {found.why}")
            if found:
                return BindAccepted(action.pod.uid, action.node)
        if plugins.default_binds:
            return None
        names = ", ".join(plugin.name for plugin in plugins.binds)
        return unavailable(action, f"no plugin binds it: {names} left it to others, and DefaultBinder is disabled")

    def after(self, action: Bind) -> None:
        """Run PostBind."""
        for plugin in self._plugins(action).post_binds:
            try:
                plugin.post_bind(action.pod, action.node)
            except Exception as error:  # noqa: BLE001 - the pod is bound
                self._failed(plugin.name, error)

    async def _run(self, name: str, call: Callable[[], Awaitable[T]], end: Deadline) -> T | Failure:
        """Call a plugin; it costs one Binding, not the binder, if it raises or takes too long."""
        limit = asyncio.timeout_at(end.at)
        try:
            async with limit:
                return await call()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failed(name, RuntimeError("a task of the plugin was cancelled"))
        except Exception as error:  # noqa: BLE001 - as said
            return self._failed(name, error, f"took more than {end.seconds:g} s" if limit.expired() else "")

    def _failed(self, name: str, error: Exception, why: str = "") -> Failure:
        self._errors[name] += 1
        self._on_internal_error(f"plugin {name}", error)
        return Failure(why or repr(error))

    def _plugins(self, action: Bind) -> Plugins:
        return self._profile.plugins_of(action.pod)


def hooked_plugins(profile: Profile) -> tuple[str, ...]:
    """Return the names of the plugins with hooks around Bindings, sorted."""
    plugins = (profile.plugins, *profile.others.values())
    hooked = {plugin.name for each in plugins for plugin in each.pre_binds}
    hooked |= {plugin.name for each in plugins for plugin in each.binds}
    hooked |= {plugin.name for each in plugins for plugin in each.post_binds}
    return tuple(sorted(hooked))


def hooks_of(
    profile: Profile, errors: Counter[str], on_internal_error: OnInternalError, fence: Fence
) -> PluginHooks | None:
    """Return the hooks; None where no plugin of a profile has one."""
    return PluginHooks(profile, errors, on_internal_error, fence) if hooked_plugins(profile) else None
