"""What a change of a node or of a pool means.

Laws:
- Nodes, queues and waiting pods move with their pools in one step; nothing is lost and every pod keeps its age.
- A pool is told what is wrong with it when that changes, not each time somebody looks.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pod_events import admit
from aischeduler.engine.wakeups import row_changed, rows_moved
from aischeduler.model.actions import Condition, ObjectRef, ReportPool, Warn
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.model.pool import Pool
from aischeduler.state.nodes import Change
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import PodRecord

CONFLICT_NODES_MAX = 10
"""Nodes that a Conflict condition names; the rest are counted."""


def node_seen(cluster: Cluster, node: Node, now: float) -> None:
    """Take a node as it now is."""
    conflicts = cluster.pools.conflicts_version
    row, change = cluster.nodes.see(node)
    if change & (Change.LABELS | Change.JOINED):
        if cluster.pools.assign_row(row, node) is not None:
            change |= Change.JOINED
        if cluster.pools.conflicts_version != conflicts:
            report_conditions(cluster)
    if node.invalid and cluster.warned(f"Node/{node.uid}", node.invalid):
        about = ObjectRef("Node", node.name, node.uid)
        cluster.say(_pool_of(cluster, row), Warn(about, "InvalidNode", node.invalid))
    row_changed(cluster, row, change, now)


def node_gone(cluster: Cluster, name: str) -> None:
    """Take a node out; pods on it keep counting there until they are gone."""
    row = cluster.nodes.forget(name)
    if row is not None:
        cluster.pools.assign_row(row, None)
        report_conditions(cluster)


def pool_seen(cluster: Cluster, pool: Pool, now: float) -> None:
    """Take a pool as it now is; pods that asked for a pool that is new go home."""
    known = pool.name in cluster.queues
    moved = cluster.pools.see(pool)
    if not known:
        cluster.queues[pool.name] = PoolQueue(pool.name)
        for record in cluster.queues[DEFAULT_POOL].records():
            if record.pod.pool == pool.name:
                _go_home(cluster, record, now)
    rows_moved(cluster, moved, now)
    report_conditions(cluster)


def pool_gone(cluster: Cluster, name: str, now: float) -> None:
    """Take a pool out; its nodes and waiting pods go where they now belong."""
    if name not in cluster.pools.pools:
        return
    moved = cluster.pools.forget(name)
    cluster.reported.pop(name, None)
    if name != DEFAULT_POOL:
        for record in cluster.queues[name].records():
            _go_home(cluster, record, now)
        del cluster.queues[name]
        cluster.outbox.setdefault(DEFAULT_POOL, []).extend(cluster.outbox.pop(name, []))
    rows_moved(cluster, moved, now)
    report_conditions(cluster)


def report_conditions(cluster: Cluster) -> None:
    """Tell every pool whose conditions changed."""
    for name, pool in sorted(cluster.pools.pools.items()):
        if pool.uid:
            report = ReportPool(name, pool.uid, pool.generation, (_accepted(pool), _conflict(cluster, pool)))
            if cluster.reported.get(name) != report:
                cluster.reported[name] = report
                cluster.say(name, report)


def _go_home(cluster: Cluster, record: PodRecord, now: float) -> None:
    cluster.leave_queue(record, now)
    admit(cluster, record, now)


def _accepted(pool: Pool) -> Condition:
    if pool.invalid:
        return Condition("Accepted", status=False, reason="InvalidSpec", message=pool.invalid)
    return Condition("Accepted", status=True, reason="Valid", message="The spec is in force.")


def _conflict(cluster: Cluster, pool: Pool) -> Condition:
    nodes = cluster.pools.conflicting_nodes(pool.name)
    if not nodes:
        return Condition("Conflict", status=False, reason="NoConflict", message="No other pool claims its nodes.")
    more = f" and {len(nodes) - CONFLICT_NODES_MAX} more" if len(nodes) > CONFLICT_NODES_MAX else ""
    named = ", ".join(nodes[:CONFLICT_NODES_MAX])
    message = f"In the default pool because another pool selects them too: {named}{more}."
    return Condition("Conflict", status=True, reason="NodesClaimedTwice", message=message)


def _pool_of(cluster: Cluster, row: int) -> str:
    return cluster.pools.name(int(cluster.nodes.pool[row]))
