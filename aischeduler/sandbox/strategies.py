"""The rules of nodes, namespaces, priority classes, budgets, leases, volumes and events, and the rules of each kind.

Source: the strategies, validation and admission of these kinds in Kubernetes.
"""

from collections.abc import Mapping

from aischeduler.sandbox.api_resources import CollectionName, Resource
from aischeduler.sandbox.custom_resources import CUSTOM, DEFINITIONS
from aischeduler.sandbox.job_strategy import JOBS
from aischeduler.sandbox.pod_strategy import PODS, store_quantities
from aischeduler.sandbox.status_errors import Cause
from aischeduler.sandbox.strategy import Strategy, Write, immutable, restore

NOTE_BYTES_MAX = 1024
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NO_BUDGET = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}


def _fill_node(write: Write) -> None:
    write.obj.setdefault("spec", {})
    status = write.obj.setdefault("status", {})
    store_quantities(status, "capacity")
    store_quantities(status, "allocatable")
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))


def _create_namespace(write: Write) -> None:
    metadata = write.obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    write.obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})


def _update_namespace(write: Write) -> None:
    if write.old is not None and write.call.subresource != "finalize":
        restore(write.obj, write.old, "spec")


def _create_priority_class(write: Write) -> None:
    write.obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    write.obj.setdefault("value", 0)


def _validate_priority_class(write: Write) -> list[Cause]:
    obj, name = write.obj, write.obj["metadata"]["name"]
    if name.startswith("system-") and SYSTEM_PRIORITIES.get(name) != obj["value"]:
        return [Cause("metadata.name", "names with the prefix system- are reserved", "FieldValueForbidden")]
    return immutable(obj, write.old or obj, ("value", "preemptionPolicy"))


def _fill_budget(write: Write) -> None:
    write.obj.setdefault("spec", {})
    write.obj.setdefault("status", dict(_NO_BUDGET))


def _create_storage(write: Write) -> None:
    write.obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    write.obj["status"] = {"phase": "Pending"}


def _validate_event(write: Write) -> list[Cause]:
    event = write.obj
    if write.call.resource.group and not event.get("eventTime"):
        return [Cause("eventTime", "is required", "FieldValueRequired")]
    too_long = len(event.get("note", "").encode()) > NOTE_BYTES_MAX
    return [Cause("message", f"can have at most {NOTE_BYTES_MAX} bytes")] if too_long else []


_STRATEGIES: Mapping[str, Strategy] = {
    CollectionName.BUDGETS: Strategy(
        counts_generations=True, unconditional_update=False, create=_fill_budget, update=_fill_budget
    ),
    CollectionName.CLAIMS: Strategy(create=_create_storage),
    CollectionName.DEFINITIONS: DEFINITIONS,
    CollectionName.EVENTS: Strategy(validate=_validate_event),
    CollectionName.JOBS: JOBS,
    CollectionName.LEASES: Strategy(unconditional_update=False),
    CollectionName.NAMESPACES: Strategy(create=_create_namespace, update=_update_namespace),
    CollectionName.NODES: Strategy(keeps_first_status=True, create=_fill_node, update=_fill_node),
    CollectionName.PODS: PODS,
    CollectionName.PRIORITY_CLASSES: Strategy(create=_create_priority_class, validate=_validate_priority_class),
    CollectionName.VOLUMES: Strategy(create=_create_storage),
}


def strategy_of(resource: Resource) -> Strategy:
    """Return the rules of a kind."""
    return CUSTOM if resource.is_custom else _STRATEGIES.get(resource.collection, Strategy())
