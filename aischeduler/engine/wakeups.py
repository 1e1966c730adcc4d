"""Which parked pods an event may help.

Laws:
- Every row of the pool is refused for a class by one of its recorded rejectors, so a change that could matter is one
  that some rejector expects help from. Where it then proves not enough, the filter that still refuses is recorded too.
- A row that is new to the pool was refused by nobody: it is always judged.
- Judged once per class and row; the chain in the queue decides how many of the class are tried.

Source: kube-scheduler's QueueingHints.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.framework.plugin import Ask, RowChange
from aischeduler.model.pool import Placement
from aischeduler.state.nodes import NO_POOL, Change
from aischeduler.state.pools import Moved
from aischeduler.state.queue import ParkedClass


def row_changed(cluster: Cluster, row: int, kind: Change, now: float) -> None:
    """Wake, in the queue of the row's pool, the classes that fit on the row now."""
    number = int(cluster.nodes.pool[row])
    if number == NO_POOL or not kind:
        return
    queue = cluster.queues[cluster.pools.name(number)]
    change: RowChange | None = None
    for alike in queue.parked():
        if change is None:
            change = RowChange(row, kind, cluster.nodes.free(row))
        if kind & Change.JOINED or cluster.runner.helps(alike.spec, alike.rejectors, change):
            refuser = cluster.runner.refuser(alike.spec, row)
            if refuser:
                _record(alike, refuser)
            else:
                queue.wake_next(alike.spec, now)


def rows_moved(cluster: Cluster, moved: list[Moved], now: float) -> None:
    """Wake, in every pool that gained rows, the classes that fit on some of its rows now."""
    for number in sorted({move.new for move in moved} - {NO_POOL}):
        queue = cluster.queues[cluster.pools.name(number)]
        rows = cluster.nodes.rows_of_pool(number)
        for alike in queue.parked():
            ask = Ask(alike.spec, Placement.SPREAD)
            if cluster.runner.any_fits(ask, rows):
                queue.wake_next(alike.spec, now)
            else:
                for refuser in cluster.runner.diagnose(ask, rows).rejectors:
                    _record(alike, refuser)


def _record(alike: ParkedClass, refuser: str) -> None:
    if refuser not in alike.rejectors:
        alike.rejectors = (*alike.rejectors, refuser)
