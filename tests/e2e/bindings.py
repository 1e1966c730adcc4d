"""Every Binding that the API server answered, from its audit log."""

import json
from dataclasses import dataclass

from aischeduler.model.names import MARK_DECISION, MARK_EPOCH
from tests.controlplane.plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Answered:
    """One Binding and the HTTP status of its answer."""

    pod: str
    uid: str
    node: str
    decision: str
    epoch: str
    """The term of the leader that sent it; empty without an election."""
    status: int


def bindings(plane: ControlPlane, namespace: str, since: int = 0) -> list[Answered]:
    """Return the Bindings of pods of a namespace in the order of their answers, from this byte of the log on."""
    found = []
    with plane.audit_log.open("rb") as log:
        log.seek(since)
        lines = log.read().decode().splitlines()
    for line in lines:
        if '"subresource":"binding"' not in line:  # nearly all lines are about other requests
            continue
        noted = json.loads(line)
        if noted["objectRef"]["namespace"] != namespace:
            continue
        if "requestObject" not in noted:  # the server refused the request with 401 before it read the body
            continue
        asked = noted["requestObject"]
        metadata = asked["metadata"]
        marks = metadata.get("annotations", {})
        found.append(
            Answered(
                noted["objectRef"]["name"],
                metadata.get("uid", ""),
                asked["target"]["name"],
                marks.get(MARK_DECISION, ""),
                marks.get(MARK_EPOCH, ""),
                noted["responseStatus"]["code"],
            )
        )
    return found
