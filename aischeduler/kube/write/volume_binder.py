"""Write what binds the claims of placed pods to volumes: a few tasks take it from one queue, with one outcome each.

Invariants:
- `volume_writes` defines the requests and the meaning of the answers; this module sends and retries them.
- Volumes come before claims, as kube-scheduler writes them. What is written before a refusal stays: the next decision
  about the pod finds it.
- Nothing is written for a pod that the engine no longer assumes by this decision, except to withdraw.
- Pods that get no answers hold tasks, but some tasks stay for the pods of other pools.
- An internal error costs one pod its volumes: it is reported, and the engine gets a refusal.
"""

from collections.abc import Callable
from typing import Final, assert_never

from aischeduler.kube.http.backoff import RETRY_AFTER_SECONDS_MAX, ExponentialBackoff, Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, OnInternalError
from aischeduler.kube.write.pod_writes import MERGE_PATCH, Throttled, Unauthenticated, Unknown
from aischeduler.kube.write.volume_writes import (
    Changed,
    Refused,
    VolumeAnswer,
    Written,
    read_answer,
    read_object,
    write_body,
    write_path,
)
from aischeduler.kube.write.work_queue import Workers, WorkQueue
from aischeduler.model.actions import BindVolumes
from aischeduler.model.contract import AskedWork
from aischeduler.model.events import VolumesRefused, VolumesWritten
from aischeduler.model.volumes import VolumeWrite

VOLUMES_IN_FLIGHT: Final = 8
"""How many pods of a pool have their volumes written at a time."""
RESERVED: Final = 2
VOLUMES_IN_FLIGHT_MAX: Final = VOLUMES_IN_FLIGHT + RESERVED
WAITING_MAX: Final = 4096
TRIES_MAX: Final = 8
"""How often one object is written or read before its pod is tried again."""
ERROR_TRIES: Final = 3
"""As how many of these tries an error counts."""

INTERNAL: Final = "an internal error of the scheduler"

Outcome = VolumesWritten | VolumesRefused
OnVolumesOutcome = Callable[[BindVolumes, Outcome], None]


class VolumeBinder:
    """Writes the volumes of pods; `work_queue` holds those without an outcome."""

    def __init__(
        self, connections: ConnectionPool, timing: Timing, engine: AskedWork, on_internal_error: OnInternalError
    ) -> None:
        self.work_queue: WorkQueue[BindVolumes] = WorkQueue(WAITING_MAX, VOLUMES_IN_FLIGHT, RESERVED)
        self._connections = connections
        self._timing = timing
        self._throttle = timing.throttle
        self._engine = engine
        self._workers: Workers[BindVolumes, Outcome] = Workers(
            "volume binder",
            self.work_queue,
            of="volumes",
            lane=_lane,
            work=self._bind,
            failed=_failed,
            on_internal_error=on_internal_error,
        )

    def submit(self, action: BindVolumes) -> None:
        """Put the volumes of a pod at the end of the queue."""
        self.work_queue.put(action, _lane(action))

    async def run(self, on_outcome: OnVolumesOutcome) -> None:
        """Write volumes until cancelled; those that an earlier run left unfinished are refused."""

        def note(action: BindVolumes, outcome: Outcome) -> None:
            if not action.withdraw:
                on_outcome(action, outcome)

        await self._workers.run(VOLUMES_IN_FLIGHT_MAX, note)

    async def _bind(self, action: BindVolumes) -> Outcome:
        versions: dict[VolumeWrite, str] = {}
        for write in sorted(action.writes, key=lambda write: not write.choice.volume):
            if action.withdraw and write.choice.volume:
                continue
            answer = await self._write(action, write)
            if isinstance(answer, Refused):
                return _refused(action, answer.message)
            versions[write] = answer.version
        return VolumesWritten(
            action.pod.uid, action.decision, tuple(versions.get(write, "") for write in action.writes)
        )

    async def _write(self, action: BindVolumes, write: VolumeWrite) -> Written | Refused:
        """Write one object, however often it changes meanwhile, within limits."""
        backoff, why, tries, lane = ExponentialBackoff(self._timing), "", TRIES_MAX, _lane(action)
        while tries > 0:
            tries -= 1
            await self._throttle.wait(lane)
            if not action.withdraw and not self._engine.still_assumed(action.pod.uid, action.decision):
                return Refused("the pod is gone, or was taken back")
            answer = await self._patch(write, withdraw=action.withdraw)
            match answer:
                case Written() | Refused():
                    return answer
                case Changed():
                    found = await self._read(write)
                    if action.withdraw:
                        return Refused("the claim has changed")
                    if isinstance(found, Written | Refused):
                        return found
                    if isinstance(found, VolumeWrite):
                        write = found
                    else:
                        why = found.message
                        await backoff.wait()
                case Throttled(seconds):
                    self._throttle.hold_for(seconds, lane)
                case Unauthenticated():
                    why = "the credentials are not accepted"
                    await backoff.wait()
                case Unknown(message, _, seconds):
                    why, tries = message, tries + 1 - ERROR_TRIES
                    await self._timing.sleep(max(backoff.next_seconds(), min(seconds, RETRY_AFTER_SECONDS_MAX)))
                case _:
                    assert_never(answer)
        return Refused(why or "the object changes all the time")

    async def _patch(self, write: VolumeWrite, *, withdraw: bool) -> VolumeAnswer:
        body, path = write_body(write, withdraw=withdraw), write_path(write.choice).encode()
        try:
            answer = await self._connections.send(b"PATCH", path, body, MERGE_PATCH.encode())
        except ApiError as error:
            return Unknown(str(error))
        return read_answer(answer.status, answer.retry_after, answer.body)

    async def _read(self, write: VolumeWrite) -> Written | Refused | Unknown | VolumeWrite:
        try:
            answer = await self._connections.send(b"GET", write_path(write.choice).encode())
        except ApiError as error:
            return Unknown(str(error))
        return read_object(write, answer.status, answer.body)


def _lane(action: BindVolumes) -> str:
    """Return the pool that the pod names, as the lane of its volumes."""
    return action.pod.pool


def _refused(action: BindVolumes, message: str) -> VolumesRefused:
    return VolumesRefused(action.pod.uid, action.decision, message)


def _failed(action: BindVolumes) -> Outcome:
    return _refused(action, INTERNAL)
