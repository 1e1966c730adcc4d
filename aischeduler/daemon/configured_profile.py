"""The engine's profile for a configuration; commands that answer questions read it without the rest of the daemon."""

from msgspec.structs import replace

from aischeduler.config.errors import ConfigError, ProfileError
from aischeduler.config.profiles import with_names
from aischeduler.config.schema import Config, ConstraintRule, EvictionWay, GroupRuleConfig
from aischeduler.config.tenants import selector_of, tenants_of
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.model.card_types import TypeNameError, type_name
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import GroupRule, Pool
from aischeduler.model.user_text import quoted
from aischeduler.state.scheduling_queue import Backoff


def profile_of(config: Config) -> Profile:
    """Return the engine's profile for a configuration; raises ConfigError for what only its use shows to be wrong."""
    try:
        return with_profiles(_settings(config), with_names(config.profiles, config.scheduler_name))
    except ProfileError as error:
        raise ConfigError(str(error)) from error


def _settings(config: Config) -> Profile:
    switches = config.default_pool
    return replace(
        default_profile(
            config.scheduler_name,
            config.gpu_resources,
            config.gpu_type_labels,
            preemption=not config.disable_preemption,
        ),
        make_room=config.make_room,
        hold_unsupported=config.unsupported_constraints is ConstraintRule.HOLD,
        backoff=Backoff(config.backoff.initial_seconds, config.backoff.max_seconds),
        default_pool=Pool(
            DEFAULT_POOL,
            disable_preemption=switches.disable_preemption,
            disable_borrowing=switches.disable_borrowing,
            disable_sharing=switches.disable_sharing,
        ),
        rare_types=tuple(map(_rare_type, config.rare_types)),
        machine_groups=tuple(_group_rule(rule) for rule in config.machine_groups),
        obeys_budgets=config.eviction is EvictionWay.EVICT,
        tenants=tenants_of(config),
        hami=config.hami,
    )


def _rare_type(text: str) -> str:
    """Return the full name of a rare type; raises ConfigError where the text names no type."""
    try:
        return type_name(text)
    except TypeNameError as error:
        raise ConfigError(f"rareTypes: {quoted(text)} {error}") from error


def _group_rule(rule: GroupRuleConfig) -> GroupRule:
    """Return a rule of the configuration."""
    return GroupRule(rule.name, selector_of(f"machineGroups[{rule.name}].namespaceSelector", rule.namespace_selector))
