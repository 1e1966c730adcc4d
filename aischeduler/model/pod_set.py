"""The pods that a Service selects, or a controller that makes pods: what kube-scheduler spreads by default."""

from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import LabelSelector

SERVICE: Final = "Service"
REPLICATION_CONTROLLER: Final = "ReplicationController"
CONTROLLERS: Final = {
    REPLICATION_CONTROLLER: "v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
"""The kinds of controllers whose pods are spread by default, with their API versions."""


class PodSet(Struct, frozen=True):
    """The pods of one object. `selector` is None where it selects none; that of a Service names labels alone."""

    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the object."""
        return self.kind, self.namespace, self.name


def controller_of(kind: str, api_version: str, name: str) -> str:
    """Return the controller as a pod names it; empty for a kind whose pods are not spread by default."""
    return f"{kind}/{name}" if CONTROLLERS.get(kind) == api_version else ""
