"""What the probes of the differential test ask of a scheduler, and which of it is compared.

Invariants:
- Every feature has a generator, also one that is not compared yet.
- The order is the one in which the features of a pod are written: pod-level resources know all containers.
"""

from enum import StrEnum
from typing import Final


class Feature(StrEnum):
    """A part of the core API that decides where a pod may run, or which node is the best for it."""

    FIT = "fit"
    EXTENDED_RESOURCES = "extended_resources"
    OVERHEAD = "pod_overhead"
    GATES = "gates"
    NODE_AFFINITY = "node_affinity"
    NODE_AFFINITY_PREFERRED = "node_affinity_preferred"
    TAINTS = "taints"
    PORTS = "ports"
    SPREAD_HARD = "spread_hard"
    SPREAD_MIN_DOMAINS = "spread_min_domains"
    SPREAD_POLICIES = "spread_policies"
    SPREAD_MATCH_LABEL_KEYS = "spread_match_label_keys"
    SPREAD_SOFT = "spread_soft"
    SPREAD_SYSTEM_DEFAULT = "spread_system_default"
    AFFINITY_REQUIRED = "affinity_required"
    ANTI_AFFINITY_REQUIRED = "anti_affinity_required"
    AFFINITY_PREFERRED = "affinity_preferred"
    ANTI_AFFINITY_PREFERRED = "anti_affinity_preferred"
    NAMESPACE_SELECTOR = "namespace_selector"
    MATCH_LABEL_KEYS = "match_label_keys"
    EXISTING_ANTI_AFFINITY = "existing_anti_affinity"
    EXISTING_PREFERRED = "existing_preferred"
    IMAGE_LOCALITY = "image_locality"
    RESIZE = "resize"
    TERMINATING = "terminating"
    VOLUMES_BOUND = "volumes_bound"
    VOLUMES_UNUSABLE = "volumes_unusable"
    VOLUMES_LATE = "volumes_late"
    VOLUME_ZONE = "volume_zone"
    READ_WRITE_ONCE_POD = "read_write_once_pod"
    CSI_LIMITS = "csi_limits"
    PREEMPTION = "preemption"
    BUDGETS = "budgets"
    POD_LEVEL_RESOURCES = "pod_level_resources"


EVERY: Final = frozenset(Feature)

OF_STATES: Final = frozenset(
    {
        Feature.SPREAD_SYSTEM_DEFAULT,
        Feature.EXISTING_ANTI_AFFINITY,
        Feature.EXISTING_PREFERRED,
        Feature.RESIZE,
        Feature.TERMINATING,
        Feature.VOLUMES_BOUND,
        Feature.VOLUMES_UNUSABLE,
        Feature.VOLUMES_LATE,
        Feature.VOLUME_ZONE,
        Feature.READ_WRITE_ONCE_POD,
        Feature.CSI_LIMITS,
        Feature.PREEMPTION,
        Feature.BUDGETS,
    }
)
"""Features that need something in the cluster: only the probes of some states can have them."""
