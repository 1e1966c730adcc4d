"""The engine follows the configuration."""

import pytest

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import (
    BackoffConfig,
    Config,
    DefaultPool,
    GroupRuleConfig,
    LabelExpression,
    NamespaceSelector,
)
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import CreatePool
from aischeduler.model.events import gone
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import MakeRoomOrder, Pool
from aischeduler.state.scheduling_queue import Backoff
from tests.build import a_pool
from tests.engine.session import Session

RULE = GroupRuleConfig(
    name="vision",
    namespace_selector=NamespaceSelector(
        match_labels={"team": "vision"}, match_expressions=(LabelExpression(key="closed", operator="DoesNotExist"),)
    ),
)


def test_defaults_of_the_configuration_are_those_of_the_engine() -> None:
    found, expected = profile_of(Config()), default_profile()
    assert (found.scheduler_name, found.gpu_resources) == (expected.scheduler_name, expected.gpu_resources)
    assert (found.preemption, found.make_room) == (expected.preemption, expected.make_room)
    assert (found.backoff, found.default_pool) == (expected.backoff, expected.default_pool)
    assert (found.gpu_type_labels, found.rare_types) == (expected.gpu_type_labels, expected.rare_types)
    assert (found.machine_groups, found.hami) == (expected.machine_groups, expected.hami)


def test_every_field_that_the_engine_uses_reaches_it() -> None:
    found = profile_of(
        Config(
            scheduler_name="night",
            gpu_resources=("a.com/gpu",),
            disable_preemption=True,
            make_room=MakeRoomOrder.BORROW_THEN_PREEMPT,
            backoff=BackoffConfig(initial_seconds=2, max_seconds=60),
            default_pool=DefaultPool(disable_sharing=True, disable_borrowing=True),
            gpu_type_labels=("example.com/card",),
            rare_types=("NVIDIA H200",),
            machine_groups=(RULE,),
            hami=True,
        )
    )
    assert found.hami
    assert (found.gpu_type_labels, found.rare_types) == (("example.com/card",), ("H200",))
    assert [(group.name, str(group.namespaces)) for group in found.machine_groups] == [
        ("vision", "team=vision,!closed")
    ]
    assert (found.scheduler_name, found.gpu_resources, found.preemption) == ("night", ("a.com/gpu",), False)
    assert (found.make_room, found.backoff) == (MakeRoomOrder.BORROW_THEN_PREEMPT, Backoff(2, 60))
    assert found.default_pool == Pool(DEFAULT_POOL, disable_sharing=True, disable_borrowing=True)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Config(rare_types=("H200", "NVIDIA")), "rareTypes: 'NVIDIA' is not the name of a card type"),
        (
            Config(
                machine_groups=(
                    GroupRuleConfig(
                        name="g", namespace_selector=NamespaceSelector(match_labels={f"{'x' * 254}/y": "z"})
                    ),
                )
            ),
            "machineGroups[g].namespaceSelector.matchLabels: ",
        ),
    ],
)
def test_configuration_that_makes_no_profile_is_refused_with_the_field(config: Config, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profile_of(config)
    assert str(caught.value).startswith(why)


def test_pool_without_make_room_uses_that_of_the_profile() -> None:
    profile = profile_of(Config(make_room=MakeRoomOrder.BORROW_THEN_PREEMPT))
    assert profile.first_room(a_pool("a")) is MakeRoomOrder.BORROW_THEN_PREEMPT
    assert (
        profile.first_room(a_pool("a", make_room=MakeRoomOrder.PREEMPT_THEN_BORROW))
        is MakeRoomOrder.PREEMPT_THEN_BORROW
    )


def test_default_pool_is_created_with_the_switches_of_the_configuration() -> None:
    profile = profile_of(Config(default_pool=DefaultPool(disable_preemption=True, disable_sharing=True)))
    session = Session(profile=profile)
    session.decide()
    created = [action for action in session.said if isinstance(action, CreatePool)]
    assert created == [CreatePool(DEFAULT_POOL, ("disablePreemption", "disableSharing"))]


def test_default_pool_that_was_deleted_has_the_switches_of_the_configuration_again() -> None:
    session = Session(a_pool(DEFAULT_POOL), profile=profile_of(Config(default_pool=DefaultPool(disable_sharing=True))))
    session.decide()
    assert [pool.sharing for pool in session.scheduler.summary()] == [True]
    session.tell(gone(Pool, DEFAULT_POOL))
    session.decide()
    assert [pool.sharing for pool in session.scheduler.summary()] == [False]
