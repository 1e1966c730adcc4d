"""The contract of the engine: what goes in, what comes out, and who may call when.

- In: an `Event` says that an object is as it is now (`Seen`), that it is gone (`Gone`), or how an action went.
- Out: an `Action` asks a shell to do something. Each kind of action says in its docstring what answers it.
- Between: a `Proposal` is what an attempt would do. `propose` returns one of five and changes nothing; `apply` does it.

Who may call when:
- One thread calls, and no call begins while another one runs. `now` is in unix seconds and never goes back.
- A shell calls `observe` for every event, in the order in which its watch, or its requests, tell of one object. Then,
  after the first lists and while it leads, it calls `decide` for each name that `ready` returns; while it does not,
  it calls `stand_by` instead.
- What `decide` returns is in the state already. The shell performs each action, or answers that it could not: a Bind by
  `BindRefused`, an Evict by `EvictRefused`, BindVolumes by `VolumesWritten` or `VolumesRefused`, each read by its
  answer. A Bind and an Evict without an answer are shown by the watch.
- Before a request that cannot be undone leaves, the shell asks whether it is still asked for: see `AskedWork`.
- After an exception of `observe` the state is repaired, and the shell goes on.
"""

from typing import Protocol

from aischeduler.model.actions import Action, ReportInternalError
from aischeduler.model.events import Event
from aischeduler.model.proposal import Proposal

__all__ = ["Action", "AskedWork", "Engine", "Event", "Proposal"]


class AskedWork(Protocol):
    """What the engine still asks for, as a shell asks before a request leaves that cannot be undone."""

    def still_assumed(self, uid: str, decision: str) -> bool:
        """Return whether the pod is still assumed by this decision: else its Binding is not sent."""

    def is_assumed(self, uid: str) -> bool:
        """Return whether no event has shown the pod on its node yet: until then its eviction is not sent."""

    def still_evicts(self, uid: str, decision: str) -> bool:
        """Return whether the eviction of the pod by this decision is still asked for."""

    def has_node(self, name: str) -> bool:
        """Return whether a node of this name exists: else no Binding to it is sent."""


class Engine(AskedWork, Protocol):
    """What a shell needs of the engine; see `engine.scheduler.Scheduler`."""

    def observe(self, event: Event, now: float) -> None:
        """Take in an event; nothing is decided, and the call is short."""

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools, or CLUSTER, for which `decide` has something to do, sorted."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Do a slice of the work of a pool, up to the cost `limit`; return the actions."""

    def stand_by(self, now: float) -> list[ReportInternalError]:
        """Do what is due without deciding, while another scheduler leads."""

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None where none does."""
