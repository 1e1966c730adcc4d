"""NodeVolumeLimits: a node takes as many volumes of a CSI driver as its CSINode says.

Source: kube-scheduler's NodeVolumeLimits.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.pod import PodSpec
from aischeduler.model.volumes import PodVolumes
from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable

REASON: Final = "node(s) exceed max volume count"


class NodeVolumeLimits:
    """Filter nodes by the number of attached volumes of each driver."""

    name = "NodeVolumeLimits"
    by_class = True

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has claims."""
        return spec.volumes is not None

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return no selectors: what counts are volumes."""
        return ()

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the volumes; what is attached is read when rows are asked for."""
        assert spec.volumes is not None, "the pod has volumes"
        return before if isinstance(before, LimitsState) else LimitsState(spec.volumes)


class LimitsState:
    """The volumes of a class of pods."""

    def __init__(self, volumes: PodVolumes) -> None:
        self._volumes = volumes

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows that exceed no limit."""
        return at.nodes.storage.limits.fits(self._volumes, at.rows, at.nodes)

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask of all rows: a pod that leaves frees its volumes."""
        return np.ones(len(at), dtype=np.bool_)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count the rows that would exceed a limit."""
        return +Counter({REASON: int(np.count_nonzero(~self.filter(at)))})
