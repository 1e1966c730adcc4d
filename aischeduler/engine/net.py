"""The five-minute net: it brings back who has waited too long for an event, and counts whom nothing else has helped.

Law: a pod is saved by the net only if no event was about to help it when the net caught it, and none has spoken of what
it gets between then and its trial. So whoever counts shows a wake-up that was lost.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import PodRecord


def flush_queue(cluster: Cluster, queue: PoolQueue, now: float) -> None:
    """Move what time has released in this queue; note of whom the net catches how much had been said by then."""
    for record in queue.flush(now):
        record.caught = cluster.news.count


def count_saved(cluster: Cluster, queue: PoolQueue, record: PodRecord, row: int) -> None:
    """Count the pod as saved if it gets this row only because the net caught it."""
    if record.caught is None or row in cluster.offers:
        return
    pools = (record.home, queue.pool)
    if not cluster.errands.concern(pools) and not cluster.news.since(record.caught, row, pools):
        cluster.tally.net_saves[queue.pool] += 1
