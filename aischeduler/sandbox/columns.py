"""The columns that `kubectl get` shows for each kind, and how their cells are made.

Source: `pkg/printers/internalversion` and, for custom resources, `additionalPrinterColumns`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aischeduler.sandbox.jsonpath import find_path
from aischeduler.sandbox.kinds import Place, Resource
from aischeduler.sandbox.objects import JsonObject, condition_of, encode, is_true, seconds
from aischeduler.sandbox.podcells import pod_ready, pod_restarts, pod_status

NONE = "<none>"
UNKNOWN = "<unknown>"
ROLE_PREFIX = "node-role.kubernetes.io/"
WIDE = 1

Cell = Callable[[JsonObject, float], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its cell for an object at a time, its type, and 1 where only `-o wide` shows it."""

    name: str
    cell: Cell
    kind: str = "string"
    priority: int = 0

    @property
    def definition(self) -> JsonObject:
        """The column's head in a Table."""
        form = "name" if self.name == "Name" else ""
        return {
            "name": self.name,
            "type": self.kind,
            "format": form,
            "description": "",
            "priority": self.priority,
        }


def human_duration(span: float) -> str:
    """Return a span of seconds as kubectl shows ages."""
    total = int(span)
    if total < -1:
        return "<invalid>"
    total = max(0, total)
    minutes, hours, days = total // 60, total // 3600, total // 86400
    years = days // 365
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if years < 2:
        return f"{days}d"
    return f"{years}y{days % 365}d" if years < 8 and days % 365 else f"{years}y"


def age(text: str | None, now: float) -> str:
    """Return how long ago a timestamp was."""
    return human_duration(now - seconds(text)) if text else UNKNOWN


def _name(obj: JsonObject, _now: float) -> Any:
    return obj["metadata"]["name"]


def _age(obj: JsonObject, now: float) -> Any:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _at(*path: str, absent: Any = NONE) -> Cell:
    def cell(obj: JsonObject, _now: float) -> Any:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        return absent if value is None or value == "" else value

    return cell


def _node_status(node: JsonObject, _now: float) -> str:
    ready = condition_of(node.get("status") or {}, "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject, _now: float) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = sorted({key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)} - {""})
    if labels.get("kubernetes.io/role"):
        roles = sorted({*roles, labels["kubernetes.io/role"]})
    return ",".join(roles) or NONE


def _node_address(kind: str) -> Cell:
    def cell(node: JsonObject, _now: float) -> str:
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address", ""))
        return NONE

    return cell


def _job_status(job: JsonObject, _now: float) -> str:
    status = job.get("status") or {}
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(status, kind):
            return kind
    return "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"


def _job_completions(job: JsonObject, _now: float) -> str:
    spec, done = job["spec"], (job.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: JsonObject, now: float) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = seconds(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - seconds(status["startTime"]))


def _of_containers(key: str) -> Cell:
    def cell(job: JsonObject, _now: float) -> str:
        return ",".join(one.get(key, "") for one in job["spec"]["template"]["spec"].get("containers") or ())

    return cell


def _selector(obj: JsonObject, _now: float) -> str:
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NONE


def _event_last_seen(event: JsonObject, now: float) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    last = series or event.get("deprecatedLastTimestamp") or event.get("eventTime")
    return age(last or event["metadata"].get("creationTimestamp"), now)


def _event_first_seen(event: JsonObject, now: float) -> str:
    return age(event.get("deprecatedFirstTimestamp") or event.get("eventTime"), now)


def _event_object(event: JsonObject, _now: float) -> str:
    regarding = event.get("regarding") or {}
    return f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}"


def _event_source(event: JsonObject, _now: float) -> str:
    source = event.get("deprecatedSource") or {}
    name = source.get("component") or event.get("reportingController", "")
    where = source.get("host") or event.get("reportingInstance", "")
    return f"{name}, {where}" if where else name


def _event_count(event: JsonObject, _now: float) -> int:
    count: int = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    return count


def _ports(service: JsonObject, _now: float) -> str:
    ports = service.get("spec", {}).get("ports") or ()
    return ",".join(f"{one['port']}/{one.get('protocol', 'TCP')}" for one in ports) or NONE


def _readiness_gates(pod: JsonObject, _now: float) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    met = sum(1 for gate in gates if is_true(pod["status"], gate.get("conditionType", "")))
    return f"{met}/{len(gates)}"


NAME = Column("Name", _name)
AGE = Column("Age", _age)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    Place.PODS: (
        NAME,
        Column("Ready", pod_ready),
        Column("Status", pod_status),
        Column("Restarts", pod_restarts),
        AGE,
        Column("IP", _at("status", "podIP"), priority=WIDE),
        Column("Node", _at("spec", "nodeName"), priority=WIDE),
        Column("Nominated Node", _at("status", "nominatedNodeName"), priority=WIDE),
        Column("Readiness Gates", _readiness_gates, priority=WIDE),
    ),
    Place.NODES: (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _at("status", "nodeInfo", "kubeletVersion", absent="")),
        Column("Internal-IP", _node_address("InternalIP"), priority=WIDE),
        Column("External-IP", _node_address("ExternalIP"), priority=WIDE),
        Column("OS-Image", _at("status", "nodeInfo", "osImage", absent=UNKNOWN), priority=WIDE),
        Column("Kernel-Version", _at("status", "nodeInfo", "kernelVersion", absent=UNKNOWN), priority=WIDE),
        Column(
            "Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", absent=UNKNOWN), priority=WIDE
        ),
    ),
    Place.NAMESPACES: (NAME, Column("Status", _at("status", "phase", absent="")), AGE),
    Place.JOBS: (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        Column("Containers", _of_containers("name"), priority=WIDE),
        Column("Images", _of_containers("image"), priority=WIDE),
        Column("Selector", _selector, priority=WIDE),
    ),
    Place.EVENTS: (
        Column("Last Seen", _event_last_seen),
        Column("Type", _at("type", absent="")),
        Column("Reason", _at("reason", absent="")),
        Column("Object", _event_object),
        Column("Subobject", _at("regarding", "fieldPath", absent=""), priority=WIDE),
        Column("Source", _event_source, priority=WIDE),
        Column("Message", _at("note", absent="")),
        Column("First Seen", _event_first_seen, priority=WIDE),
        Column("Count", _event_count, "integer", WIDE),
        Column("Name", _name, priority=WIDE),
    ),
    Place.PRIORITY_CLASSES: (
        NAME,
        Column("Value", _at("value", absent=0), "integer"),
        Column("Global-Default", _at("globalDefault", absent=False), "boolean"),
        AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy", absent="")),
    ),
    Place.BUDGETS: (
        NAME,
        Column("Min Available", _at("spec", "minAvailable", absent="N/A")),
        Column("Max Unavailable", _at("spec", "maxUnavailable", absent="N/A")),
        Column("Allowed Disruptions", _at("status", "disruptionsAllowed", absent=0), "integer"),
        AGE,
    ),
    Place.LEASES: (NAME, Column("Holder", _at("spec", "holderIdentity", absent="")), AGE),
    Place.CONFIG_MAPS: (NAME, Column("Data", lambda obj, _now: len(obj.get("data") or ()), "integer"), AGE),
    Place.SERVICES: (
        NAME,
        Column("Type", _at("spec", "type", absent="ClusterIP")),
        Column("Cluster-IP", _at("spec", "clusterIP")),
        Column("Port(s)", _ports),
        AGE,
    ),
    Place.DEFINITIONS: (
        NAME,
        Column("Created At", _at("metadata", "creationTimestamp", absent=""), "date"),
    ),
}


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """Return the columns of a kind."""
    if resource.custom is None:
        return COLUMNS.get(resource.collection, (NAME, AGE))
    return (NAME, *(_custom_column(one) for one in resource.custom.columns))


def _custom_column(definition: JsonObject) -> Column:
    path, kind = definition["jsonPath"], definition["type"]

    def cell(obj: JsonObject, now: float) -> Any:
        value = find_path(obj, path)
        if kind == "date":
            return age(value, now) if isinstance(value, str) else UNKNOWN
        if kind == "string" and value is not None and not isinstance(value, str):
            return encode(value).decode()
        return None if isinstance(value, dict | list) else value

    return Column(definition["name"], cell, "string" if kind == "date" else kind, definition.get("priority", 0))
