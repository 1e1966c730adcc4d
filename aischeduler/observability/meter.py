"""What only the shell can measure: how long attempts and Bindings take, how long pods waited, how many had to go.

Laws:
- It hears what passes between core and shell, and changes none of it.
- Series are bounded by the labels of pools.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar, assert_never

from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.pod import Pod
from aischeduler.observability.distribution import Distribution
from aischeduler.observability.labels import PoolLabels

ACCEPTED: Final = "Accepted"
"""Outcome of a Binding that the API server took."""
ATTEMPT_SECONDS: Final = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
WRITE_SECONDS: Final = (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WAIT_SECONDS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
VICTIMS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

K = TypeVar("K", str, tuple[str, str])


class Meter:
    """Hears decisions and outcomes, and keeps their durations and sizes by the label of a pool."""

    def __init__(self, labels: PoolLabels) -> None:
        self.labels = labels
        self.attempt_seconds: dict[str, Distribution] = {}
        self.wait_seconds: dict[str, Distribution] = {}
        self.bind_seconds: dict[tuple[str, str], Distribution] = {}
        self.eviction_seconds: dict[str, Distribution] = {}
        self.victims: dict[str, Distribution] = {}
        self.internal_errors: Counter[str] = Counter()
        """Bugs of ours that came up, by where they did: a closed set."""

    def decided(self, pool: str, attempts: int, seconds: float) -> None:
        """Hear that so many attempts of this pool took so long together; a pool that went meanwhile counts below 0."""
        if attempts > 0:
            label = self.labels.of(pool)
            _of(self.attempt_seconds, label, ATTEMPT_SECONDS).add(seconds / attempts, attempts)

    def asked(self, actions: Iterable[Action]) -> None:
        """Hear what the engine asks for: how many pods have to go for one."""
        victims: Counter[tuple[str, str]] = Counter()
        for action in actions:
            match action:
                case Evict(pool=pool, beneficiary=Pod(), decision=decision):
                    victims[self.labels.of(pool), decision] += 1
                case _:
                    pass
        for (label, _), count in victims.items():
            _of(self.victims, label, VICTIMS).add(count)

    def ended(self, action: Bind | Evict, outcome: str, seconds: float) -> None:
        """Hear how a Binding or an eviction ended, in one word, and how long it took."""
        match action:
            case Bind(pool=pool, home_pool=home, waited_seconds=waited):
                key = (self.labels.of(pool), outcome)
                _of(self.bind_seconds, key, WRITE_SECONDS).add(seconds)
                if outcome == ACCEPTED:
                    _of(self.wait_seconds, self.labels.of(home), WAIT_SECONDS).add(waited)
            case Evict():
                _of(self.eviction_seconds, outcome, WRITE_SECONDS).add(seconds)
            case _:
                assert_never(action)

    def keep(self, labels: frozenset[str]) -> None:
        """Throw away the series of all but these labels."""
        for series in (self.attempt_seconds, self.wait_seconds, self.victims):
            for label in [label for label in series if label not in labels]:
                del series[label]
        for key in [key for key in self.bind_seconds if key[0] not in labels]:
            del self.bind_seconds[key]


def _of(series: dict[K, Distribution], key: K, bounds: tuple[float, ...]) -> Distribution:
    """Return the distribution of this key, a new one where it has none."""
    found = series.get(key)
    if found is None:
        found = series[key] = Distribution(bounds)
    return found
