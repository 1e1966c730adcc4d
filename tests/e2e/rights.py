"""The RBAC rules of schedulers: those that the chart grants, and those that the API server's audit log shows in use.

Invariant: a scheduler of these tests outside a release has exactly the rules of the chart, so that every test detects a
missing one.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import yaml

from tests.controlplane.commands import SCHEDULER
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, apply
from tests.objects import Json

EVICTING: Json = {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}
"""The permission for `eviction: Evict`, which is not the default."""
FLEETS: Json = {"apiGroups": ["test.example.com"], "resources": ["fleets"], "verbs": ["list", "watch", "patch"]}
"""The permission for a kind of `elastic.kinds`, which the chart grants where the configuration names one."""
RBAC = "rbac.authorization.k8s.io"

Right = tuple[str, str, str]
"""Group, resource and verb."""


def of_the_chart() -> list[Json]:
    """Return the rules of the role of the chart, from `manifests/`."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "clusterrole.yaml").read_text())
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    return [*role["rules"], EVICTING, FLEETS]


def grant(plane: ControlPlane) -> None:
    """Give the schedulers of the tests the permissions of the chart."""
    name = {"name": SCHEDULER}
    role: Json = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": name, "rules": of_the_chart()}
    binding: Json = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": name,
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", **name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", **name}],
    }
    apply(plane, role, binding)


def granted(rules: Iterable[Json]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(plane: ControlPlane, user: str, since: int = 0) -> Iterator[tuple[Right, int]]:
    """Yield the permissions of a user's requests with the status of each answer, from this byte of the audit log on."""
    with plane.audit_log.open("rb") as log:
        skip_to(log, since)
        for line in log:
            if not line.endswith(b"\n"):
                return  # the last line is incomplete
            noted: Any = json.loads(line)
            if noted["user"].get("username") == user and "objectRef" in noted:
                ref = noted["objectRef"]
                resource = "/".join(part for part in (ref["resource"], ref.get("subresource")) if part)
                status = noted.get("responseStatus", {}).get("code", 0)
                yield (ref.get("apiGroup", ""), resource, noted["verb"]), status


def skip_to(log: BinaryIO, since: int) -> None:
    """Go to this byte of an audit log, or behind the line that was being written when it was the last."""
    log.seek(max(since - 1, 0))
    if since:
        log.readline()


def missing(plane: ControlPlane) -> list[Right]:
    """Return the permissions that the schedulers of the tests used and the chart does not grant."""
    return sorted({right for right, _ in used(plane, SCHEDULER)} - granted(of_the_chart()))
