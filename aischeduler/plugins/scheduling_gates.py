"""SchedulingGates: a pod is not scheduled before all its scheduling gates are removed.

Source: kube-scheduler's SchedulingGates.
"""

from aischeduler.model.pod import Pod


class SchedulingGates:
    """Hold pods that have scheduling gates."""

    name = "SchedulingGates"

    def holds(self, pod: Pod) -> str:
        """Return a text with the gates of the pod; empty where it has none."""
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else ""
