"""Admission: a waiting pod gets its home pool, and waits there in a queue, behind a gate, or for its unit.

A pool may take pods of some namespaces only.
"""

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.internal_errors import Doing, break_off, internal_error
from aischeduler.engine.nominator import clear_nomination
from aischeduler.engine.pod_classes import take_profile
from aischeduler.engine.unknown_pools import is_known, want_pool
from aischeduler.engine.view import View
from aischeduler.model.actions import Step
from aischeduler.state.pod_records import PodRecord


def admit(cluster: Cluster, record: PodRecord, now: float) -> None:
    """Add a pod to the queue of its home pool; it keeps its age and its backoff."""
    record.home = cluster.pools.home(record.pod.pool)
    record.visited = ()
    queue, gate = cluster.queues[record.home], ""
    try:
        if not cluster.classes.plain:
            take_profile(cluster, record)
        gate = cluster.gate_of(record.pod)
    except Exception as error:  # noqa: BLE001 - a bug costs one pod its backoff; its next attempt asks again
        doing = Doing(Step.EVENT, "asking whether a gate holds a pod", record.home, record)
        cluster.say(record.home, internal_error(cluster, doing, error))
        break_off(cluster, record)
    if gate:
        record.message = gate
        queue.gate(record)
        clear_nomination(cluster, record)
    else:
        if record.unit is not None:
            record.message = ""
            queue.gate(record)  # until its unit is formed
            cluster.units.touch(record)
            cluster.units.waits(record, 1)
        else:
            queue.add(record, now)
        if not is_known(cluster, record, now):
            want_pool(cluster, record)


def namespace_refused(cluster: View, record: PodRecord) -> str:
    """Return why the home pool takes no pods from this namespace; empty where it does."""
    allowed = cluster.pools.pools[record.home].allowed_namespaces
    namespace = record.pod.namespace
    labels = cluster.nodes.pod_counts.namespaces.get(namespace)
    if allowed is None or (labels is not None and allowed.matches(labels)):
        return ""
    return f"The pool {record.home} takes no pods from the namespace {namespace}: its allowedNamespaces do not match."
