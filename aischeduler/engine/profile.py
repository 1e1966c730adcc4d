"""The settings of a scheduler, and the plugins of its profiles: one for each scheduler name that it schedules."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.config.errors import ProfileError
from aischeduler.config.profiles import ProfileConfig
from aischeduler.engine.plugin_registry import CardSettings, make_plugins
from aischeduler.framework.plugin import Plugins, QueueSort, UnitPolicy
from aischeduler.model.names import DEFAULT_POOL, GPU_DEFAULT, GPU_TYPE_LABELS, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.pool import GroupRule, MakeRoomOrder, Pool
from aischeduler.model.tenant_queue import TenantSettings
from aischeduler.state.scheduling_queue import Backoff


class Profile(Struct, frozen=True):
    """The settings of one scheduler, and the plugins for pods of its own name.

    `others` are the plugins for the pods of other scheduler names, and `profiles` the part of the configuration from
    which they were made, in its order; empty where it has none.
    `gpu_resources` are the resource names that count as GPUs; without `preemption` no pod is evicted.
    `make_room` is that of pools without one. With `hold_unsupported`, pods with unsupported hard constraints are held.
    `default_pool` is the default pool while it has no object. `gpu_type_labels` are the labels of nodes that have the
    type of their cards, `rare_types` the full names of types that are rare in every pool, and `machine_groups` say who
    may name a group, beside those of Pools. With `obeys_budgets` pods are evicted by the Eviction API, and with `hami`
    nodes of HAMi get pods.
    `tenants` are the settings of tenants at the start.
    """

    scheduler_name: str
    gpu_resources: tuple[str, ...]
    plugins: Plugins
    preemption: bool = True
    make_room: MakeRoomOrder = MakeRoomOrder.PREEMPT_THEN_BORROW
    hold_unsupported: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    default_pool: Pool = field(default_factory=lambda: Pool(DEFAULT_POOL))
    gpu_type_labels: tuple[str, ...] = GPU_TYPE_LABELS
    rare_types: tuple[str, ...] = ()
    machine_groups: tuple[GroupRule, ...] = ()
    obeys_budgets: bool = False
    others: Mapping[str, Plugins] = field(default_factory=dict)
    profiles: tuple[ProfileConfig, ...] = ()
    tenants: TenantSettings = TenantSettings()
    """What is said of tenant queues when the engine starts; a running one may be told otherwise."""
    hami: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The scheduler names of the pods that are scheduled, the own first; each is the name of a profile."""
        return (self.scheduler_name, *self.others)

    def plugins_of(self, pod: Pod) -> Plugins:
        """Return the plugins of the pod's profile."""
        return self.others[pod.spec.profile] if pod.spec.profile else self.plugins

    @property
    def queue_sort(self) -> QueueSort | None:
        """The plugin that sorts the queues, which is one for all profiles; None where priorities do."""
        return self.plugins.queue_sort

    @property
    def unit_policy(self) -> UnitPolicy | None:
        """The plugin that forms units, which is one for all profiles; None where no profile has it."""
        found = (self.plugins, *self.others.values())
        return next((plugins.units for plugins in found if plugins.units is not None), None)

    def first_room(self, pool: Pool) -> MakeRoomOrder:
        """Return what a pod of this pool that fits on none of its nodes tries first."""
        return pool.make_room or self.make_room


def default_profile(
    scheduler_name: str = SCHEDULER_NAME,
    gpu_resources: tuple[str, ...] = (GPU_DEFAULT,),
    gpu_type_labels: tuple[str, ...] = GPU_TYPE_LABELS,
    *,
    preemption: bool = True,
) -> Profile:
    """Return the profile of all built-in plugins, in kube-scheduler's order; those of its own come after affinity."""
    plugins = make_plugins(ProfileConfig(), "profiles[0]", CardSettings(gpu_resources, gpu_type_labels))
    return Profile(scheduler_name, gpu_resources, plugins, preemption, gpu_type_labels=gpu_type_labels)


def with_profiles(profile: Profile, profiles: tuple[ProfileConfig, ...]) -> Profile:
    """Return the profile with the plugins that the configuration says.

    `profiles` have their names. Raises ProfileError, which names the path in the file.
    """
    if not profiles:
        return profile
    cards = CardSettings(profile.gpu_resources, profile.gpu_type_labels)
    made = {
        profile.scheduler_name: make_plugins(profile, f"profiles[{index}]", cards)
        for index, profile in enumerate(profiles)
    }
    own = made.pop(profile.scheduler_name, profile.plugins)
    _check_common(own, made)
    return replace(profile, plugins=own, others=made, profiles=profiles)


def _check_common(own: Plugins, others: Mapping[str, Plugins]) -> None:
    """Refuse profiles that sort the queues, or form units, in different ways: both have pods of several profiles."""
    sorts = sorted(
        {plugins.queue_sort.name if plugins.queue_sort else "PrioritySort" for plugins in (own, *others.values())}
    )
    if len(sorts) > 1:
        raise ProfileError(f"profiles: the plugin that sorts the queues must be one for all, not {', '.join(sorts)}")
    names = sorted({plugins.units.name for plugins in (own, *others.values()) if plugins.units is not None})
    if len(names) > 1:
        raise ProfileError(f"profiles: the plugin that forms units must be one for all, not {', '.join(names)}")
