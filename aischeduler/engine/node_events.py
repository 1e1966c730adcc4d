"""Handling of node events.

Invariants:
- A node changes its pool in one step: capacity, pods, loans and claims move with it.
- The pods that the change helps are woken; a claim that it breaks ends.
"""

import numpy as np

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.device_events import follow_hami
from aischeduler.engine.lending import look_again
from aischeduler.engine.nominator import end_claims_on
from aischeduler.engine.pod_counting import book_rows
from aischeduler.engine.queueing_hints import rows_changed
from aischeduler.engine.quotas import cards_changed
from aischeduler.engine.units import place_changed
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.node import Node, only_opens
from aischeduler.state.node_table import MAY_MOVE, NO_POOL, Change
from aischeduler.state.pool_table import Moved


def node_seen(cluster: Cluster, node: Node, now: float) -> None:
    """Store a node as it is now, and wake the pods that it may help."""
    version, before = cluster.nodes.version, cluster.nodes.node(node.name)
    row, change = cluster.nodes.see(node)
    if cluster.nodes.version != version:
        cluster.elastic.nodes_changed_at = now
    moved = None
    if change & MAY_MOVE:
        moved = cluster.pools.assign_row(row, node)
        place_changed(cluster, row, now)
    if node.invalid and cluster.warned(f"Node/{node.uid}", node.invalid):
        about = ObjectRef("Node", node.name, node.uid)
        cluster.say(cluster.pool_of(row), Warn(about, EventReason.INVALID_NODE, node.invalid))
    if moved is not None:
        follow(cluster, [moved], now)
    elif cluster.nodes.version != version:
        if change & Change.LABELS:
            book_rows(cluster, [row])  # the type of its cards may have changed
            for claim in cluster.claims.on_row(row) if cluster.has_quotas else ():
                cluster.claims.renew(claim, cluster.accounts_of)
        cluster.row_changed(row)
        if before is None or not only_opens(before, node):
            look_again(cluster, (cluster.pool_of(row),))
    if change & Change.LABELS or before is None:
        cards_changed(cluster)
    follow_hami(cluster, node)


def node_gone(cluster: Cluster, name: str, now: float) -> None:
    """Remove a node; pods on it keep counting there until they are gone."""
    if not cluster.nodes.has(name):
        return
    moved = cluster.pools.assign_row(cluster.nodes.rows[name], None)
    if moved is not None:
        follow(cluster, [moved], now)
    place_changed(cluster, cluster.nodes.rows[name], now)
    cluster.nodes.forget(name)
    follow_hami(cluster, None, name)


def follow(cluster: Cluster, moved: list[Moved], now: float) -> None:
    """Update claims, loans and waiting pods after rows changed their pools."""
    if not moved:
        return
    cluster.running.follow_pools(np.array([move.row for move in moved], dtype=np.intp), cluster.nodes.pool)
    book_rows(cluster, [move.row for move in moved])
    for move in moved:
        end_claims_on(cluster, move.row, now)
    cluster.deferred.review(cluster.pools.name(move.new) for move in moved if move.new != NO_POOL)
    rows_changed(cluster, [move.row for move in moved if move.new != NO_POOL])
    changed = {number for move in moved for number in (move.old, move.new)}
    regrouped = [name for name in cluster.pools.names() if cluster.pools.id(name) in changed]
    for name in regrouped:
        cluster.deferred.agenda(name).regrouped = True
    look_again(cluster, regrouped)
