"""The five-minute flush, as kube-scheduler's of unschedulable pods: it brings back pods, and counts those it saved.

Invariant: a pod counts as saved only where no event was about to help it when it was flushed, and none announced the
room that it gets until its attempt. So each counted pod shows a lost wake-up.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import PoolQueue


def flush_queue(cluster: Cluster, queue: PoolQueue, now: float) -> None:
    """Flush a queue; set `caught` of the pods that waited for five minutes."""
    for record in queue.flush(now):
        record.caught = cluster.announcements.count


def count_saved(cluster: Cluster, queue: PoolQueue, record: PodRecord, row: int) -> None:
    """Count the pod as saved if it gets this row only because of the flush."""
    if record.caught is None:
        return
    pools = (record.home, queue.pool)
    if not cluster.deferred.concern(pools) and not cluster.announcements.since(record.caught, row, pools):
        cluster.counters.net_saves[queue.pool] += 1
