"""What only the shell can measure: how long attempts and Bindings take, how long pods waited, how many had to go.

Laws:
- It hears what passes between core and shell, and changes none of it.
- Series are bounded by the labels of pools; what is remembered of Bindings, by those in flight.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.events import BindAccepted, BindRefused, Event, EvictRefused
from aischeduler.observability.distribution import Distribution
from aischeduler.observability.labels import PoolLabels

ACCEPTED: Final = "Accepted"
"""Outcome of a Binding that the API server took; the others are `model.events.Refusal`."""
ATTEMPT_SECONDS: Final = (2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
BIND_SECONDS: Final = (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
WAIT_SECONDS: Final = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0)
VICTIMS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Meter:
    """Hears decisions and outcomes, and keeps their durations and sizes by the label of a pool."""

    def __init__(self, clock: Callable[[], float], labels: PoolLabels) -> None:
        self.labels = labels
        self.attempt_seconds: dict[str, Distribution] = {}
        self.wait_seconds: dict[str, Distribution] = {}
        self.bind_seconds: dict[tuple[str, str], Distribution] = {}
        self.victims: dict[str, Distribution] = {}
        self.spared: Counter[str] = Counter()
        self._clock = clock
        self._binds: dict[str, tuple[Bind, float]] = {}

    def decided(self, pool: str, attempts: int, seconds: float) -> None:
        """Hear that so many attempts of this pool took so long together."""
        if attempts:
            label = self.labels.of(pool)
            self.attempt_seconds.setdefault(label, Distribution(ATTEMPT_SECONDS)).add(seconds / attempts, attempts)

    def asked(self, actions: Iterable[Action]) -> None:
        """Hear what the engine asks for."""
        victims: Counter[tuple[str, str]] = Counter()
        for action in actions:
            match action:
                case Bind(pod):
                    self._binds[pod.uid] = (action, self._clock())
                case Evict(pool=pool, beneficiary=beneficiary, decision=decision) if beneficiary is not None:
                    victims[self.labels.of(pool), decision] += 1
                case _:
                    pass
        for (label, _), count in victims.items():
            self.victims.setdefault(label, Distribution(VICTIMS)).add(count)

    def heard(self, event: Event) -> None:
        """Hear what became of it."""
        match event:
            case BindAccepted(uid):
                self._concluded(uid, ACCEPTED)
            case BindRefused(uid, refusal=refusal):
                self._concluded(uid, refusal)
            case EvictRefused(why=why):
                self.spared[why] += 1
            case _:
                pass

    def keep(self, labels: frozenset[str]) -> None:
        """Throw away the series of all but these labels."""
        for series in (self.attempt_seconds, self.wait_seconds, self.victims):
            for label in [label for label in series if label not in labels]:
                del series[label]
        for key in [key for key in self.bind_seconds if key[0] not in labels]:
            del self.bind_seconds[key]

    def _concluded(self, uid: str, outcome: str) -> None:
        if uid not in self._binds:
            return
        action, began = self._binds.pop(uid)
        key = (self.labels.of(action.pool), outcome)
        self.bind_seconds.setdefault(key, Distribution(BIND_SECONDS)).add(self._clock() - began)
        if outcome == ACCEPTED:
            label = self.labels.of(action.home_pool)
            self.wait_seconds.setdefault(label, Distribution(WAIT_SECONDS)).add(action.waited_seconds)
