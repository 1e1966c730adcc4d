"""The last reported status of pools, checked at a time when no report is due."""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.pool_status import summarize
from aischeduler.engine.self_check import Violation
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import Pool


def check_reports(cluster: Cluster) -> tuple[Violation, ...]:
    """Check the last reported status of pools, at a time when no report is due."""
    summaries = {summary.name: summary for summary in summarize(cluster)}
    found: list[Violation] = []
    for name, pool in sorted(cluster.pools.pools.items()):
        told, summary = cluster.said.reported.get(name), summaries[name]
        selected = selected_nodes(cluster, pool)
        conflict = any(name in claimants for claimants in cluster.pools.conflicts.values())
        if not pool.uid:
            continue
        if told is None or (told.uid, told.generation, told.summary) != (pool.uid, pool.generation, summary):
            found.append(Violation("I13", f"{name}: its reported status is {told}, it is {summary}"))
        elif {c.type: c.status for c in told.conditions} != {
            "Ready": not pool.invalid,
            "Accepted": not pool.invalid and pool.profile in ("", *cluster.profile.names),
            "Conflict": conflict,
            "NodesMissing": selected == 0,
        }:
            found.append(Violation("I13", f"{name}: its reported conditions are {told.conditions}"))
    return tuple(found)


def selected_nodes(cluster: Cluster, pool: Pool) -> int | None:
    """Return how many nodes the selector of a pool matches; None where it has none that counts."""
    if pool.name == DEFAULT_POOL or pool.invalid or pool.selector is None:
        return None
    nodes = [node for node in cluster.nodes.nodes if node is not None]
    nodes += [late.node for late in cluster.unknown_pools.late.values()]
    return sum(pool.selector.matches(node.labels) for node in nodes)
