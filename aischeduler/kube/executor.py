"""Perform the engine's actions: queue each for the task that sends it, and write its log line.

Invariants:
- `perform` only queues work and never waits. An internal error in one action does not affect the others.
- One decision has one log line; a refused Binding or eviction has a second one with the reason. A resize has its line
  once it is written or refused.
- Log fields are built only if the line will be written.
- The engine gets its event first; an internal error after that costs a log line or a report.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, assert_never

from cachetools import LRUCache
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.http.errors import ApiError, OnInternalError, RefusedError
from aischeduler.kube.report.event_messages import waiting_message
from aischeduler.kube.report.log_fields import (
    decision_fields,
    eviction_fields,
    job_fields,
    object_fields,
    pod_fields,
    resize_fields,
    volume_fields,
)
from aischeduler.kube.report.log_sampler import LogSampler
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.watch.pod_reader import PodReader
from aischeduler.kube.watch.pre_eviction_reads import Refresher
from aischeduler.kube.write.binder import Binder, Outcome
from aischeduler.kube.write.elastic_writes import UNANSWERED_SECONDS, Resized, changed, refused
from aischeduler.kube.write.eviction_writes import Evicted, EvictionOutcome, NotNeeded, lost_eviction
from aischeduler.kube.write.evictor import Evictor
from aischeduler.kube.write.job_writes import JobWrite
from aischeduler.kube.write.pod_writes import BindAccepted, settle, unavailable
from aischeduler.kube.write.resizer import TOO_MANY, Resizer
from aischeduler.kube.write.volume_binder import VolumeBinder
from aischeduler.model.actions import (
    Action,
    Bind,
    BindVolumes,
    Condition,
    CreatePool,
    Evict,
    LogLoanChange,
    LogPoolEdit,
    Nominate,
    ReadPod,
    Refresh,
    ReportGang,
    ReportInternalError,
    ReportPool,
    ReportQueue,
    ReportWaiting,
    Resize,
    ResizeReason,
    ResumeJob,
    Warn,
)
from aischeduler.model.events import (
    BindRefused,
    Event,
    EvictRefusal,
    EvictRefused,
    ResizeRefused,
    VolumesRefused,
    VolumesWritten,
)
from aischeduler.model.pod import Pod

SETTLERS: Final = 4
"""How many pods are read at a time."""
SETTLES_MAX: Final = 1000
POOLS_REMEMBERED_MAX: Final = 1000

OtherAction = (
    BindVolumes
    | Refresh
    | Warn
    | ReportPool
    | ReportQueue
    | ResumeJob
    | Resize
    | ReportGang
    | CreatePool
    | LogLoanChange
    | LogPoolEdit
    | ReportInternalError
)
"""Actions other than those about one pod's node."""
OnWriteOutcome = Callable[[Bind | Evict, str, float], None]
"""Called with each finished Binding or eviction, its outcome in one word, and its seconds."""


def _ignore(_action: Bind | Evict, _outcome: str, _seconds: float) -> None:
    return


class Workers(Struct, frozen=True):
    """What carries out actions: Bindings, volumes, evictions, sizes, reports, reads of pods and before evictions."""

    binder: Binder
    volumes: VolumeBinder
    evictor: Evictor
    resizer: Resizer
    reporter: Reporter
    reader: PodReader
    refresher: Refresher


class Executor:
    """Performs actions; `emit` passes events to the engine, such as refusals.

    `pod_read_failure` is the status of the last failed read of a pod; empty after a successful one.
    """

    def __init__(
        self,
        workers: Workers,
        emit: Callable[[Event], None],
        log: FilteringBoundLogger,
        on_internal_error: OnInternalError,
        *,
        on_outcome: OnWriteOutcome = _ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pod_read_failure = ""
        self._workers = workers
        self._emit = emit
        self._log = log
        self._on_internal_error = on_internal_error
        self._on_outcome = on_outcome
        self._sampler = LogSampler(clock)
        self._settles: asyncio.Queue[ReadPod] = asyncio.Queue(SETTLES_MAX)
        self._conditions: LRUCache[tuple[str, str], tuple[Condition, ...]] = LRUCache(POOLS_REMEMBERED_MAX)

    def perform(self, actions: Iterable[Action]) -> None:
        """Queue the actions in order."""
        for action in actions:
            try:
                self._perform(action)
            except Exception as error:  # noqa: BLE001 - an error costs one action, not those that follow
                self._on_internal_error(f"perform {type(action).__name__}", error)

    def _perform(self, action: Action) -> None:
        match action:
            case Bind(pod):
                self._workers.binder.submit(action)
                self._workers.reporter.withdraw_waiting(pod)
                self._log_bind(action)
            case Evict():
                accepted = self._workers.evictor.submit(action)
                self._log_evict(action)
                if not accepted:
                    message = "too many evictions are queued"
                    self._evicted(action, EvictRefused(action.victim.uid, EvictRefusal.UNAVAILABLE, message), 0.0)
            case ReportWaiting():
                self._workers.reporter.report_waiting(action)
                self._log_waiting(action)
            case Nominate():
                self._workers.reporter.report_nominated(action)
                self._log_nominated(action)
            case ReadPod():
                if not self._settles.full():  # the engine asks again later
                    self._settles.put_nowait(action)
            case _:
                self._perform_other(action)

    def _perform_other(self, action: OtherAction) -> None:
        match action:
            case Refresh():
                self._workers.refresher.submit(action)
            case BindVolumes():
                self._workers.volumes.submit(action)
                self._log_volumes(action)
            case Warn():
                self._workers.reporter.report_warning(action)
                self._log_warning(action)
            case ReportPool():
                self._workers.reporter.report_pool(action)
                self._log_pool(action)
            case ResumeJob():
                self._workers.reporter.resume_job(action)
            case Resize():
                if not self._workers.resizer.submit(action):
                    self._resized(action, refused(action, TOO_MANY, UNANSWERED_SECONDS))
            case ReportQueue():
                self._workers.reporter.report_queue(action)
                self._log_queue(action)
            case ReportGang():
                self._workers.reporter.report_gang(action)
                self._log_gang(action)
            case CreatePool():
                self._workers.reporter.create_pool(action)
            case LogLoanChange() | LogPoolEdit() | ReportInternalError():
                self._log_other(action)
            case _:
                assert_never(action)

    async def run(self) -> None:
        """Carry out actions until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._workers.binder.run(self._bound), name="binder")
            group.create_task(self._workers.volumes.run(self._volumes_written), name="volume binder")
            group.create_task(self._workers.evictor.run(self._evicted, self._job_written), name="evictor")
            group.create_task(self._workers.resizer.run(self._resized), name="resizer")
            reporting = self._workers.reporter.run(self._decisions_sent, self._on_internal_error)
            group.create_task(reporting, name="reporter")
            for number in range(SETTLERS):
                group.create_task(self._settle_all(), name=f"pod reader {number}")

    async def _decisions_sent(self) -> None:
        """Return once neither a Binding nor an eviction is queued."""
        await self._workers.evictor.work_queue.wait_empty()
        await self._workers.binder.work_queue.wait_empty()

    def _bound(self, action: Bind, outcome: Outcome, seconds: float) -> None:
        match outcome:
            case BindAccepted():
                self._workers.reporter.report_scheduled(action)
                self._on_outcome(action, "Accepted", seconds)
            case BindRefused(_, node, refusal, message):
                self._emit(outcome)
                self._on_outcome(action, str(refusal), seconds)
                self._log.warning(
                    "bind refused", **decision_fields(action), node=node, refusal=str(refusal), reason=message
                )
            case _:
                assert_never(outcome)

    def _volumes_written(self, action: BindVolumes, outcome: VolumesWritten | VolumesRefused) -> None:
        self._emit(outcome)
        if isinstance(outcome, VolumesRefused):
            self._log.warning("volumes refused", **volume_fields(action), reason=outcome.message)

    def _evicted(self, action: Evict, outcome: EvictionOutcome, seconds: float) -> None:
        match outcome:
            case Evicted(not_suspended):
                self._on_outcome(action, "Evicted", seconds)
                self._workers.reporter.report_evicted(action, not_suspended)
            case NotNeeded():  # the watch shows the rest
                self._on_outcome(action, "Left", seconds)
            case EvictRefused(_, why, message):
                self._emit(outcome)
                self._on_outcome(action, str(why), seconds)
                self._log.warning("evict refused", **eviction_fields(action), refusal=str(why), reason=message)
            case _:
                assert_never(outcome)

    def _resized(self, action: Resize, outcome: Resized | ResizeRefused) -> None:
        """Tell the engine of a refusal, and people of a size that changed; what is only noted tells them nothing."""
        fields = resize_fields(action)
        match outcome:
            case ResizeRefused(message=message, changed=is_other):
                self._emit(outcome)
                if is_other:  # the engine decides again on what it is now
                    self._log.info("resize refused", **fields, message=message)
                else:
                    self._log.warning("resize refused", **fields, message=message)
            case Resized() if action.reason is not ResizeReason.NOTED:
                self._workers.reporter.report_resized(action)
                self._log.info("resized", **fields, message=action.message)
            case Resized():
                pass
            case _:
                assert_never(outcome)

    def _job_written(self, action: Evict, write: JobWrite) -> None:
        """Log what became of the write to the Job of evicted pods; the Job says it too."""
        change = write.change
        if isinstance(change, Resize):
            outcome = changed(change, write.failed) if write.changed else refused(change, write.failed, 0.0)
            self._resized(change, Resized() if write.accepted else outcome)
            return
        fields = {**job_fields(change), "decision": action.decision}
        if write.accepted:
            ends = "stays so" if change.aborts else "is resumed once they are gone"
            self._log.info("suspend", **fields, reason=f"all its pods are evicted; it {ends}")
            self._workers.reporter.report_suspended(action, change)
        else:
            self._log.warning("suspend refused", **fields, reason=write.refused or write.failed)

    async def _settle_all(self) -> None:
        while True:
            action = await self._settles.get()
            try:
                if not self._workers.binder.is_in_progress(action.pod.uid):
                    await self._settle(action)
            except Exception as error:  # noqa: BLE001 - an error costs one read; the engine asks again
                self._on_internal_error("pod reader", error)

    async def _settle(self, action: ReadPod) -> None:
        """Read a pod and settle its Binding or eviction; if the read fails, the engine asks again later."""
        binder = self._workers.binder
        was_lost = binder.is_lost(action)
        try:
            pod = await self._workers.reader.read(action.pod)
        except ApiError as error:
            status = error.status if isinstance(error, RefusedError) else 0
            self.pod_read_failure = (
                f"{status} {error.reason}" if isinstance(error, RefusedError) else type(error).__name__
            )
            left_out = self._sampler.sample(status)
            if left_out is not None:
                self._log.warning("pod not read", **pod_fields(action.pod), reason=str(error), left_out=left_out)
        else:
            self.pod_read_failure = ""
            self._settle_eviction(action, pod)
            if was_lost and binder.is_lost(action):
                self._settle_lost(action, pod)
            else:
                binder.settle(action, pod, self._bound)

    def _settle_lost(self, action: ReadPod, pod: Pod | None) -> None:
        """Free the room of a pod that is not bound and has no Binding in the binder."""
        why = "no Binding of this decision is in flight"
        outcome = settle(action, pod, why) or unavailable(action, why)
        if isinstance(outcome, BindRefused):
            self._emit(outcome)
            fields = {**pod_fields(action.pod), "decision": action.decision, "node": action.node}
            self._log.warning("bind refused", **fields, refusal=str(outcome.refusal), reason=outcome.message)

    def _settle_eviction(self, action: ReadPod, pod: Pod | None) -> None:
        """Refuse an eviction whose victim still runs; the watch alone would not show that."""
        refused = lost_eviction(action, pod)
        if refused is not None:
            self._emit(refused)
            fields = {**pod_fields(action.pod), "node": action.node, "decision": action.decision}
            self._log.warning("evict refused", **fields, refusal=str(refused.why), reason=refused.message)

    def _log_bind(self, action: Bind) -> None:
        if self._log.is_enabled_for(logging.INFO):
            fields: dict[str, Any] = {**decision_fields(action), "node": action.node}
            count = action.feasible_nodes
            reason = f"best of {count} nodes that fit" if count > 1 else "the only node that fits"
            if action.borrowed:
                fields["borrowed"] = True
                reason += f", lent by pool {action.pool}"
            self._log.info("bind", **fields, reason=reason)

    def _log_volumes(self, action: BindVolumes) -> None:
        if self._log.is_enabled_for(logging.INFO):
            volumes = [f"{write.choice.claim[1]}: {write.choice.volume or 'a new volume'}" for write in action.writes]
            what = "the node is taken out of" if action.withdraw else "volumes are chosen for"
            self._log.info("volumes", **volume_fields(action), reason=f"{what} the claims: {', '.join(volumes)}")

    def _log_evict(self, action: Evict) -> None:
        if self._log.is_enabled_for(logging.INFO):
            self._log.info("evict", **eviction_fields(action), reason=action.message)

    def _log_waiting(self, action: ReportWaiting) -> None:
        if self._log.is_enabled_for(logging.INFO):
            self._log.info("wait", **decision_fields(action), reason=waiting_message(action))

    def _log_nominated(self, action: Nominate) -> None:
        if self._log.is_enabled_for(logging.INFO):
            what = "the node holds room for the pod" if action.node else "no node holds room for the pod"
            fields = {**pod_fields(action.pod), "pool": action.pool, "decision": action.decision, "node": action.node}
            self._log.info("nominated", **fields, reason=what)

    def _log_other(self, action: LogLoanChange | LogPoolEdit | ReportInternalError) -> None:
        if isinstance(action, ReportInternalError):
            self._log_internal_error(action)
        else:
            self._log_edit(action)

    def _log_edit(self, action: LogLoanChange | LogPoolEdit) -> None:
        """Log the edit of a Pool, or the pods whose loan it started or ended: one line if they are too many."""
        if isinstance(action, LogPoolEdit):
            self._log.info("pool edited", pool=action.name, reason=", ".join(action.changes))
            return
        lent = action.pool != action.home_pool
        event = "loan started" if lent else "loan ended"
        pools = {"pool": action.pool, "home_pool": action.home_pool}
        reason = (
            "after an edit the node belongs to another pool than the pod"
            if lent
            else "after an edit the node belongs to the pod's own pool"
        )
        for pod in action.pods:
            self._log.info(event, **pod_fields(pod), **pools, node=pod.node_name, reason=reason)
        if not action.pods:
            self._log.info(event, **pools, pods=action.count, reason=reason)

    def _log_internal_error(self, action: ReportInternalError) -> None:
        pod = pod_fields(action.pod) if action.pod is not None else {}
        plugin: dict[str, str | int] = {"plugin": action.plugin} if action.plugin else {}
        if plugin:  # one that fails may do so for every pod
            left_out = self._sampler.sample((action.plugin, action.step, action.error))
            if left_out is None:
                return
            plugin["left_out"] = left_out
        self._log.error(
            "internal error",
            step=str(action.step),
            pool=action.pool,
            **pod,
            decision=action.decision,
            doing=action.doing,
            **plugin,
            reason=action.error,
            exception=action.traceback,
        )

    def _log_warning(self, action: Warn) -> None:
        self._log.warning("warned", **object_fields(action.about), reason=action.reason, message=action.message)

    def _log_pool(self, action: ReportPool) -> None:
        """Log the changed conditions of a Pool; its numbers change all the time."""
        for condition in self._changed(action):
            self._log.info(
                "pool condition",
                pool=action.name,
                condition=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
            )

    def _log_queue(self, action: ReportQueue) -> None:
        """Log the changed conditions of a Queue."""
        for condition in self._changed(action):
            self._log.info(
                "queue condition",
                queue=action.name,
                condition=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
            )

    def _changed(self, action: ReportPool | ReportQueue) -> list[Condition]:
        """Return the conditions that the last report of the object did not have."""
        key = type(action).__name__, action.name
        before = self._conditions.get(key, ())
        self._conditions[key] = action.conditions
        return [condition for condition in action.conditions if condition not in before]

    def _log_gang(self, action: ReportGang) -> None:
        if self._log.is_enabled_for(logging.INFO):
            key, status = action.gang.key, action.status
            fields = {"gang": key.name, "namespace": key.namespace, "source": str(key.source), "uid": action.gang.uid}
            counts = {name: getattr(status, name) for name in ("min_member", "members", "placed", "running")}
            reason = action.gang.invalid or status.message
            self._log.info("gang status", **fields, phase=str(status.phase), **counts, reason=reason)
