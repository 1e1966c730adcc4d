"""The reasons of the Events and conditions that we write: one word each, for programs and alerts.

Law: what is not named here is not written; docs/events.md explains every one, and a test compares.

Source: Kubernetes events.k8s.io/v1 and conditions; those that kube-scheduler has too are its words.
"""

from enum import StrEnum


class EventReason(StrEnum):
    """Why an Event was written."""

    SCHEDULED = "Scheduled"
    PREEMPTED = "Preempted"
    FAILED_SCHEDULING = "FailedScheduling"
    UNKNOWN_POOL = "UnknownPool"
    UNSUPPORTED_CONSTRAINT = "UnsupportedConstraint"
    INVALID_NODE = "InvalidNode"
    INVALID_SPEC = "InvalidSpec"
    NODES_CLAIMED_TWICE = "NodesClaimedTwice"
    UNREADABLE = "Unreadable"

    @property
    def type(self) -> str:
        """Return Normal for what is as it should be, else Warning."""
        return "Normal" if self in (EventReason.SCHEDULED, EventReason.PREEMPTED) else "Warning"


class ConditionReason(StrEnum):
    """Why a condition of a Pool or a pod is as it is."""

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
    PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
