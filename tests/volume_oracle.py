"""The volume rules of kube-scheduler for one node at a time, slowly, to compare the vectors of the plugins with.

It reads objects only, and shares no code with the plugins.
"""

from collections import Counter
from dataclasses import dataclass, field

from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import NodeSelectorTerm
from aischeduler.model.storage_objects import CsiDriver, CsiNode, StorageCapacity, StorageClass, VolumeAttachment
from aischeduler.model.volumes import Volume, VolumeChoice, VolumeClaim, VolumeClaimKey

ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


@dataclass
class StorageWorld:
    """A cluster with volumes; `pods` are those on nodes, `choices` those of placed pods whose claims are unbound."""

    nodes: dict[str, Node] = field(default_factory=dict)
    claims: dict[VolumeClaimKey, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    csi_nodes: dict[str, CsiNode] = field(default_factory=dict)
    drivers: dict[str, CsiDriver] = field(default_factory=dict)
    capacities: list[StorageCapacity] = field(default_factory=list)
    attachments: list[VolumeAttachment] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    choices: list[VolumeChoice] = field(default_factory=list)

    def refusal(self, pod: Pod, node: Node) -> list[str]:
        """Return the reasons of the first rule that refuses the node; none where all pass."""
        for rule in (self._restrictions, self._limits, self._binding, self._zone):
            found = rule(pod, node)
            if found:
                return found
        return []

    def volumes_for(self, pod: Pod, node: Node) -> dict[str, str]:
        """Return the volume of each unbound claim if the pod is placed on the node; empty for a new one."""
        waiting = [claim for claim in self._claims_of(pod) if not claim.bound]
        return {claim.name: self._taken(waiting, node).get(claim.name, "") for claim in waiting}

    def _claims_of(self, pod: Pod) -> list[VolumeClaim]:
        keys = dict.fromkeys((pod.namespace, use.name) for use in pod.volume_claims)
        return [self.claims[key] for key in keys if key in self.claims]

    def _on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.node_name == node]

    def _restrictions(self, pod: Pod, node: Node) -> list[str]:
        for claim in self._claims_of(pod):
            if "ReadWriteOncePod" in claim.access_modes:
                users = [one for one in self.pods if claim in self._claims_of(one)]
                if users:
                    text = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
                    return [f"{text} already in-use by another pod"]
        return []

    def _limits(self, pod: Pod, node: Node) -> list[str]:
        csi_node = self.csi_nodes.get(node.name)
        new = self._attachable(pod)
        if csi_node is None or not new:
            return []
        by_pods = set().union(*(self._attachable(other) for other in self._on(node.name)))
        attached = {
            (one.driver, driver.handle)
            for one in self.attachments
            if one.node == node.name
            and one.volume in self.volumes
            and (driver := self.volumes[one.volume].driver) is not None
        }
        count = Counter(driver for driver, _ in by_pods | attached)
        for name, number in Counter(driver for driver, _ in new - by_pods).items():
            if name in csi_node.limits and count[name] + number > csi_node.limits[name]:
                return ["node(s) exceed max volume count"]
        return []

    def _attachable(self, pod: Pod) -> set[tuple[str, str]]:
        found = set[tuple[str, str]]()
        for claim in self._claims_of(pod):
            volume, of = self.volumes.get(claim.volume), self.classes.get(claim.storage_class)
            if volume is not None:
                if volume.driver is not None:
                    found.add((volume.driver.driver, volume.driver.handle))
            elif of is not None:
                found.add((of.provisioner, f"to come: {claim.key}"))
        return found

    def _binding(self, pod: Pod, node: Node) -> list[str]:
        reasons = []
        for claim in self._claims_of(pod):
            if claim.bound and not _holds(self.volumes[claim.volume].affinity, node):
                reasons.append("node(s) didn't match PersistentVolume's node affinity")
                break
        waiting = [claim for claim in self._claims_of(pod) if not claim.bound]
        selected = {claim.key: self._selected(claim) for claim in waiting}
        if any(one not in ("", node.name) for one in selected.values()):
            return [*reasons, "node(s) didn't find available persistent volumes to bind"]
        taken = self._taken(waiting, node)
        left = [claim for claim in waiting if selected[claim.key]]
        left += [claim for claim in _by_size(waiting) if not selected[claim.key] and claim.name not in taken]
        for claim in left:
            of = self.classes[claim.storage_class]
            near = not of.topologies or _holds(of.topologies, node)
            if of.provisioner == "kubernetes.io/no-provisioner" or not near:
                return [*reasons, "node(s) didn't find available persistent volumes to bind"]
            if not self._has_room(claim, of, node):
                return [*reasons, "node(s) did not have enough free storage"]
        return reasons

    def _selected(self, claim: VolumeClaim) -> str:
        chosen = [one.node for one in self.choices if one.claim == claim.key and one.node]
        return chosen[0] if chosen else claim.selected_node

    def _taken(self, waiting: list[VolumeClaim], node: Node) -> dict[str, str]:
        """Return the volume of each claim that gets an existing one, the smallest that fits and is not taken."""
        found: dict[str, str] = {}
        for claim in _by_size(waiting):
            if self._selected(claim):
                continue
            chosen = {one.volume: one.claim for one in self.choices if one.volume}
            best: Volume | None = None
            for volume in sorted(self.volumes.values(), key=lambda one: (one.capacity_bytes, one.name)):
                owner = (volume.claim.namespace, volume.claim.name) if volume.claim is not None else None
                owner = chosen.get(volume.name, owner)
                sized = volume.capacity_bytes >= (claim.request_bytes or 0) and volume.block == claim.block
                if volume.storage_class != claim.storage_class or volume.terminating or not sized:
                    continue
                if volume.attributes_class != claim.attributes_class or volume.name in found.values():
                    continue
                if owner == claim.key:
                    best = volume if _holds(volume.affinity, node) else None
                    break
                modes = set(claim.access_modes) <= set(volume.access_modes)
                selected = claim.selector is None or claim.selector.matches(volume.labels)
                usable = owner is None and volume.available and modes and selected and _holds(volume.affinity, node)
                best = best or (volume if usable else None)
            if best is not None:
                found[claim.name] = best.name
        return found

    def _has_room(self, claim: VolumeClaim, of: StorageClass, node: Node) -> bool:
        driver = self.drivers.get(of.provisioner)
        if driver is None or not driver.tracks_capacity or claim.request_bytes is None:
            return True
        return any(
            one.storage_class == of.name
            and one.limit_bytes is not None
            and one.limit_bytes >= claim.request_bytes
            and one.topology is not None
            and one.topology.matches(node.labels)
            for one in self.capacities
        )

    def _zone(self, pod: Pod, node: Node) -> list[str]:
        if not any(label in node.labels for label in ZONE_LABELS):
            return []
        for claim in self._claims_of(pod):
            volume = self.volumes.get(claim.volume)
            for key, newer in ZONE_LABELS.items():
                if volume is not None and key in volume.labels:
                    value = node.labels.get(key, node.labels.get(newer))
                    if value is None or value not in volume.labels[key].split("__"):
                        return ["node(s) had no available volume zone"]
        return []


def _by_size(claims: list[VolumeClaim]) -> list[VolumeClaim]:
    return sorted(claims, key=lambda one: one.request_bytes or 0)


def _holds(terms: tuple[NodeSelectorTerm, ...] | None, node: Node) -> bool:
    return terms is None or any(term.matches(node.name, node.labels) for term in terms)
