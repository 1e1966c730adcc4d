"""The tasks of an agenda: what a slice does of each kind, in which order.

Invariants:
- Changed rows come first: the room that a pod left is offered in the order of the queue before the next pod is tried.
- Pods are found before they are woken, and have their classes before they are checked.
- Room is offered to other pools last, after the pool has tried its own pods.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct

from aischeduler.engine.agenda import Agenda, Checks
from aischeduler.engine.changed_rows import work_on_rows
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.count_hints import check_counted
from aischeduler.engine.holds import recheck_some
from aischeduler.engine.lending import leave_to_others, seek_lenders
from aischeduler.engine.message_updates import reword
from aischeduler.engine.pod_classes import take_classes
from aischeduler.engine.queueing_hints import find_affected, wake_some
from aischeduler.engine.reclaim import end_loans
from aischeduler.model.actions import Action, Step


class Part(NamedTuple):
    """A part of a task of a pool: as far as `checks` are left; `actions` are added to."""

    cluster: Cluster
    pool: str
    checks: Checks
    actions: list[Action]


class Task(Struct, frozen=True):
    """A kind of task: the `step` in the words of a report, whether an agenda has such a task, and what is done."""

    step: tuple[Step, str]
    waits: Callable[[Agenda], object]
    do: Callable[[Part], None]


def _task(step: Step, doing: str, field: str, do: Callable[[Part], None]) -> Task:
    return Task((step, doing), attrgetter(field), do)


ROWS: Final = _task(
    Step.WAKING, "offering room that became free", "rows", lambda of: work_on_rows(of.cluster, of.pool, of.checks)
)
TASKS: Final = (
    ROWS,
    _task(Step.LENDING, "ending a search for lenders", "sought", lambda of: leave_to_others(of.cluster, of.pool)),
    _task(Step.LOANS, "ending loans", "review", lambda of: end_loans(of.cluster, of.pool, of.actions)),
    _task(Step.WAKING, "finding pods to try", "affected", lambda of: find_affected(of.cluster, of.pool)),
    _task(Step.WAKING, "dividing classes", "dividing", lambda of: take_classes(of.cluster, of.pool, of.checks)),
    _task(
        Step.WAKING, "checking held pods again", "rechecking", lambda of: recheck_some(of.cluster, of.pool, of.checks)
    ),
    _task(Step.WAKING, "waking pods", "waking", lambda of: wake_some(of.cluster, of.pool, of.checks)),
    _task(
        Step.WAKING,
        "checking pods whose constraints count other pods",
        "counted",
        lambda of: check_counted(of.cluster, of.pool, of.checks),
    ),
    _task(Step.LENDING, "searching for lenders", "seeking", lambda of: seek_lenders(of.cluster, of.pool, of.checks)),
    _task(Step.REASONS, "updating reasons", "rewording", lambda of: reword(of.cluster, of.pool, of.actions, of.checks)),
)
"""The kinds in the order in which a slice does them, before the pool's pods are tried; then the pool lends."""
