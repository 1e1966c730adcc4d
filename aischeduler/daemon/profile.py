"""From the configuration to what the engine goes by."""

from dataclasses import replace

from aischeduler.config.schema import Config, ConstraintRule
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import MakeRoom, Pool
from aischeduler.state.records import Backoff


def profile_of(config: Config) -> Profile:
    """Return the profile that a configuration describes."""
    switches = config.default_pool
    return replace(
        default_profile(config.scheduler_name, config.gpu_resources, preemption=not config.disable_preemption),
        make_room=MakeRoom(config.make_room),
        hold_unsupported=config.unsupported_constraints is ConstraintRule.HOLD,
        backoff=Backoff(config.backoff.initial_seconds, config.backoff.max_seconds),
        default_pool=Pool(
            DEFAULT_POOL,
            disable_preemption=switches.disable_preemption,
            disable_borrowing=switches.disable_borrowing,
            disable_sharing=switches.disable_sharing,
        ),
    )
