"""What pools are told of themselves: their numbers and conditions, when these change and not more than once a second.

The object of the default pool is asked for as long as there is none.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from aischeduler.config.spelling import nearest
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.edits import EditsTold, switched_on
from aischeduler.engine.summary import summarize
from aischeduler.model.actions import Condition, CreatePool, ObjectRef, ReportPool, Warn
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pool import Pool

CONFLICT_NODES_MAX: Final = 10
"""Nodes that a Conflict condition names; the rest are counted."""
RIVALS_MAX: Final = 8
"""Other pools that a Conflict names; the rest are counted."""
LENDERS_MAX: Final = 8
"""Unknown lenders that Accepted names; the rest are counted."""
STATUS_SECONDS: Final = 1.0
CREATE_SECONDS: Final = 30.0
"""How often the default Pool object is asked for while there is none."""

ACCEPTED: Final = "Accepted"
CONFLICT: Final = "Conflict"
_WARNED: Final = {(ACCEPTED, False): EventReason.INVALID_SPEC, (CONFLICT, True): EventReason.NODES_CLAIMED_TWICE}
"""The conditions that are told by a Warning as well."""

State = tuple[int, ...]
"""Versions of all that a status is made of."""


class StatusReports:
    """Says what is to be written, and when to look again."""

    def __init__(self) -> None:
        self._state: State = ()
        self._looked_at = float("-inf")
        self._edits = EditsTold()
        self._ask_at = float("-inf")
        """When the default Pool object is asked for, if there is none then."""

    def due_at(self, cluster: Cluster) -> float | None:
        """Return when `report` has something to do; None when nothing has changed."""
        times = [self._looked_at + STATUS_SECONDS] if self._state != _state(cluster) else []
        if not cluster.pools.pools[DEFAULT_POOL].uid:
            times.append(self._ask_at)
        return min(times, default=None)

    def again(self) -> None:
        """Tell the statuses again in a while: what was told last may not be all."""
        self._state = ()

    def report(self, cluster: Cluster, now: float) -> None:
        """Leave the reports of pools whose status changed in their outboxes."""
        if cluster.pools.pools[DEFAULT_POOL].uid:
            self._ask_at = float("-inf")  # once it is deleted, at once
        elif self._ask_at <= now:
            self._ask_at = now + CREATE_SECONDS
            cluster.say(DEFAULT_POOL, CreatePool(DEFAULT_POOL, switched_on(cluster.profile.default_pool)))
        state = _state(cluster)
        if state == self._state or self._looked_at + STATUS_SECONDS > now:
            return
        self._state, self._looked_at = state, now
        self._edits.tell(cluster)
        for summary in summarize(cluster):
            pool = cluster.pools.pools[summary.name]
            if pool.uid:
                told = ReportPool(pool.name, pool.uid, pool.generation, _conditions(cluster, pool), summary)
                if cluster.reported.get(pool.name) != told:
                    cluster.reported[pool.name] = told
                    cluster.say(pool.name, told)
                    _warn(cluster, told)


def _warn(cluster: Cluster, told: ReportPool) -> None:
    """Put a warning on a Pool whose spec is refused, or whose nodes another Pool claims as well."""
    about = ObjectRef("Pool", told.name, told.uid)
    for condition in told.conditions:
        reason = _WARNED.get((condition.type, condition.status))
        if reason is not None and cluster.warned(f"Pool/{told.uid}/{condition.type}", condition.message):
            cluster.say(told.name, Warn(about, reason, condition.message))


def _state(cluster: Cluster) -> State:
    pools = cluster.pools
    return (
        cluster.nodes.version,
        pools.version,
        pools.conflicts_version,
        cluster.running.version,
        cluster.stir.version,
    )


def _conditions(cluster: Cluster, pool: Pool) -> tuple[Condition, ...]:
    accepted = _accepted(cluster, pool)
    ready = Condition(
        "Ready",
        status=accepted.status,
        reason=ConditionReason.SCHEDULING if accepted.status else ConditionReason.NOT_ACCEPTED,
        message="Its pods are being scheduled." if accepted.status else "Its spec is refused; see Accepted.",
    )
    return (ready, accepted, _conflict(cluster, pool))


def _accepted(cluster: Cluster, pool: Pool) -> Condition:
    if pool.invalid:
        return Condition(ACCEPTED, status=False, reason=ConditionReason.INVALID_SPEC, message=pool.invalid)
    message = "; ".join(("The spec is in force", *_remarks(cluster, pool)))
    return Condition(ACCEPTED, status=True, reason=ConditionReason.VALID, message=f"{message}.")


def _remarks(cluster: Cluster, pool: Pool) -> Iterator[str]:
    """Name what is allowed and yet does nothing, as a slip would."""
    if pool.name == DEFAULT_POOL and pool.selector is not None:
        yield f"spec.nodeSelector is ignored: the pool {DEFAULT_POOL} has the nodes that belong nowhere else"
    unknown = [name for name in pool.borrowing_pools or () if name not in cluster.pools.pools]
    if unknown:
        near = {name: nearest(name, cluster.pools.names()) for name in unknown[:LENDERS_MAX]}
        named = [name + (f" (did you mean {meant}?)" if meant else "") for name, meant in near.items()]
        yield f"spec.borrowingPools names what is no Pool: {', '.join(named)}{_more(unknown, LENDERS_MAX)}"


def _more(names: Sequence[str], named: int) -> str:
    """Return how many names are not among the first ones, in words; empty where all are."""
    return f" and {len(names) - named} more" if len(names) > named else ""


def _conflict(cluster: Cluster, pool: Pool) -> Condition:
    nodes = cluster.pools.conflicting_nodes(pool.name)
    if not nodes:
        message = "No other pool claims its nodes."
        return Condition(CONFLICT, status=False, reason=ConditionReason.NO_CONFLICT, message=message)
    named = ", ".join(nodes[:CONFLICT_NODES_MAX])
    rivals = cluster.pools.rivals(pool.name)
    pools = f"pool{'s' * (len(rivals) > 1)} {', '.join(rivals[:RIVALS_MAX])}{_more(rivals, RIVALS_MAX)}"
    nodes_named = named + _more(nodes, CONFLICT_NODES_MAX)
    message = f"In the default pool because it is not alone in selecting them, see {pools}: {nodes_named}."
    return Condition(CONFLICT, status=True, reason=ConditionReason.NODES_CLAIMED_TWICE, message=message)
