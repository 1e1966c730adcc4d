"""Read which features of a node's kubelet a pod needs.

Source: nodedeclaredfeatures of k8s.io/component-helpers, of Kubernetes 1.36.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.decode.api_types import PodSpecPart
from aischeduler.kube.decode.meta_types import UNREADABLE

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS: Final = "UserNamespacesHostNetworkSupport"
RESTART_ALL_ACTION: Final = "RestartAllContainers"


class _Rule(Struct, gc=False):
    """What a container that ends leads to."""

    action: str = ""


def needed_features(spec: PodSpecPart) -> tuple[str, ...]:
    """Return the features that a node must declare, sorted; almost no pod needs one."""
    host_users = (HOST_NETWORK_USERS,) if spec.host_network and spec.host_users is False else ()
    for parts in (spec.containers or (), spec.init_containers or ()):
        for part in parts:
            if part.restart_policy_rules and _restarts_all(part.restart_policy_rules):
                return (RESTART_ALL, *host_users)
    return host_users


def _restarts_all(raw: Raw) -> bool:
    try:
        rules = msgspec.json.decode(raw, type=list[_Rule] | None) or []
    except UNREADABLE:
        return False
    return any(rule.action == RESTART_ALL_ACTION for rule in rules)
