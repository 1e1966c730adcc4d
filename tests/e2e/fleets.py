"""A kind of the tests with a scale subresource, and its controller, which makes pods and ends them by its own rule."""

from threading import Event, Thread
from typing import Any, Final, Self

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import wait_until
from tests.e2e.elastic_stage import template
from tests.gang_objects import definition
from tests.objects import Json

GROUP: Final = "test.example.com"
KIND: Final = "Fleet"
FLEETS: Final = f"/apis/{GROUP}/v1/fleets"
IN_NAMESPACE: Final = f"/apis/{GROUP}/v1/namespaces/{{}}/fleets"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS: Final = 0.2


def fleet(name: str, replicas: int, **spec: Any) -> Json:
    """Return a Fleet of pods of one CPU, with these fields of its spec."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"replicas": replicas, **spec},
    }


def configuration(*, ordered: bool) -> Json:
    """Return the configuration of a scheduler that lets Fleets be elastic."""
    return {
        "elastic": {"kinds": [{"apiVersion": f"{GROUP}/v1", "kind": KIND, "resource": "fleets", "ordered": ordered}]}
    }


class Fleets:
    """Serves Fleets and runs their controller in a thread; they are served no more at the end.

    Ordered ones lose their highest index first, others their lowest.
    """

    def __init__(self, plane: ControlPlane, *, ordered: bool) -> None:
        self._plane, self._ordered = plane, ordered
        self._stopped, self._thread = Event(), Thread(target=self._run, name="fleets")
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        replicas = {"replicas": {"type": "integer"}, "enableInTreeAutoscaling": {"type": "boolean"}}
        document = definition(GROUP, "v1", (KIND, "fleets"), replicas, {"replicas": {"type": "integer"}})
        paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        document["spec"]["versions"][0]["subresources"]["scale"] = paths
        assert self._plane.api("POST", DEFINITIONS, document).status == 201
        wait_until(lambda: self._plane.api("GET", FLEETS).status == 200, "Fleets served")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._plane.api("DELETE", f"{DEFINITIONS}/fleets.{GROUP}")
        assert self.failure is None, self.failure

    def replicas(self, namespace: str, name: str) -> int:
        found: int = self._plane.api("GET", f"{IN_NAMESPACE.format(namespace)}/{name}").body["spec"]["replicas"]
        return found

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            try:
                for found in self._plane.api("GET", FLEETS).body["items"]:
                    self._adjust(found)
            except Exception as error:  # noqa: BLE001 - the end of the test tells it
                self.failure = error

    def _adjust(self, found: Json) -> None:
        """Make the pods that a Fleet lacks, or end those that are too many."""
        metadata = found["metadata"]
        name, pods = metadata["name"], f"/api/v1/namespaces/{metadata['namespace']}/pods"
        listed = self._plane.api("GET", f"{pods}?labelSelector=app={name}").body["items"]
        taken = {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in listed}
        alive = sorted(index for index, pod in taken.items() if "deletionTimestamp" not in pod["metadata"])
        wanted = found["spec"]["replicas"]
        free = [index for index in range(wanted + len(taken)) if index not in taken]
        for index in free[: max(wanted - len(alive), 0)]:
            owner = {key: found[key] for key in ("apiVersion", "kind")} | {"name": name, "uid": metadata["uid"]}
            pod = {"apiVersion": "v1", "kind": "Pod", **template(name)}
            pod["metadata"] = {
                **pod["metadata"],
                "name": f"{name}-{index}",
                "ownerReferences": [owner | {"controller": True}],
            }
            made = self._plane.api("POST", pods, pod)
            assert made.status == 201, made.body
        surplus = len(alive) - wanted
        for index in (alive[-surplus:] if self._ordered else alive[:surplus]) if surplus > 0 else []:
            self._plane.api("DELETE", f"{pods}/{name}-{index}")
