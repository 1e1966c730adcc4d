"""The tasks of an agenda: what a slice does of each kind, in which order.

Invariants:
- Changed rows come first: the room that a pod left is offered in the order of the queue before the next pod is tried.
- Pods are found before they are woken, and have their classes before they are checked.
- Room is offered to other pools last, after the pool has tried its own pods.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from msgspec import Struct

from aischeduler.engine import steps
from aischeduler.engine.agenda import Agenda, Checks
from aischeduler.engine.changed_rows import work_on_rows
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.constraints import recheck_some
from aischeduler.engine.count_hints import check_counted
from aischeduler.engine.evictions import end_loans
from aischeduler.engine.lending import leave_to_others, seek_lenders
from aischeduler.engine.message_updates import reword
from aischeduler.engine.pod_classes import take_classes
from aischeduler.engine.queueing_hints import find_affected, wake_some
from aischeduler.model.actions import Action, Step

Do = Callable[[Cluster, str, Checks, list[Action]], None]
"""Does the next part of a task of this pool, as far as checks are left, and adds to the actions."""


class Task(Struct, frozen=True):
    """A kind of task: the `step` in the words of a report, whether an agenda has such a task, and what is done."""

    step: tuple[Step, str]
    waits: Callable[[Agenda], object]
    do: Do


ROWS: Final = Task(
    steps.OFFERING, attrgetter("rows"), lambda cluster, pool, checks, _: work_on_rows(cluster, pool, checks)
)
TASKS: Final = (
    ROWS,
    Task(steps.SOUGHT, attrgetter("sought"), lambda cluster, pool, _, __: leave_to_others(cluster, pool)),
    Task(steps.ENDING_LOANS, attrgetter("review"), lambda cluster, pool, _, said: end_loans(cluster, pool, said)),
    Task(steps.FINDING, attrgetter("affected"), lambda cluster, pool, _, __: find_affected(cluster, pool)),
    Task(steps.DIVIDING, attrgetter("dividing"), lambda cluster, pool, checks, _: take_classes(cluster, pool, checks)),
    Task(
        steps.RECHECKING, attrgetter("rechecking"), lambda cluster, pool, checks, _: recheck_some(cluster, pool, checks)
    ),
    Task(steps.WAKING, attrgetter("waking"), lambda cluster, pool, checks, _: wake_some(cluster, pool, checks)),
    Task(steps.COUNTING, attrgetter("counted"), lambda cluster, pool, checks, _: check_counted(cluster, pool, checks)),
    Task(steps.SEEKING, attrgetter("seeking"), lambda cluster, pool, checks, _: seek_lenders(cluster, pool, checks)),
    Task(
        steps.REWORDING,
        attrgetter("rewording"),
        lambda cluster, pool, checks, said: reword(cluster, pool, said, checks),
    ),
)
"""The kinds in the order in which a slice does them, before the pool's pods are tried; then the pool lends."""
