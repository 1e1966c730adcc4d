"""The names that other programs share: API group, annotations, resources."""

import re
from typing import Final

GROUP: Final = "resource.aibee.cn"
VERSION: Final = "v1alpha1"
SCHEDULER_NAME: Final = "ai-scheduler"

POOL_KEY: Final = "resource.aibee.cn/pool"
"""The annotation (or label) that names a pod's home pool."""
POOL_NAME_LENGTH_MAX: Final = 253
"""The longest name of an object; a longer annotation names no Pool."""
_POOL_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
DEFAULT_POOL: Final = "default"
CLUSTER: Final = ""
"""The name of the work of no pool, in place of the name of a pool; no Pool can have it."""

GPU_TYPE_KEY: Final = "resource.aibee.cn/gpu-type"
"""The annotation with the card types on which a pod may run, the preferred first: A100|V100."""
GPU_TYPE_POLICY_KEY: Final = "resource.aibee.cn/gpu-type-policy"
"""The annotation that says whether a pod waits for these types: Required or Preferred."""
MACHINE_GROUP_KEY: Final = "resource.aibee.cn/machine-group"
"""The label of a node, and the annotation of a pod, with the name of a machine group."""
GPU_TYPE_LABELS: Final = ("nvidia.com/gpu.product", "nvidia.com/mig-*.product", "node.koordinator.sh/gpu-model")
"""The labels of nodes that have the type of their cards, unless configured otherwise."""

MARK_PREFIX: Final = "scheduling.resource.aibee.cn/"
"""The prefix of the annotations on a bound pod. They inform people; no decision reads them."""
MARK_HOME_POOL: Final = MARK_PREFIX + "home-pool"
MARK_POOL: Final = MARK_PREFIX + "pool"
MARK_BORROWED: Final = MARK_PREFIX + "borrowed"
"""Is "true" on a pod on loan, absent on others."""
MARK_DECISION: Final = MARK_PREFIX + "decision"
MARK_EPOCH: Final = MARK_PREFIX + "epoch"
"""The term of the leader that bound the pod; absent without leader election."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
HUGE_PAGES: Final = "hugepages-"
"""The prefix of the names of huge pages."""
GPU_DEFAULT: Final = "nvidia.com/gpu"
GPU_SHARE: Final = "nvidia.com/gpu/100"
"""The name of parts of GPUs in sums, in hundredths: beside whole ones, which count under their own names."""


def can_be_pool_name(name: str) -> bool:
    """Say whether a Pool can have this name, which the API server checks: an RFC 1123 subdomain."""
    return len(name) <= POOL_NAME_LENGTH_MAX and _POOL_NAME.fullmatch(name) is not None
