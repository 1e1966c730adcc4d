"""Perform actions: the one place where what the core asks for becomes requests and lines of log.

Laws:
- `perform` only puts work into queues; it never waits. What cannot be said of an action keeps no other from its way.
- One decision, one line of log; a Binding or an eviction that is refused has a second one that says so.
- Fields of a line are built only where the line will be written.
- What the core has to hear comes first; a bug in what follows costs a line or a report.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, assert_never

from cachetools import LRUCache
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.binder import Binder, Outcome
from aischeduler.kube.errors import ApiError, Failed, RefusedError
from aischeduler.kube.event_messages import why_waiting
from aischeduler.kube.eviction import Ended, Evicted, Left, lost
from aischeduler.kube.evictor import Evictor
from aischeduler.kube.log_limiter import LogSampler
from aischeduler.kube.pod_reader import PodReader
from aischeduler.kube.pod_writes import BindAccepted, settle, unavailable
from aischeduler.kube.refresher import Refresher
from aischeduler.kube.reporter import Reporter
from aischeduler.model.actions import (
    Action,
    Bind,
    Condition,
    CreatePool,
    Evict,
    ListPools,
    LogLoanChange,
    LogPoolEdit,
    Nominate,
    ReadPod,
    ReadPool,
    Refresh,
    ReportInternalError,
    ReportPool,
    ReportWaiting,
    Warn,
)
from aischeduler.model.events import BindRefused, Event, EvictRefusal, EvictRefused
from aischeduler.model.pod import Pod

SETTLERS: Final = 4
"""Pods that are read at one time."""
SETTLES_MAX: Final = 1000
"""Pods that wait to be read."""
POOLS_REMEMBERED_MAX: Final = 1000
"""Pools whose last logged conditions we remember."""

Other = (
    ReadPool | ListPools | Refresh | Warn | ReportPool | CreatePool | LogLoanChange | LogPoolEdit | ReportInternalError
)
"""Actions that are not about where one pod runs."""
Observed = Callable[[Bind | Evict, str, float], None]
"""Hears of each Binding and eviction that has come to an end: its outcome in one word, and its seconds."""


def _unobserved(_action: Bind | Evict, _outcome: str, _seconds: float) -> None:
    return


@dataclass(frozen=True, slots=True)
class Instruments:
    """Who hears of bugs of ours and of how long Bindings and evictions took; and seconds that never go back."""

    failed: Failed
    observed: Observed = _unobserved
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Workers:
    """Those who carry out: Bindings, evictions, reports, looks at pods, and what is read before an eviction."""

    binder: Binder
    evictor: Evictor
    reports: Reporter
    reader: PodReader
    refresher: Refresher


class Executor:
    """Performs actions; `tell` hears what came to nothing.

    `unreadable` says why pods could not be read the last time, in the words of the status; empty where they could.
    """

    def __init__(
        self,
        workers: Workers,
        tell: Callable[[Event], None],
        log: FilteringBoundLogger,
        instruments: Instruments,
    ) -> None:
        self.unreadable = ""
        self._workers = workers
        self._tell = tell
        self._log = log
        self._failed = instruments.failed
        self._observed = instruments.observed
        self._seldom = LogSampler(instruments.clock)
        self._settles: asyncio.Queue[ReadPod] = asyncio.Queue(SETTLES_MAX)
        self._conditions: LRUCache[str, tuple[Condition, ...]] = LRUCache(POOLS_REMEMBERED_MAX)

    def perform(self, actions: Iterable[Action]) -> None:
        """Put the actions into the queues of those who carry them out, in order."""
        for action in actions:
            try:
                self._perform(action)
            except Exception as error:  # noqa: BLE001 - a bug costs one action; pods wait for those that follow
                self._failed(f"perform {type(action).__name__}", error)

    def _perform(self, action: Action) -> None:
        match action:
            case Bind(pod):
                self._workers.binder.submit(action)
                self._workers.reports.binding(pod)
                self._log_bind(action)
            case Evict():
                accepted = self._workers.evictor.submit(action)
                self._log_evict(action)
                if not accepted:
                    message = "too many evictions wait"
                    self._evicted(action, EvictRefused(action.victim.uid, EvictRefusal.UNAVAILABLE, message), 0.0)
            case ReportWaiting():
                self._workers.reports.waiting(action)
                self._log_waiting(action)
            case Nominate():
                self._workers.reports.nominated(action)
                self._log_nominated(action)
            case ReadPod():
                if not self._settles.full():  # the core asks again after a while
                    self._settles.put_nowait(action)
            case _:
                self._perform_other(action)

    def _perform_other(self, action: Other) -> None:
        match action:
            case Refresh() | ReadPool() | ListPools():
                self._workers.refresher.submit(action)
            case Warn():
                self._workers.reports.warn(action)
                self._log_warning(action)
            case ReportPool():
                self._workers.reports.pool(action)
                self._log_pool(action)
            case CreatePool():
                self._workers.reports.create(action)
            case LogLoanChange() | LogPoolEdit() | ReportInternalError():
                self._log_only(action)
            case _:
                assert_never(action)

    async def run(self) -> None:
        """Carry out until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._workers.binder.run(self._bound), name="binder")
            group.create_task(self._workers.evictor.run(self._evicted), name="evictor")
            group.create_task(self._workers.reports.run(self._decisions_sent, self._failed), name="reports")
            for number in range(SETTLERS):
                group.create_task(self._settle_all(), name=f"settler {number}")

    async def _decisions_sent(self) -> None:
        """Return once neither a Binding nor an eviction waits for a task."""
        await self._workers.evictor.work_queue.none_waiting()
        await self._workers.binder.work_queue.none_waiting()

    def _bound(self, action: Bind, outcome: Outcome, seconds: float) -> None:
        match outcome:
            case BindAccepted():
                self._workers.reports.scheduled(action)
                self._observed(action, "Accepted", seconds)
            case BindRefused(_, node, refusal, message):
                self._tell(outcome)
                self._observed(action, str(refusal), seconds)
                self._log.warning("bind refused", **_decision(action), node=node, refusal=str(refusal), reason=message)
            case _:
                assert_never(outcome)

    def _evicted(self, action: Evict, ended: Ended, seconds: float) -> None:
        match ended:
            case Evicted():
                self._observed(action, "Evicted", seconds)
                self._workers.reports.evicted(action)
            case Left():  # the watch says that it is gone
                self._observed(action, "Left", seconds)
            case EvictRefused(_, why, message):
                self._tell(ended)
                self._observed(action, str(why), seconds)
                self._log.warning("evict refused", **_eviction(action), refusal=str(why), reason=message)
            case _:
                assert_never(ended)

    async def _settle_all(self) -> None:
        while True:
            action = await self._settles.get()
            try:
                if not self._workers.binder.has_in_hand(action.pod.uid):
                    await self._settle(action)
            except Exception as error:  # noqa: BLE001 - a bug costs one look at a pod; the core asks again
                self._failed("settler", error)

    async def _settle(self, action: ReadPod) -> None:
        """Read a pod and tell what follows of what we did to it; where it is not read, the core asks again."""
        binder = self._workers.binder
        unheld = binder.has_lost(action)
        try:
            pod = await self._workers.reader.read(action.pod)
        except ApiError as error:
            status = error.status if isinstance(error, RefusedError) else 0
            self.unreadable = f"{status} {error.reason}" if isinstance(error, RefusedError) else type(error).__name__
            left_out = self._seldom.left_out(status)
            if left_out is not None:
                self._log.warning("pod not read", **_named(action.pod), reason=str(error), left_out=left_out)
        else:
            self.unreadable = ""
            self._settle_eviction(action, pod)
            if unheld and binder.has_lost(action):
                self._settle_lost(action, pod)
            else:
                binder.settled(action, pod, self._bound)

    def _settle_lost(self, action: ReadPod, pod: Pod | None) -> None:
        """Free the room of a pod that is not bound and of which no Binding is under way."""
        why = "no Binding of this decision is under way"
        outcome = settle(action, pod, why) or unavailable(action, why)
        if isinstance(outcome, BindRefused):
            self._tell(outcome)
            fields = {**_named(action.pod), "decision": action.decision, "node": action.node}
            self._log.warning("bind refused", **fields, refusal=str(outcome.refusal), reason=outcome.message)

    def _settle_eviction(self, action: ReadPod, pod: Pod | None) -> None:
        """Tell the core of an eviction that came to nothing, which the watch's own words do not say."""
        refused = lost(action, pod)
        if refused is not None:
            self._tell(refused)
            fields = {**_named(action.pod), "node": action.node, "decision": action.decision}
            self._log.warning("evict refused", **fields, refusal=str(refused.why), reason=refused.message)

    def _log_bind(self, action: Bind) -> None:
        if self._log.is_enabled_for(logging.INFO):
            fields: dict[str, Any] = {**_decision(action), "node": action.node}
            count = action.feasible_nodes
            reason = f"best of {count} nodes that fit" if count > 1 else "the only node that fits"
            if action.borrowed:
                fields["borrowed"] = True
                reason += f", lent by pool {action.pool}"
            self._log.info("bind", **fields, reason=reason)

    def _log_evict(self, action: Evict) -> None:
        if self._log.is_enabled_for(logging.INFO):
            self._log.info("evict", **_eviction(action), reason=action.message)

    def _log_waiting(self, action: ReportWaiting) -> None:
        if self._log.is_enabled_for(logging.INFO):
            self._log.info("wait", **_decision(action), reason=why_waiting(action))

    def _log_nominated(self, action: Nominate) -> None:
        if self._log.is_enabled_for(logging.INFO):
            what = "holds room on the node" if action.node else "holds no room any more"
            fields = {**_named(action.pod), "pool": action.pool, "decision": action.decision, "node": action.node}
            self._log.info("nominated", **fields, reason=what)

    def _log_only(self, action: LogLoanChange | LogPoolEdit | ReportInternalError) -> None:
        if isinstance(action, ReportInternalError):
            self._log_internal_error(action)
        else:
            self._log_edit(action)

    def _log_edit(self, action: LogLoanChange | LogPoolEdit) -> None:
        """Log what was edited, or whom an edit turned: a line for each pod, or one where they are too many."""
        if isinstance(action, LogPoolEdit):
            self._log.info("pool edited", pool=action.name, reason=", ".join(action.changes))
            return
        lent = action.pool != action.home_pool
        event = "became a loan" if lent else "came home"
        pools = {"pool": action.pool, "home_pool": action.home_pool}
        reason = "an edit: the node is of another pool than its own" if lent else "an edit: the node is of its own pool"
        for pod in action.pods:
            self._log.info(event, **_named(pod), **pools, node=pod.node_name, reason=reason)
        if not action.pods:
            self._log.info(event, **pools, pods=action.count, reason=reason)

    def _log_internal_error(self, action: ReportInternalError) -> None:
        pod = _named(action.pod) if action.pod is not None else {}
        self._log.error(
            "internal error",
            step=str(action.step),
            pool=action.pool,
            **pod,
            decision=action.decision,
            doing=action.doing,
            reason=action.error,
            exception=action.traceback,
        )

    def _log_warning(self, action: Warn) -> None:
        about = action.about
        self._log.warning(
            "warned",
            kind=about.kind,
            name=about.name,
            namespace=about.namespace,
            uid=about.uid,
            reason=action.reason,
            message=action.message,
        )

    def _log_pool(self, action: ReportPool) -> None:
        """Log the conditions of a Pool that turned; its numbers change all the time."""
        before = self._conditions.get(action.name, ())
        self._conditions[action.name] = action.conditions
        for condition in action.conditions:
            if condition not in before:
                self._log.info(
                    "pool condition",
                    pool=action.name,
                    condition=condition.type,
                    status=condition.status,
                    reason=condition.reason,
                    message=condition.message,
                )


def _decision(action: Bind | ReportWaiting) -> dict[str, str]:
    """Return the fields by which every line of one decision can be found."""
    return {
        **_named(action.pod),
        "pool": action.pool,
        "home_pool": action.home_pool,
        "decision": action.decision,
    }


def _eviction(action: Evict) -> dict[str, str]:
    """Return the fields of an eviction: the victim's, and for whom it has to go."""
    by = action.beneficiary
    benefit = {"beneficiary": f"{by.namespace}/{by.name}", "beneficiary_uid": by.uid} if by is not None else {}
    return {
        **_named(action.victim),
        "pool": action.pool,
        "home_pool": action.home_pool,
        "node": action.node,
        "decision": action.decision,
        "cause": str(action.cause),
        **benefit,
    }


def _named(pod: Pod) -> dict[str, str]:
    return {"pod": pod.name, "namespace": pod.namespace, "uid": pod.uid}
