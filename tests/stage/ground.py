"""What a stage stands on: an API server with Pools, one scheduler, kubelets and controllers, and time that passes.

Laws:
- A scenario sees the API only. What else is here is for the judges, or ends and starts the scheduler's process.
- Nothing above this asks which ground it stands on.
"""

import time
from typing import Protocol

from tests.worlds.world import Answer, Call, Stream

MOMENT_SECONDS = 0.01


class Ground(Protocol):
    """One of the three worlds with a scheduler in it."""

    @property
    def quiet_seconds(self) -> float:
        """For how long nothing must happen before we say that it does not."""
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

    def now(self) -> float:
        return time.monotonic()

    def pass_time(self, seconds: float = 0.0) -> None:
        time.sleep(max(seconds, MOMENT_SECONDS))
