"""Deletes the objects of a test from a control plane.

Invariants: Jobs are deleted before pods, because their controller would create new pods. Pods are deleted without a
grace period, because there is no kubelet. System namespaces, system PriorityClasses and CRDs stay.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

EMPTY_WITHIN_SECONDS = 60.0
POLL_EVERY_SECONDS = 0.05

_AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_NAMESPACED = (
    ("batch/v1", "jobs"),
    ("policy/v1", "poddisruptionbudgets"),
    ("v1", "pods"),
    ("v1", "persistentvolumeclaims"),
    ("v1", "services"),
)
_DEFINED = (
    ("scheduling.x-k8s.io/v1alpha1", "podgroups"),
    ("scheduling.volcano.sh/v1beta1", "podgroups"),
    ("jobset.x-k8s.io/v1alpha2", "jobsets"),
)
"""Namespaced kinds that a server has only where a test has defined them."""
_DEFINED_CLUSTER_WIDE = (
    ("resource.aibee.cn/v1alpha1", "queues"),
    ("scheduling.volcano.sh/v1beta1", "queues"),
    ("scheduling.koordinator.sh/v1alpha1", "devices"),
)
"""The same for kinds without namespaces."""
_CLUSTER_WIDE = (
    ("v1", "nodes"),
    ("v1", "persistentvolumes"),
    ("storage.k8s.io/v1", "storageclasses"),
    ("storage.k8s.io/v1", "csinodes"),
    ("resource.aibee.cn/v1alpha1", "pools"),
    ("node.k8s.io/v1", "runtimeclasses"),
)


class Reply(Protocol):
    """A response of the API server: its status code and its JSON body."""

    @property
    def status(self) -> int: ...

    @property
    def body(self) -> Any: ...


class Server(Protocol):
    """A client of the API server, such as `plane.ControlPlane`; PATCH is a merge patch."""

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply: ...


class SweepError(Exception):
    """Objects could not be deleted; the text names some of them."""


def sweep(plane: Server, *, kept_pool: str = "") -> None:
    """Delete all objects of these kinds except `kept_pool`, and all PriorityClasses of tests; wait for the pods."""
    for version, plural in _NAMESPACED:
        namespaces = {item["metadata"]["namespace"] for item in _items(plane, version, plural)}
        for namespace in sorted(namespaces - ({"default"} if plural == "services" else set())):  # there is kubernetes
            plane.api("DELETE", f"{_root(version)}/namespaces/{namespace}/{plural}", _AT_ONCE)
    for version, plural in _DEFINED:
        found = plane.api("GET", f"{_root(version)}/{plural}")
        items = found.body["items"] if found.status == 200 else ()
        for namespace in sorted({item["metadata"]["namespace"] for item in items}):
            plane.api("DELETE", f"{_root(version)}/namespaces/{namespace}/{plural}", _AT_ONCE)
    for version, plural in _DEFINED_CLUSTER_WIDE:
        plane.api("DELETE", f"{_root(version)}/{plural}", _AT_ONCE)
    for version, plural in _CLUSTER_WIDE:
        kept = f"?fieldSelector=metadata.name!={kept_pool}" if kept_pool else ""
        plane.api("DELETE", f"{_root(version)}/{plural}{kept}", _AT_ONCE)
    for item in _items(plane, "scheduling.k8s.io/v1", "priorityclasses"):
        name = item["metadata"]["name"]
        if not name.startswith("system-"):
            plane.api("DELETE", f"{_root('scheduling.k8s.io/v1')}/priorityclasses/{name}", _AT_ONCE)
    _wait_for_no_pods(plane)


def _wait_for_no_pods(plane: Server) -> None:
    """Wait for the Job controller to remove its finalizers from pods; after a while remove all finalizers."""
    deadline = time.monotonic() + EMPTY_WITHIN_SECONDS
    patience = time.monotonic() + EMPTY_WITHIN_SECONDS / 20
    while left := _items(plane, "v1", "pods"):
        now = time.monotonic()
        if now > deadline:
            names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in left[:5]]
            raise SweepError(f"{len(left)} pods are still there after {EMPTY_WITHIN_SECONDS:.0f} s: {', '.join(names)}")
        if now > patience:
            for pod in left:
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                plane.api("PATCH", path, {"metadata": {"finalizers": None}})
                plane.api("DELETE", path, _AT_ONCE)
        time.sleep(POLL_EVERY_SECONDS)


def _items(plane: Server, version: str, plural: str) -> list[Mapping[str, Any]]:
    """Return the objects of all namespaces."""
    answer = plane.api("GET", f"{_root(version)}/{plural}")
    if answer.status != 200:
        raise SweepError(f"GET {plural} answered {answer.status}: {answer.body}")
    items: list[Mapping[str, Any]] = answer.body["items"]
    return items


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
