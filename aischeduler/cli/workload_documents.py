"""The workloads between an object in a file and its pods, named as their controllers name the pods' owners.

Invariants:
- A workload says of its pods what its annotations say; those of a Deployment reach its ReplicaSet, those of a CronJob
  and of a JobSet's template reach the Jobs.
- A Job, a JobSet and a PodGroup are read as objects of their own; other kinds say nothing of their pods.
- A Deployment or a StatefulSet that asks to be elastic is a workload too.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aischeduler.kube.decode.elastic import ScaledMetadata, read_scaled_elastic
from aischeduler.kube.decode.tenant_terms import WorkloadMetadata, workload_terms
from aischeduler.kube.decode.workloads import DAEMON_SET, JOB, JOB_SET, REPLICA_SET, STATEFUL_SET
from aischeduler.model.workload import NO_TERMS, TenantTerms, Workload

DEPLOYMENT: Final = "Deployment"
CRON_JOB: Final = "CronJob"
SPEAKING: Final = frozenset((DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, JOB_SET, "PodGroup"))
"""The kinds whose own annotations count for their pods."""

Body = Mapping[str, Any]


def owner_of(
    kind: str, namespace: str, name: str, body: Body, around: Body, lead: str, where: str
) -> tuple[str, tuple[Workload, ...]]:
    """Return the owner of the pods of an object, and the workloads above them, where no other object says so.

    `body` is the object, `around` what is around the spec with the template, at the path `lead`: the template of a Job.
    `where` is its place in a file, which an elastic workload has as its uid.
    """
    match kind:
        case "Pod":
            return "", ()
        case "Deployment":
            owner, made = _made(REPLICA_SET, namespace, name, f"{DEPLOYMENT}/{name}", body)
            return owner, (*made, *_elastic(DEPLOYMENT, namespace, name, body, where))
        case "StatefulSet":
            owner, made = _made(kind, namespace, name, "", body)
            return owner, _elastic(kind, namespace, name, body, where) or made
        case "ReplicaSet" | "DaemonSet":
            return _made(kind, namespace, name, "", body)
        case "JobSet" | "CronJob":
            return _made(JOB, namespace, f"{name} {lead}", f"{kind}/{name}", around)
        case _:
            return f"{kind}/{name}", ()


def _made(kind: str, namespace: str, name: str, owner: str, body: Body) -> tuple[str, tuple[Workload, ...]]:
    found = Workload(kind, namespace, name, owner=owner, terms=_terms(body.get("metadata")))
    return f"{kind}/{name}", (found,)


def _elastic(kind: str, namespace: str, name: str, body: Body, where: str) -> tuple[Workload, ...]:
    """Return a workload with a number of replicas that asks to be elastic; none where it does not."""
    metadata, spec = body.get("metadata"), body.get("spec")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    try:
        found = msgspec.convert(metadata, ScaledMetadata)
    except msgspec.ValidationError:
        return ()
    size = replicas if isinstance(replicas, int) else None
    elastic = read_scaled_elastic(found, size, ordered=kind == STATEFUL_SET)
    terms = workload_terms(found.annotations)
    return (Workload(kind, namespace, name, where, terms=terms, elastic=elastic),) if elastic is not None else ()


def _terms(metadata: Any) -> TenantTerms:
    """Return what annotations say; of metadata that cannot be read, nothing: the API server refuses them."""
    if not isinstance(metadata, dict):
        return NO_TERMS
    try:
        annotations = msgspec.convert({"annotations": metadata.get("annotations")}, WorkloadMetadata).annotations
    except msgspec.ValidationError:
        return NO_TERMS
    return workload_terms(annotations)
