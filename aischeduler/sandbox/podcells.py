"""What `kubectl get pods` says of a pod: ready containers, one word of status, restarts.

Source: `printPod` in `pkg/printers/internalversion`.
"""

from typing import Any

from aischeduler.sandbox.objects import JsonObject, condition_of


def pod_ready(pod: JsonObject, _now: float) -> str:
    """Return ready containers of all, restartable init containers counted too."""
    status = pod.get("status") or {}
    sidecars = [one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    total = len(pod["spec"].get("containers") or ()) + len(sidecars)
    ready = sum(1 for one in status.get("containerStatuses") or () if one.get("ready"))
    inits = status.get("initContainerStatuses") or ()
    ready += sum(1 for one in inits if one["name"] in sidecars and one.get("ready"))
    return f"{ready}/{total}"


def pod_restarts(pod: JsonObject, _now: float) -> str:
    """Return how often containers were restarted."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return str(sum(one.get("restartCount", 0) for one in statuses))


def pod_status(pod: JsonObject, _now: float) -> str:
    """Return the one word that says most about a pod."""
    status = pod.get("status") or {}
    word: str = status.get("reason") or status.get("phase") or "Unknown"
    scheduled = condition_of(status, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        word = "SchedulingGated"
    for container in status.get("containerStatuses") or ():
        reason = _container_word(container.get("state") or {})
        if reason:
            word = reason
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return word


def _container_word(state: dict[str, Any]) -> str:
    waiting, ended = state.get("waiting"), state.get("terminated")
    if waiting and waiting.get("reason"):
        return str(waiting["reason"])
    if not ended:
        return ""
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
