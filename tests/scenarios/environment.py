"""An environment of scenarios: an API server with Pools, one scheduler, kubelets, controllers and a clock.

Invariants:
- A scenario uses the API only. The other methods serve the checks, or stop and start the scheduler.
- No caller asks which environment it has.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from aischeduler.kube.crds import crd
from tests.api_contract.world import Answer, Call, Json, Stream
from tests.gang_objects import coscheduling_crd, job_set_crd, volcano_crd
from tests.queue_objects import volcano_queue_crd

MOMENT_SECONDS = 0.01
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BUSY = ("active", "backoff")
"""The parts of a queue in which a pod waits only for its turn or for the end of its backoff."""


def definitions() -> list[Json]:
    """Return the definitions of the kinds that declare gangs and queues: of two groups each, and JobSets."""
    return [coscheduling_crd(), volcano_crd(), job_set_crd(), crd("queues"), volcano_queue_crd()]


class Environment(Protocol):
    """One of the three environments."""

    @property
    def quiet_seconds(self) -> float:
        """How long, on the scheduler's clock, a check observes that nothing happens."""
        ...

    def begin(self) -> None:
        """Prepare a scenario: only the objects that every cluster has, and one scheduler that leads."""
        ...

    def end(self) -> None:
        """Remove the objects of the scenario."""
        ...

    def close(self) -> None: ...

    def request(self, call: Call) -> Answer: ...

    def watch(self, url: str) -> Stream: ...

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let this much time pass, at least a moment."""
        ...

    def scheduler_now(self) -> float:
        """Return the scheduler's clock in seconds; it may run faster than `now`."""
        ...

    def rests(self, seen: Mapping[str, int]) -> bool:
        """Return whether the scheduler has nothing to decide, now or after a backoff, and no request under way.

        It must have seen these resource versions, by kind, where the environment can tell.
        """
        ...

    def restart_scheduler(self, **settings: object) -> None:
        """Kill the scheduler and start another one with this configuration."""
        ...

    def nodes_of_pools(self) -> dict[str, int]:
        """Return how many nodes each pool has in the scheduler's own count."""
        ...

    def net_saves(self) -> int:
        """Return how many pods only the scheduler's five-minute flush woke."""
        ...


class RealTime:
    """The clock of an environment in real time."""

    quiet_seconds = 0.2
    """Short: the virtual environment observes the same scenario for longer, and `rests` waits for every backoff."""

    def now(self) -> float:
        return time.monotonic()

    def scheduler_now(self) -> float:
        return self.now()

    def pass_time(self, seconds: float = 0.0) -> None:
        time.sleep(max(seconds, MOMENT_SECONDS))
