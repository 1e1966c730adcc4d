"""What the server fills in when a pod, or a pod template, leaves it out.

Source: `pkg/apis/core/v1/defaults.go` of Kubernetes 1.36; admission plugins Priority and DefaultTolerationSeconds.
"""

from typing import Any

from aischeduler.sandbox.call import Call
from aischeduler.sandbox.kinds import Place
from aischeduler.sandbox.objects import JsonObject

TOLERATION_SECONDS = 300
DOWNWARD_MODE = 0o644
_FILE_VOLUMES = ("configMap", "secret", "downwardAPI", "projected")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def fill_pod_spec(spec: JsonObject) -> None:
    """Fill in a pod's or a template's spec, in place."""
    for container in containers_of(spec):
        _fill_container(container, spec)
    for volume in spec.get("volumes") or ():
        for kind in _FILE_VOLUMES:
            if isinstance(volume.get(kind), dict):
                volume[kind].setdefault("defaultMode", DOWNWARD_MODE)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def containers_of(spec: JsonObject) -> list[JsonObject]:
    """Return all containers of a pod's spec, init containers last."""
    return [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]


def _fill_container(container: JsonObject, spec: JsonObject) -> None:
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if spec.get("hostNetwork") and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    for name in _PROBES:
        if isinstance(container.get(name), dict):
            for key, value in _PROBE.items():
                container[name].setdefault(key, value)
            if isinstance(container[name].get("httpGet"), dict):
                container[name]["httpGet"].setdefault("scheme", "HTTP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    name = image.partition("@")[0].rpartition("/")[2]
    tag = name.partition(":")[2]
    if "@" in image and not tag:
        return "IfNotPresent"
    return "Always" if tag in {"", "latest"} else "IfNotPresent"


def fill_priority(pod: JsonObject, call: Call) -> None:
    """Fill in what a new pod gets: its priority."""
    metadata = pod["metadata"]
    _resolve_priority(pod["spec"], metadata.get("generateName") or metadata["name"], call)


def fill_own_spec(spec: JsonObject) -> None:
    """Fill in what only pods themselves get, whenever they are written: requests from limits, tolerations."""
    fill_pod_spec(spec)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for holder in (*containers_of(spec), spec):
        resources = holder.get("resources") or {}
        limits = resources.get("limits")
        if limits:
            requests = resources.setdefault("requests", {})
            for name, amount in limits.items():
                requests.setdefault(name, amount)
    spec.setdefault("enableServiceLinks", True)
    tolerate_lost_nodes(spec)


def _resolve_priority(spec: JsonObject, pod_name: str, call: Call) -> None:
    classes = call.cluster.store.collections[Place.PRIORITY_CLASSES]
    name = spec.get("priorityClassName")
    found: Any = None
    if name:
        entry = classes.get("", name)
        if entry is None:
            raise call.forbidden(pod_name, f"no PriorityClass with name {name} was found")
        found = entry.decoded()
    else:
        defaults = [entry.decoded() for entry in classes.in_order() if b'"globalDefault":true' in entry.raw]
        found = min(defaults, key=lambda one: (one["value"], one["metadata"]["name"]), default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found is not None else 0
    given = spec.get("priority")
    if given is not None and given != value:
        why = f"the integer value of priority ({given}) must not be provided in pod spec; priority admission controller"
        raise call.forbidden(pod_name, f"{why} computed {value} from the given PriorityClass name")
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    spec.setdefault("preemptionPolicy", policy)


def tolerate_lost_nodes(spec: JsonObject) -> None:
    """Add the tolerations with which a pod outlives its node for a while, where it says nothing of that."""
    tolerations: list[JsonObject] = list(spec.get("tolerations") or ())
    for key in _UNREACHABLE:
        if not any(_tolerates_no_execute(one, key) for one in tolerations):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
            )
    spec["tolerations"] = tolerations


def _tolerates_no_execute(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key", "") in {"", key} and toleration.get("effect", "") in {"", "NoExecute"}


def qos_class(spec: JsonObject) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    holders = [spec] if (spec.get("resources") or {}) else containers_of(spec)
    requests, limits, guaranteed = False, False, True
    for holder in holders:
        resources = holder.get("resources") or {}
        asked = _counted(resources.get("requests"))
        limited = _counted(resources.get("limits"))
        requests, limits = requests or bool(asked), limits or bool(limited)
        guaranteed = guaranteed and set(limited) == {"cpu", "memory"} and asked == limited
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _counted(amounts: JsonObject | None) -> JsonObject:
    return {name: amount for name, amount in (amounts or {}).items() if name in {"cpu", "memory"} and amount != "0"}
