"""Every name that we share with the outside: API group, annotations, resources."""

from typing import Final

GROUP: Final = "resource.aibee.cn"
VERSION: Final = "v1alpha1"
SCHEDULER_NAME: Final = "ai-scheduler"

POOL_KEY: Final = "resource.aibee.cn/pool"
"""Annotation (or label) by which a pod names its home pool."""
POOL_NAME_LENGTH_MAX: Final = 253
"""Longest possible object name; a longer annotation cannot name a pool."""
DEFAULT_POOL: Final = "default"

MARK_PREFIX: Final = "scheduling.resource.aibee.cn/"
"""Prefix of what we write on a bound pod. Marks inform; no decision trusts them."""
MARK_HOME_POOL: Final = MARK_PREFIX + "home-pool"
MARK_POOL: Final = MARK_PREFIX + "pool"
MARK_BORROWED: Final = MARK_PREFIX + "borrowed"
"""Is "true" on a loan, and absent otherwise."""
MARK_DECISION: Final = MARK_PREFIX + "decision"
MARK_EPOCH: Final = MARK_PREFIX + "epoch"
"""The term of the leader that bound the pod; absent where schedulers are not elected."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
GPU_DEFAULT: Final = "nvidia.com/gpu"
