"""Policies that refuse what the scheduler writes to the pods of one namespace, for a while.

Invariant: a policy refuses no request of an administrator, so that kubelets and the test itself go on.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from tests.controlplane.plane import ControlPlane
from tests.objects import Json

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
NOT_BY_AN_ADMINISTRATOR: Final = {"name": "user", "expression": "!('system:masters' in request.userInfo.groups)"}
REFUSED: Final = {
    "bindings": (("CREATE", "pods/binding"),),
    "evictions": (("DELETE", "pods"), ("CREATE", "pods/eviction")),
    "statuses": (("UPDATE", "pods/status"),),
}
"""The requests that a refusal of this name concerns: (operation, resource)."""
REASONS: Final = ("Forbidden", "Invalid")
"""Answered with 403 and with 422."""
AFTER_SECONDS: Final = 3.0
"""The API server reads its policies every second."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was refused in a namespace from one moment to another; `end` may be later than the last refused request."""

    what: str
    namespace: str
    begin: float
    end: float


class Refusals:
    """The policies in force, at most one of each name, and those of before. Use it as a context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self.past: list[Refusal] = []
        self._plane = plane
        self._since: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.allow_all()

    def in_force(self) -> list[str]:
        return list(self._since)

    def refuse(self, what: str, namespace: str, reason: str) -> None:
        """Refuse these requests about pods of the namespace; the API server may need a moment."""
        self._since[what] = namespace, time.monotonic()
        create_policy(self._plane, what, REFUSED[what], f"no {what} now", reason, namespace=namespace)

    def allow(self, what: str) -> None:
        """Delete a policy."""
        delete_policy(self._plane, what)
        namespace, begin = self._since.pop(what)
        self.past.append(Refusal(what, namespace, begin, time.monotonic() + AFTER_SECONDS))

    def allow_all(self) -> None:
        for what in self.in_force():
            self.allow(what)


def rules(requests: Iterable[tuple[str, str]]) -> list[Json]:
    """Return the rules of admission for requests: (operation, resource)."""
    return [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
        for operation, resource in requests
    ]


def create_policy(
    plane: ControlPlane,
    name: str,
    requests: Iterable[tuple[str, str]],
    message: str,
    reason: str,
    *,
    unless: str = "false",
    namespace: str = "",
    administrators: bool = False,
) -> None:
    """Have the API server refuse requests (operation, resource), of `administrators` too or not.

    It refuses all of them in the namespace, or everywhere, but those for which an expression of CEL is true.
    """
    spec: Json = {
        "matchConstraints": {"resourceRules": rules(requests)},
        "matchConditions": [] if administrators else [NOT_BY_AN_ADMINISTRATOR],
        "validations": [{"expression": unless, "message": message, "reason": reason}],
    }
    binding: Json = {"policyName": name, "validationActions": ["Deny"]}
    if namespace:
        selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        binding["matchResources"] = {"namespaceSelector": selector}
    policy = "ValidatingAdmissionPolicy"
    for plural, kind, of in (("policies", policy, spec), ("policybindings", f"{policy}Binding", binding)):
        document = {"apiVersion": ADMISSION[6:], "kind": kind, "metadata": {"name": name}, "spec": of}
        created = plane.api("POST", f"{ADMISSION}/validatingadmission{plural}", document)
        assert created.status == 201, created.body


def delete_policy(plane: ControlPlane, name: str) -> None:
    """Delete a policy, if it is there; the API server may need a moment."""
    for plural in ("policybindings", "policies"):
        plane.api("DELETE", f"{ADMISSION}/validatingadmission{plural}/{name}")
