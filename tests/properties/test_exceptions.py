"""Random days on which the scheduler raises: an exception costs one attempt or one step, and nothing else.

The engine, its world and the draws are those of `test_engine`; any call of a plugin, a policy or a step may raise.
"""

from typing import ClassVar

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests import seeds
from tests.properties.faults import BreakingWorld, Injector, break_engine
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.world import World

GENERATE = (Phase.generate,)
"""No shrinking: a shorter run raises at other calls."""
SHARES = [0.0, 0.002, 0.01, 0.03]
"""The shares of calls that raise."""
PLACES_MIN = 50
"""The least number of different calls that must have raised."""


class BreakingEngine(TakingBack):
    """One engine that raises at calls that the seed chooses."""

    seed: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.injector = Injector(self.seed)
        self.world = self.breaking_world()

    def breaking_world(self) -> World:
        """Return a world whose engine raises."""
        return BreakingWorld(self.injector)

    def begin(self, cpu: str) -> None:
        """Begin without exceptions; then some calls raise, also where no drawn step says so."""
        super().begin(cpu)
        self.injector.share = SHARES[1]

    @rule(share=st.sampled_from(SHARES))
    def it_raises_more_or_less_often(self, share: float) -> None:
        self.injector.share = share

    def teardown(self) -> None:
        """The exceptions stop: every pod that fits is bound, as after days without exceptions."""
        self.injector.share = 0.0
        super().teardown()


def play_exceptions(
    monkeypatch: pytest.MonkeyPatch, runs: int, machine: type[BreakingEngine] = BreakingEngine, name: str = ""
) -> None:
    """Play runs in which the engine raises; enough different calls must have raised. A name gives a seed of its own."""
    number = seeds.number(name) if name else seeds.seed()
    machine.seed = number
    injectors: list[Injector] = []

    class Patched(machine):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            monkeypatch.undo()
            break_engine(monkeypatch, self.injector)
            injectors.append(self.injector)

    play(Patched, number, runs, GENERATE)
    raised = {name for injector in injectors for name in injector.raised}
    print(f"{len(raised)} different calls raised")
    assert len(raised) > min(runs, PLACES_MIN), raised


def test_exceptions_cost_one_attempt_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, runs=6)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_exceptions_cost_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, runs=4, name="exceptions")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_exceptions_cost_one_attempt_at_length(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    play_exceptions(monkeypatch, 200, name=f"exceptions, at length {number}")
