"""The objects of storage of the cluster, the pods of this scheduler that use them, and what pods on rows use.

Invariants:
- `use` and `drop` come in pairs, so that a change of an object finds its pods without a search.
- `version` grows with every change that may change where a pod with volumes may run.
- Several pods may have chosen for one claim, and then the same: the choice holds while one of them is placed.
- A choice counts while its claim is the same object and is not bound.
- `stamp` changes with every choice, in trials too.
- The choices of a row are known, so that they can be counted again.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from aischeduler.model.allocation import Allocation
from aischeduler.model.pod import PodSpec
from aischeduler.model.storage_objects import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from aischeduler.model.volumes import DriverVolume, Volume, VolumeChoice, VolumeClaim, VolumeClaimKey
from aischeduler.state.class_volumes import ClassVolumes, suits
from aischeduler.state.groups import Groups, Tallies
from aischeduler.state.kept import Stamp
from aischeduler.state.pod_records import AssignedPod, PodRecord
from aischeduler.state.running_pods import RunningPods, Slots
from aischeduler.state.volume_limits import VolumeLimits, VolumeUse
from aischeduler.state.volume_topology import VolumeTopology


class ChosenVolumes:
    """The choices by claim, each with the number of placed pods that have it."""

    def __init__(self, claims: Mapping[VolumeClaimKey, VolumeClaim]) -> None:
        self.by_claim: Tallies[VolumeClaimKey, VolumeChoice] = Tallies()
        self.stamp = Stamp()
        self._claims = claims
        self._on: Tallies[int, VolumeChoice] = Tallies()
        self._by_volume: Tallies[str, VolumeChoice] = Tallies()

    def put(self, choice: VolumeChoice, row: int) -> None:
        """Count a choice of a pod that is placed on this row."""
        self.stamp.change()
        self._on.add(row, choice)
        self.by_claim.add(choice.claim, choice)
        if choice.volume:
            self._by_volume.add(choice.volume, choice)

    def drop(self, choice: VolumeChoice, row: int) -> None:
        """Undo `put`."""
        self.stamp.change()
        self._on.subtract(row, choice)
        self.by_claim.subtract(choice.claim, choice)
        if choice.volume:
            self._by_volume.subtract(choice.volume, choice)

    def of(self, claim: VolumeClaim) -> VolumeChoice | None:
        """Return what was chosen for a claim; None where nothing that counts was."""
        return next((choice for choice in self.by_claim.get(claim.key, ()) if self._counts(choice)), None)

    def taken(self) -> Iterator[tuple[str, VolumeClaimKey]]:
        """Yield the volumes that were chosen, each with its claim."""
        for volume, choices in self._by_volume.items():
            yield from ((volume, choice.claim) for choice in choices if self._counts(choice))

    def all(self) -> Counter[VolumeChoice]:
        """Return every choice, each with the number of pods that have it."""
        return Counter({choice: pods for choices in self.by_claim.values() for choice, pods in choices.items()})

    def _counts(self, choice: VolumeChoice) -> bool:
        claim = self._claims.get(choice.claim)
        return claim is not None and claim.uid == choice.claim_uid and not claim.bound


Fits = Callable[[VolumeClaim], bool]

TABLES_MAX: Final = 256
"""The most classes whose free volumes are kept; beyond that all are dropped and read again."""
NODES_NOTED_MAX: Final = 4096
"""The most names of changed nodes; with more, every node may have changed."""


class Storage:
    """Claims, volumes, classes and more. A method that changes one returns the pods that this may help or hinder.

    `nodes` has the names of nodes whose limits or attachments changed, until they are read; where there were too many,
    `every_node` is set.
    """

    def __init__(self) -> None:
        self.claims: dict[VolumeClaimKey, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.drivers: dict[str, CsiDriver] = {}
        self.capacities: Groups[str, tuple[str, str], StorageCapacity] = Groups()
        """Class -> namespace and name -> the capacity."""
        self.attached: Groups[str, str, VolumeAttachment] = Groups()
        """Node -> name -> the attachment."""
        self.by_class: Groups[str, str, Volume] = Groups()
        """Class -> name -> the volume."""
        self._by_ref: Groups[VolumeClaimKey, str, None] = Groups()
        """Claim -> the volumes that belong to a claim of this name."""
        self.used, self.chosen = VolumeUse(), ChosenVolumes(self.claims)
        self.limits, self.topology = VolumeLimits(), VolumeTopology()
        self.version = 0
        self.nodes: dict[str, None] = {}
        self.every_node = False
        self.tables: dict[str, ClassVolumes] = {}
        """Class -> its free volumes, once a pod asked for them."""
        self._attachments: dict[str, VolumeAttachment] = {}
        self._attachments_of: Groups[str, str, VolumeAttachment] = Groups()
        """Volume -> name -> the attachment."""
        self._capacity_keys: dict[tuple[str, str], StorageCapacity] = {}
        self._users: Groups[VolumeClaimKey, str, PodRecord] = Groups()
        self._claims_of: Groups[str, VolumeClaimKey, None] = Groups()
        """Volume -> the claims that name it."""
        self._unbound: Groups[str, VolumeClaimKey, None] = Groups()
        """Class -> the claims of it that pods use and that are not bound."""

    def users(self) -> dict[VolumeClaimKey, tuple[str, ...]]:
        """Return the uids of the pods that use each claim, sorted."""
        return {key: tuple(sorted(users)) for key, users in self._users.items()}

    def objects(self) -> tuple[VolumeClaim | Volume | StorageObject, ...]:
        """Return every object that was seen."""
        kinds = (self.claims, self.volumes, self.classes, self.csi_nodes, self.drivers, self._capacity_keys)
        return tuple(stored for kept in (*kinds, self._attachments) for stored in kept.values())

    def use(self, record: PodRecord) -> None:
        """Add a pod to the users of its claims."""
        for key in _keys(record):
            self._users.put(key, record.pod.uid, record)
            self._note_unbound(key)

    def drop(self, record: PodRecord) -> None:
        """Remove a pod from the users of its claims."""
        for key in _keys(record):
            self._users.drop(key, record.pod.uid)
            self._note_unbound(key)

    def take(self, assigned: AssignedPod, *, tentative: bool = False) -> None:
        """Count what a pod on a row uses, and what was chosen for it; in a trial, `version` stays."""
        if assigned.allocation.volumes is not None:
            self.used.put(assigned.allocation.volumes, assigned.row)
            self.version += not tentative
        for choice in assigned.allocation.choices:
            self.chosen.put(choice, assigned.row)

    def free(self, assigned: AssignedPod, *, tentative: bool = False) -> None:
        """Undo `take`."""
        if assigned.allocation.volumes is not None:
            self.used.drop(assigned.allocation.volumes, assigned.row)
            self.version += not tentative
        for choice in assigned.allocation.choices:
            self.chosen.drop(choice, assigned.row)

    def stamp(self) -> int:
        """Return the version of the choices of volumes."""
        return self.chosen.stamp.version

    def restore(self, stamp: int) -> None:
        """Set the version of the choices at the end of a trial."""
        self.chosen.stamp.version = stamp

    def clearing(self, asker: PodSpec, running: RunningPods) -> "_ClearedVolumes | None":
        """Begin a search for victims for a pod with volumes."""
        return _ClearedVolumes(self.used, running) if asker.volumes is not None else None

    def see_claim(self, claim: VolumeClaim) -> tuple[PodRecord, ...]:
        """Store a claim as it is now."""
        before = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        if before == claim:
            return ()
        self._note_claim(before, claim)
        return self._using(claim.key)

    def forget_claim(self, key: VolumeClaimKey) -> tuple[PodRecord, ...]:
        """Remove a claim."""
        before = self.claims.pop(key, None)
        if before is None:
            return ()
        self._note_claim(before, None)
        return self._using(key)

    def see_volume(self, volume: Volume) -> tuple[PodRecord, ...]:
        """Store a volume as it is now."""
        before = self.volumes.get(volume.name)
        if before is not None and before != volume:
            self._take_out(before)
        self.volumes[volume.name] = volume
        self.by_class.put(volume.storage_class, volume.name, volume)
        if volume.claim is not None:
            self._by_ref.put((volume.claim.namespace, volume.claim.name), volume.name, None)
        if before == volume:
            return ()
        for name in {volume.storage_class, before.storage_class if before is not None else volume.storage_class}:
            self._note_in_table(name, volume.name)
        self._touch_users(volume.name)
        may_take = volume.claim.is_to if volume.claim is not None else lambda _: volume.available
        return (*self._using_volume(volume.name), *self._waiting_for(volume.storage_class, may_take))

    def forget_volume(self, name: str) -> tuple[PodRecord, ...]:
        """Remove a volume."""
        before = self.volumes.pop(name, None)
        if before is None:
            return ()
        self._take_out(before)
        self._note_in_table(before.storage_class, name)
        self._touch_users(name)
        return tuple(self._using_volume(name))

    def see(self, stored: StorageObject) -> tuple[PodRecord, ...]:
        """Store an object of storage.k8s.io as it is now."""
        match stored:
            case StorageClass():
                changed, self.classes[stored.name] = self.classes.get(stored.name) != stored, stored
                return self._changed_class(stored.name) if changed else ()
            case CsiNode():
                self._change_csi_node(stored.name, stored)
                return ()
            case CsiDriver():
                changed, self.drivers[stored.name] = self.drivers.get(stored.name) != stored, stored
                return self._changed_driver(stored.name) if changed else ()
            case StorageCapacity():
                return self._see_capacity(stored)
            case VolumeAttachment():
                before = self._attachments.get(stored.name)
                if before != stored:
                    self._detach(before)
                    self._attachments[stored.name] = stored
                    self.attached.put(stored.node, stored.name, stored)
                    self._attachments_of.put(stored.volume, stored.name, stored)
                    self._changed_node(stored.node)
                return ()

    def forget(self, kind: str, namespace: str, name: str) -> tuple[PodRecord, ...]:
        """Remove an object of storage.k8s.io; `kind` is the name of its type."""
        match kind:
            case StorageClass.__name__:
                return self._changed_class(name) if self.classes.pop(name, None) is not None else ()
            case CsiNode.__name__:
                self._change_csi_node(name, None)
            case CsiDriver.__name__:
                return self._changed_driver(name) if self.drivers.pop(name, None) is not None else ()
            case StorageCapacity.__name__:
                before = self._capacity_keys.pop((namespace, name), None)
                if before is not None:
                    self.capacities.drop(before.storage_class, (namespace, name))
                    self.version += 1
            case VolumeAttachment.__name__:
                self._detach(self._attachments.pop(name, None))
        return ()

    def table(self, name: str) -> tuple[ClassVolumes, bool]:
        """Return the free volumes of a class, and whether their groups changed since the last call."""
        table = self.tables.get(name)
        if table is None:
            if len(self.tables) >= TABLES_MAX:
                self.tables.clear()
                self.topology.forget_classes()
            table = self.tables[name] = ClassVolumes()
            table.changed = dict.fromkeys(self.by_class.get(name, {}))
        return table, table.catch_up(self.by_class.get(name, {}))

    def node_of(self, kind: str, name: str) -> str:
        """Return the node of a CSINode or an attachment; empty for another object, and for an unknown one."""
        attachment = self._attachments.get(name) if kind == VolumeAttachment.__name__ else None
        return name if kind == CsiNode.__name__ else attachment.node if attachment is not None else ""

    def waits_for_consumer(self, claim: VolumeClaim) -> bool:
        """Return whether an unbound claim is bound for the node of its pod."""
        of = self.classes.get(claim.storage_class) if claim.storage_class else None
        return of is not None and of.waits and not claim.volume

    def own_volume(self, claim: VolumeClaim) -> Volume | None:
        """Return a volume of its class that belongs to an unbound claim; None where none does."""
        for name in sorted(self._by_ref.get(claim.key, ())):
            volume = self.volumes[name]
            of_class = (
                volume.storage_class == claim.storage_class and volume.claim is not None and volume.claim.is_to(claim)
            )
            if of_class and suits(volume, claim):
                return volume
        return None

    def driver_volume(self, key: VolumeClaimKey) -> DriverVolume | None:
        """Return the volume of a claim as its driver knows it, or one to come; None where none counts."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return volume.driver
        of = self.classes.get(claim.storage_class) if claim.storage_class else None
        if of is None or not of.provisions:
            return None
        return DriverVolume(of.provisioner, f"\0{claim.namespace}/{claim.name}")

    def released(self, allocation: Allocation) -> tuple[PodRecord, ...]:
        """Return the pods that may be helped because a pod with this allocation left its row."""
        found: dict[str, PodRecord] = {}
        for key in allocation.volumes.keys if allocation.volumes is not None else ():
            found.update(self._users.get(key, {}))
        for choice in allocation.choices:
            volume = self.volumes.get(choice.volume)
            if volume is not None:
                waiting = self._waiting_for(volume.storage_class, lambda _: True)
                found.update((record.pod.uid, record) for record in waiting)
        return tuple(found.values())

    def _see_capacity(self, capacity: StorageCapacity) -> tuple[PodRecord, ...]:
        key = (capacity.namespace, capacity.name)
        before, self._capacity_keys[key] = self._capacity_keys.get(key), capacity
        if before == capacity:
            return ()
        if before is not None:
            self.capacities.drop(before.storage_class, key)
        self.capacities.put(capacity.storage_class, key, capacity)
        self.version += 1
        grew = before is None or (capacity.limit_bytes or 0) > (before.limit_bytes or 0)
        return tuple(self._waiting_for(capacity.storage_class, lambda _: True)) if grew else ()

    def _changed_class(self, name: str) -> tuple[PodRecord, ...]:
        self.version += 1
        self.used.stale.update(dict.fromkeys(self.used.on))
        return tuple(self._waiting_for(name, lambda _: True))

    def _changed_driver(self, name: str) -> tuple[PodRecord, ...]:
        self.version += 1
        classes = [storage_class.name for storage_class in self.classes.values() if storage_class.provisioner == name]
        return tuple(record for name in classes for record in self._waiting_for(name, lambda _: True))

    def _change_csi_node(self, name: str, now: CsiNode | None) -> None:
        before = self.csi_nodes.pop(name, None)
        if now is not None:
            self.csi_nodes[name] = now
        if before != now:
            self._changed_node(name)

    def _changed_node(self, name: str) -> None:
        self.version += 1
        self._note_node(name)

    def _note_node(self, name: str) -> None:
        """Note that limits or attachments of a node changed; of too many nodes, that those of any node may have."""
        if len(self.nodes) >= NODES_NOTED_MAX:
            self.nodes, self.every_node = {}, True
        self.nodes[name] = None

    def _detach(self, attachment: VolumeAttachment | None) -> None:
        if attachment is not None:
            self.attached.drop(attachment.node, attachment.name)
            self._attachments_of.drop(attachment.volume, attachment.name)
            self._changed_node(attachment.node)

    def _note_claim(self, before: VolumeClaim | None, now: VolumeClaim | None) -> None:
        if before is not None:
            self._claims_of.drop(before.volume, before.key)
            self._unbound.drop(before.storage_class, before.key)
        if now is not None and now.volume:
            self._claims_of.put(now.volume, now.key, None)
        for attachment in (before, now):
            if attachment is not None:
                self.used.stale.update(dict.fromkeys(self.used.rows.get(attachment.key, ())))
                self._note_unbound(attachment.key)
        self.version += 1

    def _note_unbound(self, key: VolumeClaimKey) -> None:
        claim = self.claims.get(key)
        if claim is not None and not claim.bound and key in self._users:
            self._unbound.put(claim.storage_class, key, None)
        elif claim is not None:
            self._unbound.drop(claim.storage_class, key)

    def _take_out(self, volume: Volume) -> None:
        self.by_class.drop(volume.storage_class, volume.name)
        if volume.claim is not None:
            self._by_ref.drop((volume.claim.namespace, volume.claim.name), volume.name)

    def _note_in_table(self, storage_class: str, volume: str) -> None:
        if storage_class in self.tables:
            self.tables[storage_class].changed[volume] = None

    def _touch_users(self, volume: str) -> None:
        self.version += 1
        for key in self._claims_of.get(volume, {}):
            self.used.stale.update(dict.fromkeys(self.used.rows.get(key, ())))
        for attachment in self._attachments_of.get(volume, {}).values():
            self._note_node(attachment.node)

    def _waiting_for(self, storage_class: str, fits: Fits) -> Iterator[PodRecord]:
        """Yield the pods with an unbound claim of this class that fits."""
        for key in self._unbound.get(storage_class, {}):
            if fits(self.claims[key]):
                yield from self._using(key)

    def _using(self, key: VolumeClaimKey) -> tuple[PodRecord, ...]:
        return tuple(self._users.get(key, {}).values())

    def _using_volume(self, name: str) -> Iterator[PodRecord]:
        for key in self._claims_of.get(name, {}):
            yield from self._using(key)


def _keys(record: PodRecord) -> Iterator[VolumeClaimKey]:
    return ((record.pod.namespace, use.name) for use in record.pod.volume_claims)


class _ClearedVolumes:
    """The use of volumes while a search for victims is open."""

    def __init__(self, used: VolumeUse, running: RunningPods) -> None:
        self._used, self._running = used, running
        self._specs = running.specs.with_volumes()
        used.apart = {}

    def count(self, slots: Slots, sign: int) -> None:
        if not len(self._specs):
            return
        pods = self._running.pods_in(slots)
        pods = pods.compress(np.isin(pods["spec"], self._specs))
        for row, number in zip(pods["row"].tolist(), pods["spec"].tolist(), strict=True):
            volumes = self._running.specs.spec(number).volumes
            assert volumes is not None, "the spec has volumes"
            self._used.set_apart(volumes, row, sign)

    def end(self) -> None:
        self._used.end_apart()
