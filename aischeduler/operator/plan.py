"""What to do for a BatchProcess now: which pods to delete and to make, and where it stands.

Invariants:
- A plan depends on the spec, the progress and the pods that exist alone, so that the next run of the operator continues
  one that ends anywhere.
- A pod is only planned where no pod of its name exists, and a restart only within `backoffLimit`.
- A finished BatchProcess keeps its finished pods, for their logs, and loses the others.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.operator.batch_process import BatchProcess
from aischeduler.operator.objects import SeenPod
from aischeduler.operator.owner import Role
from aischeduler.operator.progress import FINISHED, Phase, Progress, grown

FIRST_DELAY_SECONDS: Final = 10.0
"""How long after its end a failed pod is replaced; the time doubles with each attempt, as for a Job."""
DELAY_SECONDS_MAX: Final = 360.0

Place = tuple[str, int]
"""A role and an index."""


class Wanted(Struct, frozen=True):
    """A pod to make: the n-th of this role and index."""

    role: Role
    index: int
    attempt: int


class Counts(Struct, frozen=True):
    """The pods of a role, one state each. `bound` are those that have a node or had one to the end."""

    pending: int
    running: int
    succeeded: int
    failed: int
    bound: int


class Plan(Struct, frozen=True):
    """What to do, and what is true now. `again_seconds` is when a failed pod is due, or None.

    `failure` says why the BatchProcess has failed, and `waits` why its first pod without a node has none.
    """

    progress: Progress
    counts: tuple[Counts, ...]
    deletes: tuple[SeenPod, ...] = ()
    creates: tuple[Wanted, ...] = ()
    again_seconds: float | None = None
    failure: str = ""
    waits: str = ""


def plan(process: BatchProcess, progress: Progress, pods: Sequence[SeenPod], now_seconds: float) -> Plan:
    """Return what to do with the BatchProcess, of which exactly these pods exist."""
    progress = grown(progress, process.roles, pods)
    places = {(role.name, index): role for role in process.roles for index in range(role.replicas)}
    by_place = {pod.place: pod for pod in pods}
    phase, failure = _verdict(process, progress, places, by_place)
    progress = replace(progress, phase=phase)
    counts = tuple(counts_of(role, progress, by_place) for role in process.roles)
    if progress.finished:
        unfinished = (pod for pod in pods if pod.phase not in FINISHED and not pod.terminating)
        return Plan(progress, counts, deletes=last_first(unfinished), failure=failure)
    ours = [pod for place, pod in by_place.items() if place in places]
    surplus = (pod for place, pod in by_place.items() if place not in places and not pod.terminating)
    failed, again_seconds = due((pod for pod in ours if _has_failed(pod)), now_seconds)
    return Plan(
        replace(progress, phase=_phase(process, counts)),
        counts,
        deletes=(*last_first(surplus), *failed),
        creates=tuple(
            Wanted(role, place[1], progress.attempts(place) + 1)
            for place, role in places.items()
            if place not in by_place and not progress.completed(place)
        ),
        again_seconds=again_seconds,
        waits=next((pod.why for pod in sorted(ours, key=lambda pod: pod.name) if not pod.bound and pod.why), ""),
    )


def _verdict(
    process: BatchProcess, progress: Progress, places: dict[Place, Role], by_place: dict[Place, SeenPod]
) -> tuple[Phase, str]:
    """Return the phase, which is another one if the BatchProcess has just finished, and why it has failed."""
    if progress.finished:
        return progress.phase, ""
    if all(progress.completed(place) for place in places):
        return Phase.SUCCEEDED, ""
    lost = [place for place in places if _is_lost(place, progress, by_place)]
    if len(lost) <= process.backoff_limit - progress.restarts:
        return progress.phase, ""
    role, index = lost[0]
    last = by_place.get(lost[0])
    why = f": {last.why}" if last is not None and last.why else ""
    done = f"{progress.restarts} of {process.backoff_limit} restarts are used"
    return Phase.FAILED, f"pod {index} of {role} is lost{why}, and {done}"


def _is_lost(place: Place, progress: Progress, by_place: dict[Place, SeenPod]) -> bool:
    """Return whether this place needs a restart now, or will when its pod is gone."""
    if progress.completed(place):
        return False
    pod = by_place.get(place)
    if pod is None or pod.terminating:
        return progress.attempts(place) > 0
    return pod.phase == Phase.FAILED


def _has_failed(pod: SeenPod) -> bool:
    return pod.phase == Phase.FAILED and not pod.terminating


def due(ended: Iterable[SeenPod], now_seconds: float) -> tuple[list[SeenPod], float | None]:
    """Return the pods whose delay after their end is over, and in how many seconds the next one is due."""
    found, waits = [], []
    for pod in ended:
        delay = min(FIRST_DELAY_SECONDS * 2 ** min(pod.attempt - 1, 10), DELAY_SECONDS_MAX)
        left = min(pod.lost_seconds + delay - now_seconds, delay) if pod.lost_seconds else 0.0
        if left > 0:
            waits.append(left)
        else:
            found.append(pod)
    return found, min(waits, default=None)


def last_first(pods: Iterable[SeenPod]) -> tuple[SeenPod, ...]:
    """Return pods in the order in which they go: the highest index first."""
    return tuple(sorted(pods, key=lambda pod: (-pod.place[1], pod.name)))


def counts_of(role: Role, progress: Progress, by_place: dict[Place, SeenPod]) -> Counts:
    """Return the pods of a role by their state."""
    running = succeeded = failed = bound = present = 0
    for index in range(role.replicas):
        place = (role.name, index)
        pod = by_place.get(place)
        if progress.completed(place):
            succeeded, bound = succeeded + 1, bound + 1
        elif pod is not None and not pod.terminating:
            running += pod.phase == Phase.RUNNING
            failed += pod.phase == Phase.FAILED
            present += pod.phase not in (Phase.RUNNING, Phase.FAILED)
            bound += pod.bound and pod.phase != Phase.FAILED
    pending = present if progress.finished else role.replicas - running - succeeded - failed
    return Counts(pending, running, succeeded, failed, bound)


def _phase(process: BatchProcess, counts: Sequence[Counts]) -> Phase:
    started = [count.running + count.succeeded for count in counts]
    enough = sum(started) >= process.min_available and all(
        count >= role.min_available for role, count in zip(process.roles, started, strict=True)
    )
    return Phase.RUNNING if enough else Phase.PENDING
