"""The plugins that prepare Bindings and are told of them (PreBind, PostBind).

Invariants:
- The plugins of a pod's profile run in order, before its Binding is sent. The first that raises, or takes too long,
  refuses the Binding: the pod is tried again after a backoff, and its reason names the plugin.
- A Binding whose outcome only a later read shows has no PostBind, as after a restart.
"""

import asyncio
from collections import Counter
from typing import Final

from aischeduler.engine.profile import Profile
from aischeduler.kube.errors import OnInternalError
from aischeduler.model.actions import Bind

PRE_BIND_SECONDS: Final = 20.0
"""The longest that all plugins may take: after 30 seconds a decision is too old to be sent."""


class PluginHooks:
    """Runs the plugins of the pod's profile; their exceptions are counted in `errors` by name."""

    def __init__(self, profile: Profile, errors: Counter[str], on_internal_error: OnInternalError) -> None:
        self._profile, self._errors = profile, errors
        self._on_internal_error = on_internal_error

    async def before(self, action: Bind) -> str:
        """Run PreBind; return why the pod must not be bound, empty where it may."""
        for plugin in self._profile.plugins_of(action.pod).pre_binds:
            try:
                async with asyncio.timeout(PRE_BIND_SECONDS):
                    await plugin.pre_bind(action.pod, action.node)
            except Exception as error:  # noqa: BLE001 - a plugin costs one Binding, not the binder
                why = f"took more than {PRE_BIND_SECONDS:g} s" if isinstance(error, TimeoutError) else f"{error!r}"
                self._failed(plugin.name, error)
                return f"the plugin {plugin.name} did not prepare it: {why}"
        return ""

    def after(self, action: Bind) -> None:
        """Run PostBind."""
        for plugin in self._profile.plugins_of(action.pod).post_binds:
            try:
                plugin.post_bind(action.pod, action.node)
            except Exception as error:  # noqa: BLE001 - the pod is bound
                self._failed(plugin.name, error)

    def _failed(self, name: str, error: Exception) -> None:
        self._errors[name] += 1
        self._on_internal_error(f"plugin {name}", error)


def hooks_of(profile: Profile, errors: Counter[str], on_internal_error: OnInternalError) -> PluginHooks | None:
    """Return the hooks; None where no plugin of a profile has one."""
    plugins = (profile.plugins, *profile.others.values())
    hooked = any(one.pre_binds or one.post_binds for one in plugins)
    return PluginHooks(profile, errors, on_internal_error) if hooked else None
