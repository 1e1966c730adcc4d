"""Warnings about a pod at its attempt: a Pool that does not exist, constraints that are ignored.

Invariants:
- Each warning is written once per pod, and again only with another message.
- A warning changes nothing: the pod is tried like any other.
"""

from aischeduler.config.spelling import nearest
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.constraints import ignored
from aischeduler.model.actions import Action, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import DEFAULT_POOL, POOL_KEY
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodRecord


def warn_pod(cluster: Cluster, record: PodRecord, actions: list[Action]) -> None:
    """Add the new warnings about this pod, or the pods of the unit that it leads, to `actions`."""
    for one in (record,) if record.unit is None else record.together:
        pod = one.pod
        known = cluster.unknown_pools.missing.get(pod.uid)
        missing = known is not None and known[0] == pod.pool not in cluster.pools.pools
        if missing and cluster.warned(pod.uid, pod.pool):
            actions.append(_warning(pod, EventReason.UNKNOWN_POOL, _no_such_pool(pod.pool, cluster.pools.names())))
        if pod.spec.unsupported_constraints and not cluster.profile.hold_unsupported:
            message = ignored(pod.spec.unsupported_constraints)
            if cluster.warned(f"{pod.uid}/{EventReason.UNSUPPORTED_CONSTRAINT}", message):
                actions.append(_warning(pod, EventReason.UNSUPPORTED_CONSTRAINT, message))


def _no_such_pool(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    until = f"until it does, the pod belongs to the pool {DEFAULT_POOL}."
    hint = f" Did you mean {near}?" if near else ""
    return f'The Pool "{name}" does not exist (annotation or label {POOL_KEY}); {until}{hint}'


def _warning(pod: Pod, reason: EventReason, message: str) -> Warn:
    return Warn(ObjectRef("Pod", pod.name, pod.uid, pod.namespace), reason, message)
