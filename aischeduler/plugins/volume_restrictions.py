"""VolumeRestrictions: a claim for one pod is not used by two pods.

Source: kube-scheduler's VolumeRestrictions.
"""

from collections import Counter
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.pod import PodSpec
from aischeduler.model.volumes import ONE_POD, PodVolumes, VolumeClaimKey
from aischeduler.state.counted_pods import Counted
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable

CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
READ: Final = reading(StatePart.STORAGE)


class VolumeRestrictions:
    """Filter all nodes while another pod uses the same claim for one pod."""

    name = "VolumeRestrictions"
    by_class = True

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has claims."""
        return spec.volumes is not None

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return no selectors: what counts are claims."""
        return ()

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the claims that must not be used twice; their use is read when rows are asked for."""
        versions = READ(nodes)
        if isinstance(before, RestrictionsState) and before.made_from == versions:
            return before
        assert spec.volumes is not None, "the pod has volumes"
        return RestrictionsState(spec.volumes, nodes, versions)


class RestrictionsState:
    """The claims for one pod that a class of pods uses."""

    def __init__(self, volumes: PodVolumes, nodes: NodeTable, made_from: Versions) -> None:
        self.made_from = made_from
        self._used = nodes.storage.used
        names = dict.fromkeys((volumes.namespace, use.name) for use in volumes.claims if not use.owned)
        claims = nodes.storage.claims
        self._claims = [key for key in names if key in claims and ONE_POD in claims[key].access_modes]

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows on which no other pod stands in the way."""
        mask = np.ones(len(at), dtype=np.bool_)
        for key in self._claims:
            mask = mask & self._unused(key, at)
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask of all rows: a pod that leaves frees its volumes."""
        return np.ones(len(at), dtype=np.bool_)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count the rows whose claims another pod uses."""
        return +Counter({CLAIM_IN_USE: int(np.count_nonzero(~self.filter(at)))})

    def _unused(self, key: VolumeClaimKey, at: NodeView) -> Mask:
        """Return a mask of the rows where no pod uses the claim; in a search, each row as if pods had left it alone."""
        pods = self._used.rows.get(key)
        if not pods:
            return np.ones(len(at), dtype=np.bool_)
        total = pods.total()
        return np.isin(at.rows, [row for row in pods if self._used.gone(key, row) == total])
