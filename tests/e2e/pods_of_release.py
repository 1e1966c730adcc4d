"""The pods of a release as processes: the work of kubelets and the Deployment controller.

Invariant: the statuses are true. A replica is ready when its process says so, and the pod of `helm test` succeeds when
its command does, with the arguments and the service account of the chart.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, wait_until
from tests.e2e.release import CONFIG_PATH, NAME, NAMESPACE, Release
from tests.e2e.replicas import KubeconfigContext, Replica, two_replicas
from tests.objects import Json

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
TEST_POD = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}-test-pools"
LOOK_EVERY_SECONDS = 0.1
COMMAND_SECONDS = 30.0


@contextmanager
def pods_running(plane: ControlPlane, release: Release) -> Iterator[None]:
    """Run both schedulers of the release, which no upgrade restarts, and the pods of `helm test`."""
    access = release.access()
    stop = Event()
    tests = Thread(target=run_test_pods, args=(plane, access, stop), daemon=True)
    with two_replicas(plane, access) as replicas:
        tell_rolled_out(plane, replicas)
        tests.start()
        try:
            yield
        finally:
            stop.set()
            tests.join()


def tell_rolled_out(plane: ControlPlane, replicas: tuple[Replica, ...]) -> None:
    """Wait until every replica is ready, and write the status of a Deployment that is rolled out."""
    wait_until(lambda: all(replica.ready() for replica in replicas), "all replicas ready")
    deployment = plane.api("GET", DEPLOYMENT).body
    assert deployment["spec"]["replicas"] == len(replicas)
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    status = {"observedGeneration": deployment["metadata"]["generation"], **dict.fromkeys(counts, len(replicas))}
    told = plane.api("PATCH", f"{DEPLOYMENT}/status", {"status": status})
    assert told.status == 200, told.body


def run_test_pods(plane: ControlPlane, access: KubeconfigContext, stop: Event) -> None:
    """Run the command of each pod of `helm test`, and write its phase."""
    while not stop.wait(LOOK_EVERY_SECONDS):
        found = plane.api("GET", TEST_POD)
        if found.status == 200 and found.body["status"]["phase"] == "Pending":
            phase = "Succeeded" if succeeds(found.body, access) else "Failed"
            plane.api("PATCH", f"{TEST_POD}/status", {"status": {"phase": phase}})


def succeeds(pod: Json, access: KubeconfigContext) -> bool:
    """Run the command of a pod of the chart without its image; return whether it succeeded."""
    (container,) = pod["spec"]["containers"]
    arguments = [str(access.config) if word == CONFIG_PATH else word for word in container["args"]]
    command = [sys.executable, "-m", "aischeduler", *arguments, "--kubeconfig", str(access.kubeconfig)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    print(ran.stdout, ran.stderr)  # pytest shows it when the test has failed
    return ran.returncode == 0
