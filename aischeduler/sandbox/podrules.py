"""What the server refuses of pods and of pod templates, with the field's path and the real server's words.

Source: `pkg/apis/core/validation/validation.go` of Kubernetes 1.36, the part that schedulers and their users meet.
"""

from functools import lru_cache

from aischeduler.model.quantity import parse_nano
from aischeduler.sandbox.decoding import CACHED_QUANTITIES
from aischeduler.sandbox.defaults import containers_of
from aischeduler.sandbox.objects import JsonObject, dns_label_errors, name_errors, qualified_name_errors
from aischeduler.sandbox.status import (
    Cause,
    duplicate_value,
    forbidden_field,
    invalid_value,
    required,
    unsupported_value,
)
from aischeduler.sandbox.validation import NODE_OPERATORS, expression_errors, label_errors

STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)


_nano = lru_cache(maxsize=CACHED_QUANTITIES)(parse_nano)


def pod_spec_errors(spec: JsonObject, path: str) -> list[Cause]:
    """Say what is wrong with a pod's spec."""
    causes = [] if spec.get("containers") else [required(f"{path}.containers")]
    seen: dict[str, None] = {}
    for key in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(key) or ()):
            where = f"{path}.{key}[{index}]"
            name = container.get("name", "")
            if name in seen:
                causes.append(duplicate_value(f"{where}.name", name))
            seen[name] = None
            causes += _container_errors(container, where)
    if spec.get("restartPolicy") not in RESTART_POLICIES:
        causes.append(unsupported_value(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES))
    causes += label_errors(f"{path}.nodeSelector", spec.get("nodeSelector") or {})
    if spec.get("nodeName") and (wrong := name_errors(spec["nodeName"])) is not None:
        causes.append(invalid_value(f"{path}.nodeName", spec["nodeName"], wrong))
    causes += resource_errors(spec.get("resources") or {}, f"{path}.resources")
    return [
        *causes,
        *_toleration_errors(spec, path),
        *_gate_errors(spec, path),
        *_affinity_errors(spec, path),
    ]


def _container_errors(container: JsonObject, path: str) -> list[Cause]:
    causes = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    elif (wrong := dns_label_errors(name)) is not None:
        causes.append(invalid_value(f"{path}.name", name, wrong))
    if not container.get("image", "").strip():
        causes.append(required(f"{path}.image"))
    for index, port in enumerate(container.get("ports") or ()):
        for key in ("containerPort", "hostPort"):
            number = port.get(key)
            if number is not None and not (0 < number < 65536 or (key == "hostPort" and number == 0)):
                where = f"{path}.ports[{index}].{key}"
                causes.append(invalid_value(where, number, "must be between 1 and 65535, inclusive"))
    return causes + resource_errors(container.get("resources") or {}, f"{path}.resources")


def resource_errors(resources: JsonObject, path: str) -> list[Cause]:
    """Say what is wrong with requests and limits."""
    causes = []
    limits: dict[str, str] = resources.get("limits") or {}
    for kind in ("limits", "requests"):
        for name, amount in (resources.get(kind) or {}).items():
            causes += _amount_errors(name, amount, f"{path}.{kind}")
    for name, amount in (resources.get("requests") or {}).items():
        limit = limits.get(name)
        where = f"{path}.requests"
        fractional = name in STANDARD_RESOURCES
        if limit is not None and _nano(amount) > _nano(limit):
            causes.append(invalid_value(where, amount, f"must be less than or equal to {name} limit of {limit}"))
        elif not fractional and limit is not None and _nano(amount) != _nano(limit):
            causes.append(invalid_value(where, amount, f"must be equal to {name} limit of {limit}"))
        elif not fractional and limit is None:
            causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
    return causes


def _amount_errors(name: str, amount: str, path: str) -> list[Cause]:
    where = f"{path}[{name}]"
    if (wrong := qualified_name_errors(name)) is not None:
        return [invalid_value(where, name, wrong)]
    if "/" not in name and name not in STANDARD_RESOURCES and not name.startswith(HUGE_PAGES):
        return [
            invalid_value(where, name, "must be a standard resource type or fully qualified"),
            invalid_value(where, name, "must be a standard resource for containers"),
        ]
    nano = _nano(amount)
    if nano < 0:
        return [invalid_value(where, amount, "must be greater than or equal to 0")]
    if "/" in name and nano % 10**9:
        return [invalid_value(where, amount, "must be an integer")]
    return []


def _toleration_errors(spec: JsonObject, path: str) -> list[Cause]:
    causes = []
    for index, one in enumerate(spec.get("tolerations") or ()):
        where = f"{path}.tolerations[{index}]"
        key, operator = one.get("key", ""), one.get("operator", "")
        if key and (wrong := qualified_name_errors(key)) is not None:
            causes.append(invalid_value(f"{where}.key", key, wrong))
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid_value(f"{where}.operator", operator, detail))
        if operator not in {"", "Equal", "Exists"}:
            causes.append(unsupported_value(f"{where}.operator", operator, ("Equal", "Exists")))
        if operator == "Exists" and one.get("value"):
            causes.append(invalid_value(f"{where}.operator", one, "value must be empty when `operator` is 'Exists'"))
        if one.get("effect") and one["effect"] not in EFFECTS:
            causes.append(unsupported_value(f"{where}.effect", one["effect"], EFFECTS))
    return causes


def _gate_errors(spec: JsonObject, path: str) -> list[Cause]:
    causes = []
    seen: dict[str, None] = {}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        where = f"{path}.schedulingGates[{index}]"
        if (wrong := qualified_name_errors(name)) is not None:
            causes.append(invalid_value(where, name, wrong))
        if name in seen:
            causes.append(duplicate_value(where, name))
        seen[name] = None
    return causes


def _affinity_errors(spec: JsonObject, path: str) -> list[Cause]:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    where = f"{path}.affinity.nodeAffinity"
    causes = []
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[tuple[str, JsonObject]] = []
    if needed is not None:
        lead = f"{where}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not needed.get("nodeSelectorTerms"):
            causes.append(required(lead, "must have at least one node selector term"))
        terms += [(f"{lead}[{index}]", one) for index, one in enumerate(needed.get("nodeSelectorTerms") or ())]
    for index, one in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        lead = f"{where}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= one.get("weight", 0) <= 100:
            causes.append(invalid_value(f"{lead}.weight", one.get("weight", 0), "must be in the range 1-100"))
        terms.append((f"{lead}.preference", one.get("preference") or {}))
    for lead, term in terms:
        for index, expression in enumerate(term.get("matchExpressions") or ()):
            causes += expression_errors(expression, f"{lead}.matchExpressions[{index}]", NODE_OPERATORS)
    return causes


def pod_create_errors(spec: JsonObject) -> list[Cause]:
    """Say what may not be there when a pod is made, although it may come later."""
    if spec.get("schedulingGates") and spec.get("nodeName"):
        return [forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")]
    return []


def pod_update_errors(spec: JsonObject, old: JsonObject) -> list[Cause]:
    """Say which fields of a pod an update may not change."""
    for key in ("containers", "initContainers"):
        if len(spec.get(key) or ()) != len(old.get(key) or ()):
            return [forbidden_field(f"spec.{key}", "pod updates may not add or remove containers")]
    causes = []
    gates, before = spec.get("schedulingGates") or [], old.get("schedulingGates") or []
    for index, gate in enumerate(gates):
        if gate not in before:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            causes.append(forbidden_field(f"spec.schedulingGates[{index}].name", detail))
    tolerations = spec.get("tolerations") or []
    if any(one not in tolerations for one in old.get("tolerations") or ()):
        causes.append(
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    if before:
        causes += _selector_errors(spec.get("nodeSelector"), old.get("nodeSelector") or {})
    causes += _deadline_errors(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    if _fixed(spec, gated=bool(before)) != _fixed(old, gated=bool(before)):
        causes.append(forbidden_field("spec", f"pod updates may not change fields other than {UPDATABLE}"))
    return causes


def _selector_errors(selector: JsonObject | None, before: JsonObject) -> list[Cause]:
    """Say what is wrong with a gated pod's new selector: it may look for more labels, never for fewer or others."""
    if {**before, **(selector or {})} == (selector or {}):
        return []
    detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid_value("spec.nodeSelector", selector, detail)]


def _deadline_errors(seconds: int | None, before: int | None) -> list[Cause]:
    if before is None or (seconds is not None and seconds <= before):
        return []
    if seconds is None:
        return [
            invalid_value("spec.activeDeadlineSeconds", seconds, "must not update from a positive integer to nil value")
        ]
    return [invalid_value("spec.activeDeadlineSeconds", seconds, "must be less than or equal to previous value")]


def _fixed(spec: JsonObject, *, gated: bool) -> JsonObject:
    free = {"containers", "initContainers", "activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    fixed = {key: value for key, value in spec.items() if key not in free}
    fixed["containers"] = [
        {key: value for key, value in container.items() if key != "image"} for container in containers_of(spec)
    ]
    return fixed
