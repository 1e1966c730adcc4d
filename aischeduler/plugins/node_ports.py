"""NodePorts: one pod per node takes a host port of one protocol and address.

Source: kube-scheduler's NodePorts; 0.0.0.0 conflicts with every address.
"""

from collections import Counter

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.state.label_index import Mask

REASON = "node(s) didn't have free ports for the requested pod ports"
EVERY_ADDRESS = HostPort("", 0).ip


class NodePorts:
    """Filter nodes by their host ports in use."""

    name = "NodePorts"
    static = False

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Pass the rows on which every host port of the pod is free."""
        if not spec.host_ports:
            return None
        mask = np.ones(at.nodes.width, dtype=np.bool_)
        for port in spec.host_ports:
            for row in at.nodes.ports.rows.rows((port.protocol, port.port)):
                if any(conflict(port, taken) for taken in at.nodes.ports.on[row]):
                    mask[row] = False
        return mask[at.rows]

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return kube-scheduler's text."""
        return Counter({REASON: len(at)})

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return True: the node does not show which ports are free."""
        return True


def conflict(wanted: HostPort, taken: HostPort) -> bool:
    """Return whether two host ports exclude each other on one node."""
    return (wanted.protocol, wanted.port) == (taken.protocol, taken.port) and (
        wanted.ip == taken.ip or EVERY_ADDRESS in (wanted.ip, taken.ip)
    )
