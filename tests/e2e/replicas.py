"""Two schedulers of one name, and pods that are created continuously while the schedulers fail."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar, Self

from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import Answered, bindings
from tests.e2e.cluster import create_pods, wait_until
from tests.e2e.crowd_invariants import judge
from tests.e2e.daemon import Daemon, Line
from tests.e2e.history import History
from tests.objects import Json

LOST = "lost the lease"
FEW = 10
"""The pods that are created at one time."""


class Replica(Daemon):
    """One of several schedulers; it is ready when it leads or stands by."""

    election: ClassVar[tuple[str, ...]] = ()

    def leads(self) -> bool:
        """Return whether the scheduler has led since its start."""
        return bool(self.said("leading"))

    def term(self) -> int:
        """Return the number of its term."""
        return int(self.said("leading")[-1]["epoch"])

    def bugs(self) -> list[Line]:
        """Return its errors, without the loss of the Lease, which is no bug."""
        return [line for line in super().bugs() if line["event"] != LOST]

    def end_status(self) -> int | None:
        """Return the exit status of a process that ended by itself; None while it runs."""
        return self._part.end_status()


class Arrivals:
    """Pods that a thread creates, a few at a time."""

    def __init__(self, plane: ControlPlane, namespace: str, pods: list[Json], seconds: float) -> None:
        self._plane, self._namespace, self._pods = plane, namespace, pods
        self._pause = seconds / (len(pods) / FEW)
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None

    def _run(self) -> None:
        left = list(self._pods)
        while left and not self._stop.wait(self._pause):
            few, left = left[:FEW], left[FEW:]
            while few and not self._stop.is_set():
                try:
                    create_pods(self._plane, self._namespace, few)
                    few = []
                except (OSError, AssertionError) as error:  # the API server restarts: some of the pods may exist
                    self.failure = error
                    time.sleep(0.2)
                    there = self._names()
                    few = [one for one in few if one["metadata"]["name"] not in there]

    def _names(self) -> set[str]:
        try:
            items = self._plane.api("GET", f"/api/v1/namespaces/{self._namespace}/pods").body["items"]
        except OSError:
            return set()
        return {item["metadata"]["name"] for item in items}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """The credentials and the configuration of a scheduler."""

    kubeconfig: Path
    config: Path


@contextmanager
def two_replicas(plane: ControlPlane, access: KubeconfigContext) -> Iterator[tuple[Replica, Replica]]:
    """Start a leader and a standby; yield them in this order."""
    options = ("--config", str(access.config))
    with (
        Replica(plane, access.kubeconfig, *options, name="leader", metrics=True) as leader,
        Replica(plane, access.kubeconfig, *options, name="standby", metrics=True) as standby,
    ):
        start_both(leader, standby)
        yield leader, standby


def start_both(leader: Replica, standby: Replica) -> None:
    """Start the leader, then the standby."""
    leader.start()
    wait_until(leader.leads, "the first leader")
    stand_by(standby)


def stand_by(replica: Replica) -> None:
    """Start a scheduler while another one leads, and wait until it stands by."""
    replica.start()
    wait_until(lambda: bool(replica.said("standing by")), "a standby")


def first_of(plane: ControlPlane, namespace: str, epoch: int, seconds: float = 60.0) -> float:
    """Wait for the first Binding of a term; return how many seconds that took."""
    return wait_until(
        lambda: any(one.epoch == str(epoch) for one in bindings(plane, namespace)), f"term {epoch}", seconds
    )


def judge_terms(plane: ControlPlane, history: History, namespace: str) -> list[Answered]:
    """Check that no pod was lost, bound twice or bound to a full node, and that no term wrote after the next began."""
    judge(plane, history, namespace)
    answered = bindings(plane, namespace)
    assert not wrote_late(answered), "a leader wrote after the next one"
    return answered


def wrote_late(answered: list[Answered]) -> bool:
    """Say whether a leader wrote after the next one."""
    epochs = [int(one.epoch) for one in answered]
    return epochs != sorted(epochs)
