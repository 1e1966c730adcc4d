"""The claims of a state of the differential test on the API server: wait for their controller, and undo what a pod did.

Invariant: the schedulers learn of claims and volumes over other watches than of pods, in no common order. So what a pod
did to them is undone before the next pod, and that one comes when both schedulers have seen a later claim and volume.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.peer_states import State
from tests.objects import Json

WITHIN_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02
CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
VOLUMES: Final = "/api/v1/persistentvolumes"
UNPROTECTED: Final = {"metadata": {"finalizers": None}}


def volumes_first(objects: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """Return the objects to create first, and the claims: the controller takes a claim without its volume for lost."""
    claims = [one for one in objects if one["kind"] == CLAIM]
    return [one for one in objects if one["kind"] != CLAIM], claims


def wait_for_claims(plane: ControlPlane, state: State) -> None:
    """Wait until the controller has said of each claim with a volume, and of each volume without one, what it is."""
    volumes = [one for one in state.others if one["kind"] == VOLUME]
    names = {one["metadata"]["name"] for one in volumes}
    named = [one for one in state.others if one["kind"] == CLAIM and "volumeName" in one["spec"]]
    phases = {one["metadata"]["name"]: "Bound" if one["spec"]["volumeName"] in names else "Lost" for one in named}
    free = [one["metadata"]["name"] for one in volumes if one["spec"].get("storageClassName")]
    deadline = time.monotonic() + WITHIN_SECONDS
    for path, awaited in ((CLAIMS, phases), (VOLUMES, dict.fromkeys(free, "Available"))):
        while awaited.items() - (found := _phases(plane, path)).items():
            assert time.monotonic() < deadline, f"not {awaited}: {found}"
            time.sleep(POLL_SECONDS)


def _phases(plane: ControlPlane, path: str) -> dict[str, str]:
    """Return the phase of each object of a collection; no two have the same name."""
    items = plane.api("GET", path).body["items"]
    return {one["metadata"]["name"]: one["status"].get("phase", "") for one in items}


def undo_late_claims(plane: ControlPlane, state: State, pod: Json, path: Callable[[Json], str]) -> list[Json]:
    """Delete the late claims for which the pod took volumes, and these; return these objects as they were at first."""
    used = [one.get("persistentVolumeClaim", {}).get("claimName") for one in pod["spec"].get("volumes", ())]
    late = [one for one in state.others if one["kind"] in (CLAIM, VOLUME) and one["spec"].get("storageClassName")]
    claims = [one for one in late if one["kind"] == CLAIM and one["metadata"]["name"] in used]
    if not claims:
        return []
    found = plane.api("GET", VOLUMES).body["items"]
    holders = {one["metadata"]["name"]: one["spec"]["claimRef"]["name"] for one in found if "claimRef" in one["spec"]}
    taken = [one for one in late if one["kind"] == VOLUME and one["metadata"]["name"] in holders]
    touched = [one for one in claims if one["metadata"]["name"] in holders.values()]
    for one in (*touched, *taken):
        plane.api("DELETE", path(one))
        plane.api("PATCH", path(one), UNPROTECTED)
        deadline = time.monotonic() + WITHIN_SECONDS
        while plane.api("GET", path(one)).status != 404:
            assert time.monotonic() < deadline, f"{one['metadata']} is not deleted"
            time.sleep(POLL_SECONDS)
    return [*taken, *touched]
