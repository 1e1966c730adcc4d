"""Elastic jobs on a real control plane: their objects, and the record of their sizes at every moment."""

from typing import Any, Final

from aischeduler.model.elastic import FREEZING_WINDOW_KEY, MAX_INSTANCES_KEY, MIN_INSTANCES_KEY
from aischeduler.model.names import POOL_KEY, SCHEDULER_NAME
from tests.controlplane.plane import ControlPlane
from tests.e2e.record import PATHS, Record, key
from tests.e2e.rules import finished
from tests.objects import Json, job_object, pod_spec

POOL: Final = "team"
JOBS: Final = "/apis/batch/v1/namespaces/{}/jobs"
APPS: Final = "/apis/apps/v1/namespaces/{}/{}"


def elastic(document: Json, least: int, most: int, window: str = "10s") -> Json:
    """Return an object that asks to be elastic."""
    terms = {MIN_INSTANCES_KEY: str(least), MAX_INSTANCES_KEY: str(most), FREEZING_WINDOW_KEY: window}
    document["metadata"].setdefault("annotations", {}).update(terms)
    return document


def elastic_job(namespace: str, name: str, least: int, most: int, *, window: str = "10s", cpu: str = "1") -> Json:
    """Return an elastic Indexed Job, of one CPU an instance."""
    document = job_object(name, namespace=namespace, completions=least, parallelism=least, cpu=cpu, pool=POOL)
    document["spec"]["completionMode"] = "Indexed"
    return elastic(document, least, most, window)


def template(app: str) -> Json:
    """Return the template of a workload's pods, of one CPU each."""
    return {
        "metadata": {"labels": {"app": app}, "annotations": {POOL_KEY: POOL}},
        "spec": {**pod_spec(cpu="1", scheduler_name=SCHEDULER_NAME), "restartPolicy": "Always"},
    }


def scaled(kind: str, name: str, replicas: int, **more: Any) -> Json:
    """Return a Deployment or a StatefulSet, with these fields of its spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name), **more},
    }


def start_job(
    plane: ControlPlane, namespace: str, name: str, least: int, most: int, *, window: str = "10s", **spec: Any
) -> None:
    """Create an elastic Indexed Job, with these fields of its spec."""
    document = elastic_job(namespace, name, least, most, window=window)
    document["spec"].update(spec)
    created = plane.api("POST", JOBS.format(namespace), document)
    assert created.status == 201, created.body


def job(plane: ControlPlane, namespace: str, name: str) -> Any:
    return plane.api("GET", f"{JOBS.format(namespace)}/{name}").body


class Sizes(Record):
    """Records the pods as they are now, and each size that a Job has had."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, {"pods": PATHS["pods"], "jobs": "/apis/batch/v1/jobs"})
        self._now["jobs"] = {}
        self.sizes: dict[str, list[int]] = {}
        """Job -> its sizes in order, without repetition."""
        self.failed: dict[str, int] = {}
        """Job -> the most pods that its status has counted as failed."""

    def hear(self, plural: str, document: Json, *, gone: bool, at: float) -> None:
        """Record a new state of an object."""
        if gone:
            self._now[plural].pop(key(document), None)
            return
        self._now[plural][key(document)] = document
        if plural == "jobs":
            name, size = document["metadata"]["name"], document["spec"]["parallelism"]
            sizes = self.sizes.setdefault(name, [])
            if not sizes or sizes[-1] != size:
                sizes.append(size)
            failed = document.get("status", {}).get("failed", 0)
            self.failed[name] = max(failed, self.failed.get(name, 0))

    def running(self, namespace: str, prefix: str) -> list[str]:
        """Return the names of the pods that begin with this, are on nodes and have not finished."""
        return sorted(
            name
            for (of, name), pod in list(self._now.get("pods", {}).items())
            if of == namespace and name.startswith(prefix) and pod["spec"].get("nodeName") and not finished(pod)
        )
