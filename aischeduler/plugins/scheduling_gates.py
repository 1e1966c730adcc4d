"""SchedulingGates: a pod with scheduling gates is not tried until all are removed.

Source: kube-scheduler's SchedulingGates.
"""

from aischeduler.model.pod import Pod


class SchedulingGates:
    """Hold gated pods."""

    name = "SchedulingGates"

    def holds(self, pod: Pod) -> str:
        """Name the gates that hold the pod."""
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else ""
