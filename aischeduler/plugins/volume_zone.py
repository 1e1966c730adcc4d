"""VolumeZone: a pod runs in the zones and regions that the labels of its volumes name.

Source: kube-scheduler's VolumeZone.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.pod import PodSpec
from aischeduler.model.selectors import Labels
from aischeduler.model.volumes import PodVolumes
from aischeduler.state.counted_pods import Counted
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable

REASON: Final = "node(s) had no available volume zone"
NEWER: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""An older label -> the label that replaced it."""
LABELS: Final = (*NEWER, *NEWER.values())
APART: Final = "__"
"""What is between the zones of a label."""
READ: Final = reading(StatePart.STORAGE, StatePart.UNLABELLED, StatePart.LABELS)


class VolumeZone:
    """Filter nodes by the zones of bound volumes; a node without any zone or region takes all."""

    name = "VolumeZone"
    by_class = True

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod names claims; the claims of ephemeral volumes do not count."""
        return spec.volumes is not None and any(not use.owned for use in spec.volumes.claims)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return no selectors: pods do not count."""
        return ()

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the rows in the zones of all volumes."""
        versions = READ(nodes)
        if isinstance(before, ZoneState) and before.made_from == versions:
            return before
        assert spec.volumes is not None, "the pod has volumes"
        return ZoneState(spec.volumes, nodes, versions)


class ZoneState:
    """The rows in the zones of all volumes of a class of pods."""

    def __init__(self, volumes: PodVolumes, nodes: NodeTable, made_from: Versions) -> None:
        self.made_from = made_from
        labels = nodes.labels
        self._passing = np.ones(nodes.width, dtype=np.bool_)
        for use in volumes.claims:
            claim = None if use.owned else nodes.storage.claims.get((volumes.namespace, use.name))
            volume = nodes.storage.volumes.get(claim.volume) if claim is not None else None
            for key, zones in zones_of(volume.labels if volume is not None else {}):
                inside = labels.any_of(key, zones)
                if key in NEWER:
                    inside |= ~labels.having_key(key) & labels.any_of(NEWER[key], zones)
                self._passing &= inside
        if not self._passing.all():
            self._passing |= ~np.logical_or.reduce([labels.having_key(key) for key in LABELS])

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows in the zones."""
        mask: Mask = at.pick(self._passing)
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return the same mask: no pod that leaves changes a zone."""
        return self.filter(at)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count the rows in other zones."""
        return +Counter({REASON: int(np.count_nonzero(~self.filter(at)))})


def zones_of(labels: Labels) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the zone and region labels of a volume, each with its values; a label with an empty one does not count."""
    for key in LABELS:
        if key in labels:
            zones = tuple(part.strip() for part in labels[key].split(APART))
            if all(zones):
                yield key, zones
