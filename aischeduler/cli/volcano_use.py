"""What the pods of Volcano's queues use, whose statuses are not ours to write: computed from the whole cluster.

Invariants:
- The numbers are those that a status would have. Nothing is decided: pods on nodes use, all others wait.
- The cluster is listed with the caller's rights. What cannot be read is a sentence.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from aischeduler.analysis.cluster_snapshot import loaded
from aischeduler.config.load import load_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.queue_status import report_of, waiting_of
from aischeduler.kube.http.client import Client
from aischeduler.kube.report.queue_writes import queue_status
from aischeduler.kube.report.status_writes import StatusWriter
from aischeduler.kube.watch.cluster_lister import ListError, list_cluster
from aischeduler.model.tenant_queue import QueueSource


async def volcano_statuses(client: Client, config: Path | None, now: float) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a status of each queue of Volcano, by name, and what is wrong with them; raises ConfigError."""
    read = load_config(config)
    profile = profile_of(read)
    try:
        snapshot = await list_cluster(client, "the API server", now, cached=True, kinds=read.elastic.kinds)
    except ListError as error:
        return {}, (f"the use of Volcano's queues is not shown: {error}",)
    cluster = loaded(profile, snapshot).cluster
    queues, waiting = cluster.tenants.queues, waiting_of(cluster)
    writer = StatusWriter(profile.scheduler_name, now)
    found = {
        queue.name: queue_status(report_of(cluster, queue, waiting.get(queue.name, Counter())), {}, writer)
        for queue in queues.objects()
        if queue.source is QueueSource.VOLCANO and queue is queues.get(queue.name)
    }
    return found, snapshot.gaps
