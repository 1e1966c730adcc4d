"""The claims of a state of the differential test on the API server: wait for their controller, and undo what a pod did.

Invariant: the schedulers learn of claims and volumes over other watches than of pods, in no common order. So what a pod
did to them is undone before the next pod, and some time is left.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.objects import Json
from tests.real.peer_states import State

SETTLE_SECONDS: Final = 0.3
WITHIN_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02
UNPROTECTED: Final = {"metadata": {"finalizers": None}}


def volumes_first(objects: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the objects to create first, and the claims: the controller takes a claim without its volume for lost."""
    claims = [one for one in objects if one["kind"] == "PersistentVolumeClaim"]
    return [one for one in objects if one["kind"] != "PersistentVolumeClaim"], claims


def wait_for_claims(plane: ControlPlane, state: State, path: Callable[[Json], str]) -> None:
    """Wait until the controller has said that each claim with a volume is bound, or that it is lost."""
    volumes = {one["metadata"]["name"] for one in state.others if one["kind"] == "PersistentVolume"}
    named = [one for one in state.others if one["kind"] == "PersistentVolumeClaim" and "volumeName" in one["spec"]]
    deadline = time.monotonic() + WITHIN_SECONDS
    for one in named:
        phase = "Bound" if one["spec"]["volumeName"] in volumes else "Lost"
        while (found := plane.api("GET", path(one)).body["status"])["phase"] != phase:
            assert time.monotonic() < deadline, f"{one['metadata']} is not {phase}: {found}"
            time.sleep(POLL_SECONDS)


def undo_late_claims(plane: ControlPlane, state: State, pod: Json, path: Callable[[Json], str]) -> list[Json]:
    """Delete the late claims of a pod, and the volumes that they took; return these objects as they were at first."""
    used = [one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["spec"].get("volumes", ())]
    late = [one for one in state.others if one["spec" if "spec" in one else "metadata"].get("storageClassName")]
    claims = [one for one in late if one["kind"] == "PersistentVolumeClaim" and one["metadata"]["name"] in used]
    if not claims:
        return []
    volumes = [one for one in late if one["kind"] == "PersistentVolume"]
    taken = [one for one in volumes if "claimRef" in plane.api("GET", path(one)).body["spec"]]
    for one in (*claims, *taken):
        plane.api("DELETE", path(one))
        plane.api("PATCH", path(one), UNPROTECTED)
        deadline = time.monotonic() + WITHIN_SECONDS
        while plane.api("GET", path(one)).status != 404:
            assert time.monotonic() < deadline, f"{one['metadata']} is not deleted"
            time.sleep(POLL_SECONDS)
    return [*taken, *claims]
