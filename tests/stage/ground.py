"""What a stage stands on: an API server with Pools, one scheduler, kubelets and controllers, and time that passes.

Laws:
- A scenario sees the API only. What else is here is for the judges, or ends and starts the scheduler's process.
- Nothing above this asks which ground it stands on.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from tests.worlds.world import Answer, Call, Stream

MOMENT_SECONDS = 0.01
BUSY = ("active", "backoff")
"""The parts of a queue in which a pod waits for nothing but its turn or the end of its backoff."""


class Ground(Protocol):
    """One of the three worlds with a scheduler in it."""

    @property
    def quiet_seconds(self) -> float:
        """For how long, on the scheduler's own clock, nothing must happen before we say that it does not."""
        ...

    def begin(self) -> None:
        """Make everything ready for a scenario: no objects but those of every cluster, one scheduler that decides."""
        ...

    def end(self) -> None:
        """Take away what the scenario has left."""
        ...

    def close(self) -> None: ...

    def request(self, call: Call) -> Answer: ...

    def watch(self, url: str) -> Stream: ...

    def now(self) -> float:
        """Return seconds that never go back."""
        ...

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let so much time pass in which everybody acts, at least a moment."""
        ...

    def scheduler_now(self) -> float:
        """Return the seconds of the clock by which the scheduler waits; it may run faster than `now`."""
        ...

    def rests(self, seen: Mapping[str, int]) -> bool:
        """Say whether the scheduler has nothing to decide, now or after a backoff, and nothing in flight.

        It must have heard of these resource versions, by kind, where the ground can tell.
        """
        ...

    def restart_scheduler(self, **settings: object) -> None:
        """End the scheduler as a SIGKILL would and start another one with these settings of its configuration."""
        ...

    def nodes_of_pools(self) -> dict[str, int]:
        """Return how many nodes each pool has by the scheduler's own count: whether it has heard what was done."""
        ...

    def net_saves(self) -> int:
        """Return how many pods the scheduler's five-minute net had to save."""
        ...


class RealTime:
    """The time of a ground on which it passes by itself."""

    quiet_seconds = 0.2
    """Short, since the same scenario is watched for longer where time is cheap; `rests` waits for every backoff."""

    def now(self) -> float:
        return time.monotonic()

    def scheduler_now(self) -> float:
        return self.now()

    def pass_time(self, seconds: float = 0.0) -> None:
        time.sleep(max(seconds, MOMENT_SECONDS))
