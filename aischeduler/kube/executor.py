"""Perform actions: the one place where what the core asks for becomes requests and lines of log.

Laws:
- `perform` only puts work into queues; it never waits.
- One decision, one line of log; a Binding that is refused has a second one that says so.
- Fields of a line are built only where the line will be written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, assert_never

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.binder import Binder, Outcome
from aischeduler.kube.errors import ApiError
from aischeduler.kube.podreader import PodReader
from aischeduler.kube.reports import Reports
from aischeduler.model.actions import Action, Bind, ReportPool, ReportWaiting, Settle, Warn
from aischeduler.model.events import BindAccepted, BindRefused, Event

SETTLERS: Final = 4
"""Pods that are read at one time."""
SETTLES_MAX: Final = 1000
"""Pods that wait to be read."""


class Executor:
    """Performs actions; `tell` hears what becomes of them."""

    def __init__(
        self,
        binder: Binder,
        reports: Reports,
        reader: PodReader,
        tell: Callable[[Event], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._binder = binder
        self._reports = reports
        self._reader = reader
        self._tell = tell
        self._log = log
        self._settles: asyncio.Queue[Settle] = asyncio.Queue(SETTLES_MAX)

    def perform(self, actions: Iterable[Action]) -> None:
        """Put the actions into the queues of those who carry them out, in order."""
        for action in actions:
            match action:
                case Bind(pod):
                    self._reports.binding(pod)
                    self._binder.submit(action)
                    self._log_bind(action)
                case ReportWaiting():
                    self._reports.waiting(action)
                    self._log_waiting(action)
                case Settle():
                    if not self._settles.full():  # the core asks again after a while
                        self._settles.put_nowait(action)
                case Warn():
                    self._reports.warn(action)
                    self._log.warning(
                        "warned",
                        kind=action.about.kind,
                        name=action.about.name,
                        namespace=action.about.namespace,
                        reason=action.reason,
                        message=action.message,
                    )
                case ReportPool():
                    self._reports.pool(action)
                    self._log_pool(action)
                case _:
                    assert_never(action)

    async def run(self) -> None:
        """Carry out until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._binder.run(self._bound), name="binder")
            group.create_task(self._reports.run(self._binder.none_waiting), name="reports")
            for number in range(SETTLERS):
                group.create_task(self._settle_all(), name=f"settler {number}")

    def _bound(self, action: Bind, outcome: Outcome) -> None:
        self._tell(outcome)
        pod = action.pod
        match outcome:
            case BindAccepted():
                self._reports.scheduled(pod, action.node)
            case BindRefused(_, node, refusal, message):
                self._log.warning("bind refused", **_decision(action), node=node, refusal=str(refusal), reason=message)
            case _:
                assert_never(outcome)

    async def _settle_all(self) -> None:
        while True:
            action = await self._settles.get()
            try:
                await self._reader.read(action.pod)
            except ApiError as error:
                self._log.warning(
                    "pod not read", pod=action.pod.name, namespace=action.pod.namespace, reason=str(error)
                )
            except Exception as error:  # noqa: BLE001 - a bug costs one look at a pod; the core asks again
                self._log.error("failed", job="settler", exc_info=error)

    def _log_bind(self, action: Bind) -> None:
        if self._log.is_enabled_for(logging.INFO):
            reason = f"best of {action.feasible_nodes} nodes that fit"
            self._log.info("bind", **_decision(action), node=action.node, reason=reason)

    def _log_waiting(self, action: ReportWaiting) -> None:
        if self._log.is_enabled_for(logging.INFO):
            self._log.info("wait", **_decision(action), reason=action.message)

    def _log_pool(self, action: ReportPool) -> None:
        for condition in action.conditions:
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
    pod = action.pod
    return {
        "pod": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "pool": action.pool,
        "home_pool": action.home_pool,
        "decision": action.decision,
    }
