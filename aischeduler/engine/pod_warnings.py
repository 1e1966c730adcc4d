"""What a pod of ours is warned of when it is tried: a home that does not exist, constraints that nobody obeys.

Laws:
- Each is said once a pod, and again only when there is something else to say.
- A warning changes nothing: the pod is tried like any other.
"""

from aischeduler.config.spelling import nearest
from aischeduler.engine.cluster import Cluster
from aischeduler.model.actions import Action, ObjectRef, Warn
from aischeduler.model.names import DEFAULT_POOL, POOL_KEY, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.reasons import EventReason


def warn_pod(cluster: Cluster, pod: Pod, actions: list[Action]) -> None:
    """Add the warnings that are news for this pod."""
    if pod.pool and pod.pool not in cluster.pools.pools and cluster.warned(pod.uid, pod.pool):
        actions.append(_warning(pod, EventReason.UNKNOWN_POOL, _no_such_pool(pod.pool, cluster.pools.names())))
    unobeyed = pod.spec.unobeyed
    if unobeyed and cluster.warned(f"{pod.uid}/{EventReason.UNSUPPORTED_CONSTRAINT}", ", ".join(unobeyed)):
        actions.append(_warning(pod, EventReason.UNSUPPORTED_CONSTRAINT, _not_obeyed(unobeyed)))


def _no_such_pool(name: str, known: tuple[str, ...]) -> str:
    near = nearest(name, known)
    until = f"the pod belongs to the pool {DEFAULT_POOL} until there is one."
    hint = f" Did you mean {near}?" if near else ""
    return f'There is no Pool "{name}" (annotation or label {POOL_KEY}); {until}{hint}'


def _not_obeyed(fields: tuple[str, ...]) -> str:
    verb = "is" if len(fields) == 1 else "are"
    return f"{', '.join(fields)} {verb} not obeyed by {SCHEDULER_NAME} yet; the pod is placed as if it did not say so."


def _warning(pod: Pod, reason: EventReason, message: str) -> Warn:
    return Warn(ObjectRef("Pod", pod.name, pod.uid, pod.namespace), reason, message)
