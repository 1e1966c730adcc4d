"""Random days with profiles: Pools change the profile of their pods at any time, and nobody waits in vain."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.config.profiles import ProfileConfig
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.model.names import DEFAULT_POOL, SCHEDULER_NAME
from tests import seeds
from tests.build import a_pool, replace
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.wishes import NUMBER, POOLS
from tests.properties.world import World

NAMES = ["", "", SCHEDULER_NAME, "second", "third", "missing"]


class ProfileWorld(World):
    """A world whose engines have three profiles of equal plugins: no decision differs, only the classes do."""

    def profile(self) -> Profile:
        names = (SCHEDULER_NAME, "second", "third")
        return with_profiles(default_profile(), tuple(ProfileConfig(scheduler_name=name) for name in names))


class ProfileEngine(TakingBack):
    """One engine; Pools name profiles."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ProfileWorld()

    @rule(number=NUMBER, profile=st.sampled_from(NAMES))
    def a_pool_names_a_profile(self, number: int, profile: str) -> None:
        name = [*POOLS, DEFAULT_POOL][number % 4]
        pool = self.world.pools.get(name) or a_pool(name, labels={"pool": name})
        self.world.put(replace(pool, profile=profile))
        self.world.go_on()


def test_random_days_with_profiles_briefly() -> None:
    play(ProfileEngine, seeds.number("profiles, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_profiles() -> None:
    play(ProfileEngine, seeds.number("profiles"), runs=4)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_profiles_at_length(number: int) -> None:
    play(ProfileEngine, seeds.number(f"profiles, at length {number}"), runs=200)
