"""The reasons of the Events and conditions that the scheduler writes: one word each, for programs and alerts.

Invariant: only these reasons are written; tools/reference/events.yaml explains each, and a test compares.

Source: Kubernetes events.k8s.io/v1 and conditions; reasons that kube-scheduler has too keep its words.
"""

from enum import StrEnum
from typing import Final


class EventReason(StrEnum):
    """The reason of an Event."""

    SCHEDULED = "Scheduled"
    PREEMPTED = "Preempted"
    FAILED_SCHEDULING = "FailedScheduling"
    UNKNOWN_POOL = "UnknownPool"
    UNKNOWN_GPU_TYPE = "UnknownGpuType"
    UNKNOWN_MACHINE_GROUP = "UnknownMachineGroup"
    UNSUPPORTED_CONSTRAINT = "UnsupportedConstraint"
    INVALID_NODE = "InvalidNode"
    INVALID_DEVICE = "InvalidDevice"
    DEVICES_EDITED = "DevicesEdited"
    INVALID_SPEC = "InvalidSpec"
    NODES_CLAIMED_TWICE = "NodesClaimedTwice"
    UNREADABLE = "Unreadable"
    GANG_PODS_DIFFER = "GangPodsDiffer"
    SEVERAL_GANGS = "SeveralGangs"
    GANG_NOT_WHOLE = "GangNotWhole"
    INSUFFICIENT_CPU_QUOTA = "InsufficientCPUQuota"
    INSUFFICIENT_MEMORY_QUOTA = "InsufficientMemoryQuota"
    INSUFFICIENT_SCALAR_QUOTA = "InsufficientScalarQuota"
    EMPTY_QUEUE_CAPABILITY = "EmptyQueueCapability"
    GET_TASK_REQUEST_RESOURCE_FAILED = "GetTaskRequestResourceFailed"
    UNKNOWN_QUEUE = "UnknownQueue"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_ACCEPTED = "QueueNotAccepted"
    QUEUE_NAMESPACE_NOT_ALLOWED = "QueueNamespaceNotAllowed"
    IGNORED_QUEUE_FIELDS = "IgnoredQueueFields"
    UNKNOWN_SERVICE_TYPE = "UnknownServiceType"
    PREEMPTABLE_IGNORED = "PreemptableIgnored"
    EVICTION_WOULD_FAIL_JOB = "EvictionWouldFailJob"
    INVALID_ELASTIC = "InvalidElastic"
    NOT_ELASTIC = "NotElastic"
    RESIZED = "Resized"

    @property
    def type(self) -> str:
        """Return the type of the Event: Normal or Warning."""
        return "Normal" if self in _NORMAL else "Warning"


_NORMAL: Final = frozenset((EventReason.SCHEDULED, EventReason.PREEMPTED, EventReason.RESIZED))


class ConditionReason(StrEnum):
    """The reason of a condition of a Pool, a pod or a PodGroup."""

    SCHEDULING = "Scheduling"
    NOT_ACCEPTED = "NotAccepted"
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    NO_CONFLICT = "NoConflict"
    NODES_CLAIMED_TWICE = "NodesClaimedTwice"
    NODES_MATCHED = "NodesMatched"
    NO_NODE_SELECTOR = "NoNodeSelector"
    NO_NODE_MATCHED = "NoNodeMatched"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULED = "Scheduled"
    NOT_ENOUGH_TASKS = "NotEnoughTasks"
    NOT_ENOUGH_RESOURCES = "NotEnoughResources"
    PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
    OPEN = "Open"
    CLOSED = "Closed"
    DRAINING = "Draining"
    PARENT_MISSING = "ParentMissing"
    PARENT_CYCLE = "ParentCycle"
    WITHIN_QUOTA = "WithinQuota"
    OVER_QUOTA = "OverQuota"
