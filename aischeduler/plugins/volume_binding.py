"""VolumeBinding: a pod runs where the volumes of its claims can be used, or found, or created.

Source: kube-scheduler's VolumeBinding (PreFilter, Filter; its Reserve and PreBind are in `engine.volume_binding`).
"""

from collections import Counter
from typing import Final

import numpy as np
from msgspec.structs import replace

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.allocation import Allocation
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.storage_objects import StorageClass
from aischeduler.model.volumes import PodVolumes, Volume, VolumeChoice, VolumeClaim
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.class_volumes import NONE, ClassVolumes, Numbers
from aischeduler.state.counted_pods import Counted
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import Mask, term_mask
from aischeduler.state.node_table import NodeTable

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_SECONDS: Final = 600
"""The default of bindTimeoutSeconds."""
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
READ: Final = reading(StatePart.STORAGE, StatePart.CHOICES, StatePart.UNLABELLED, StatePart.LABELS)


class VolumeBinding:
    """Filter nodes by the volumes of claims: bound ones, and for claims that wait, existing ones and new ones."""

    name = "VolumeBinding"
    by_class = True
    part = "volumes"
    for_claims = False

    def __init__(self, volume_seconds: int = VOLUME_SECONDS) -> None:
        """Have a Binding wait for its volumes for this many seconds at most."""
        self.volume_seconds = volume_seconds

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has claims."""
        return spec.volumes is not None

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return no selectors: pods do not count."""
        return ()

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the rows on which each volume can be used."""
        versions = READ(nodes)
        if isinstance(before, BindingState) and before.made_from == versions:
            return before
        assert spec.volumes is not None, "the pod has volumes"
        return BindingState(spec.volumes, nodes, versions)

    def make_part(self, nodes: NodeTable) -> AllocationPart:
        """Return the storage of the table, which keeps the choices of volumes."""
        return nodes.storage

    def allocates(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has claims."""
        return spec.volumes is not None

    def choose(
        self, given: Allocation, spec: PodSpec, at: NodeView, state: PreFilterState | None, placement: PlacementStrategy
    ) -> Allocation:
        """Return the volumes for the claims that wait."""
        if not isinstance(state, BindingState):
            return given  # a profile may leave the filter out
        choices = state.choices(int(at.rows[0]))
        return replace(given, choices=choices) if choices else given

    def bound(self, given: Allocation, pod: Pod, nodes: NodeTable) -> Allocation:
        """Return what is given: the claims themselves say to which volumes they are bound."""
        return given


class _Match:
    """What a claim that waits would get on each row: an existing volume, or a new one."""

    def __init__(self, claim: VolumeClaim, table: ClassVolumes | None, numbers: Numbers, own: str) -> None:
        self.claim, self.numbers = claim, numbers
        self._table, self._own = table, own

    def of_table(self, table: ClassVolumes) -> bool:
        """Return whether the numbers are those of this table."""
        return self._table is table

    @property
    def found(self) -> Mask:
        """The rows on which there is a volume."""
        mask: Mask = self.numbers != NONE
        return mask

    def volume(self, row: int) -> str:
        """Return the volume on a row; empty where a new one is to be created."""
        number = int(self.numbers[row])
        if number == NONE:
            return ""
        return self._own or (self._table.names[number] if self._table is not None else "")


class BindingState:
    """The rows that refuse a class of pods, by reason, and what each claim would get."""

    def __init__(self, volumes: PodVolumes, nodes: NodeTable, made_from: Versions) -> None:
        self.made_from = made_from
        self._nodes, self._storage = nodes, nodes.storage
        every = np.zeros(nodes.width, dtype=np.bool_)
        self._refused = dict.fromkeys((NODE_CONFLICT, NO_VOLUME, NO_SPACE, VOLUME_GONE), every)
        self._matches: list[_Match] = []
        claims = [claim for key in volumes.keys if (claim := self._storage.claims.get(key)) is not None]
        self._check_bound([claim for claim in claims if claim.bound])
        waiting = [claim for claim in claims if not claim.bound and self._storage.waits_for_consumer(claim)]
        if waiting:
            self._find(waiting)
        self._passing = ~np.logical_or.reduce(list(self._refused.values()))

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows on which every volume can be used."""
        mask: Mask = at.pick(self._passing)
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return the same mask: no pod that leaves changes a volume."""
        return self.filter(at)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count each row for every reason that it has, as kube-scheduler does."""
        return +Counter({reason: int(np.count_nonzero(mask[at.rows])) for reason, mask in self._refused.items()})

    def choices(self, row: int) -> tuple[VolumeChoice, ...]:
        """Return what is chosen for each claim that waits if the pod is placed on this row."""
        node = self._nodes.names[row]
        found = ((match.claim, match.volume(row)) for match in self._matches)
        return tuple(VolumeChoice(claim.key, claim.uid, volume, "" if volume else node) for claim, volume in found)

    def _check_bound(self, claims: list[VolumeClaim]) -> None:
        """Refuse rows where a bound volume cannot be used; the first claim that a row refuses decides."""
        open_ = np.ones(self._nodes.width, dtype=np.bool_)
        for claim in claims:
            volume = self._storage.volumes.get(claim.volume)
            if volume is None:
                self._refuse(VOLUME_GONE, open_)
                return
            usable = self._usable(volume)
            self._refuse(NODE_CONFLICT, open_ & ~usable)
            open_ = open_ & usable

    def _find(self, claims: list[VolumeClaim]) -> None:
        """Find volumes for claims that wait; a claim for which a node is selected gets a new one there."""
        selected = {claim.key: self._selected(claim) for claim in claims}
        elsewhere = np.zeros(self._nodes.width, dtype=np.bool_)
        for node in filter(None, selected.values()):
            mask = np.ones(self._nodes.width, dtype=np.bool_)
            if node in self._nodes.rows:
                mask[self._nodes.rows[node]] = False
            elsewhere |= mask
        self._refuse(NO_VOLUME, elsewhere)
        nothing = np.full(self._nodes.width, NONE, dtype=np.int64)
        self._matches = [_Match(claim, None, nothing, "") for claim in claims if selected[claim.key]]
        by_size = sorted(
            (claim for claim in claims if not selected[claim.key]), key=lambda measured: measured.request_bytes or 0
        )
        for claim in by_size:
            self._matches.append(self._match(claim))
        self._provision(elsewhere)

    def _selected(self, claim: VolumeClaim) -> str:
        """Return the node for which a volume of the claim is to be created; empty where none is selected."""
        chosen = self._storage.chosen.of(claim)
        return chosen.node if chosen is not None and chosen.node else claim.selected_node

    def _match(self, claim: VolumeClaim) -> _Match:
        """Return the smallest volume for a claim on each row, beside those of the claims before it."""
        own = self._own_volume(claim)
        if own is not None:
            numbers = np.where(self._usable(own), 0, NONE)
            return _Match(claim, None, numbers, own.name)
        table, changed = self._storage.table(claim.storage_class)
        rows = self._storage.topology.of_class(claim.storage_class, table, self._nodes, changed=changed)
        fits = table.fitting(claim, (name for name, _ in self._storage.chosen.taken()))
        before = [match.numbers for match in self._matches if match.of_table(table)]
        return _Match(claim, table, table.smallest(fits, rows, before), "")

    def _own_volume(self, claim: VolumeClaim) -> Volume | None:
        """Return the volume that belongs to an unbound claim already, or was chosen for it."""
        chosen = self._storage.chosen.of(claim)
        if chosen is not None and chosen.volume in self._storage.volumes:
            return self._storage.volumes[chosen.volume]
        return self._storage.own_volume(claim)

    def _provision(self, elsewhere: Mask) -> None:
        """Refuse rows where a claim without a volume gets no new one; the first such claim of a row decides."""
        open_ = ~elsewhere
        for match in self._matches:
            missing = open_ & ~match.found
            if not missing.any():
                continue
            of = self._storage.classes[match.claim.storage_class]
            created = self._topology(of) if of.provisions else np.zeros(self._nodes.width, dtype=np.bool_)
            self._refuse(NO_VOLUME, missing & ~created)
            room = self._room(match.claim, of)
            self._refuse(NO_SPACE, missing & created & ~room)
            open_ = open_ & ~(missing & ~(created & room))

    def _topology(self, of: StorageClass) -> Mask:
        """Return a mask of the rows for which volumes of a class can be created."""
        mask = np.full(self._nodes.width, not of.topologies, dtype=np.bool_)
        for term in of.topologies:
            mask |= term_mask(term, self._nodes.labels, self._nodes.rows)
        return mask

    def _room(self, claim: VolumeClaim, of: StorageClass) -> Mask:
        """Return a mask of the rows that have access to enough storage, where the driver tells how much there is."""
        driver = self._storage.drivers.get(of.provisioner)
        if claim.request_bytes is None or driver is None or not driver.tracks_capacity:
            return np.ones(self._nodes.width, dtype=np.bool_)
        mask = np.zeros(self._nodes.width, dtype=np.bool_)
        for capacity in self._storage.capacities.get(of.name, {}).values():
            if (
                capacity.topology is not None
                and capacity.limit_bytes is not None
                and capacity.limit_bytes >= claim.request_bytes
            ):
                mask |= self._nodes.labels.all_of(capacity.topology.requirements)
        return mask

    def _usable(self, volume: Volume) -> Mask:
        return self._storage.topology.mask(volume.affinity, self._nodes)

    def _refuse(self, reason: str, mask: Mask) -> None:
        self._refused[reason] = self._refused[reason] | mask
