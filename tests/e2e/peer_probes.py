"""The rounds of the differential test: random states, and the pods that are probed on each.

Invariant: features are dealt, not thrown: the rarest one of those that a state allows comes next.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.e2e.peer_asks import a_pod
from tests.e2e.peer_features import OF_STATES, Feature
from tests.e2e.peer_states import State, a_state
from tests.e2e.peer_volumes import VOLUMES
from tests.objects import Json

STATES: Final = 16
PROBES_OF_A_STATE: Final = 28
FURTHER: Final = (0, 1, 1, 2, 3)
"""How many features a probe may have beside the first."""
EVICTING_SHARE: Final = 0.4
"""How many probes ask for evictions too, of those of a state whose pods may be evicted."""
ORDER: Final = tuple(Feature)
WITH_VOLUMES: Final = (1, 3, 6, 7, 11, 13, 14)
"""The turns whose states have volumes, which take the most time; all other features of states are in some of them."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A pending pod and its features; both schedulers get it on the same state."""

    name: str
    pod: Json
    features: tuple[Feature, ...]


@dataclass(frozen=True, slots=True)
class Play:
    """A state and its probes."""

    state: State
    probes: tuple[Probe, ...]


def a_round(number: int, chance: Random, compared: frozenset[Feature]) -> Iterator[Play]:
    """Yield states with probes which have only features that are compared; their names have the number of the round."""
    dealt = Counter[Feature]()
    for turn in range(STATES):
        name = f"r{number}-s{turn:02d}"
        state = a_state(chance, name, _of_state(turn, compared))
        allowed = sorted((compared - OF_STATES) | state.features)
        probes = []
        for place in range(PROBES_OF_A_STATE):
            features = _deal(chance, allowed, dealt)
            probe = f"{name}-p{place:02d}"
            probes.append(Probe(probe, a_pod(chance, state, probe, features), tuple(features)))
        yield Play(state, tuple(probes))


def _of_state(number: int, compared: frozenset[Feature]) -> frozenset[Feature]:
    """Return what a state has: each pair of features is together in some states and alone in others."""
    found = set[Feature]()
    for turn, feature in enumerate(one for one in ORDER if one in (OF_STATES & compared) - VOLUMES):
        if (number // (1 + turn % 4) + turn) % 2 == 0:
            found.add(feature)
    if number in WITH_VOLUMES:
        place = WITH_VOLUMES.index(number)
        found |= {one for turn, one in enumerate(sorted(compared & VOLUMES)) if (place // (1 + turn % 2) + turn) % 3}
    if Feature.BUDGETS in found:
        found.add(Feature.PREEMPTION)
    if Feature.TERMINATING in compared and number % 4 == 1:  # a pod that evicts counts terminating pods as gone here
        found = found - {Feature.PREEMPTION, Feature.BUDGETS} | {Feature.TERMINATING}
    else:
        found.discard(Feature.TERMINATING)
    return frozenset(found)


def _deal(chance: Random, allowed: list[Feature], dealt: Counter[Feature]) -> list[Feature]:
    """Return the features of a probe, in the order in which they are written."""
    first = min(allowed, key=lambda feature: (dealt[feature], chance.random()))
    further = chance.sample([one for one in allowed if one is not first], min(chance.choice(FURTHER), len(allowed) - 1))
    features = {first, *further}
    if Feature.PREEMPTION in allowed and chance.random() < EVICTING_SHARE:
        features.add(Feature.PREEMPTION)
    if Feature.SPREAD_SYSTEM_DEFAULT in features:
        features = {one for one in features if not one.startswith("spread_")} | {Feature.SPREAD_SYSTEM_DEFAULT}
    dealt.update(features)
    return sorted(features, key=ORDER.index)
