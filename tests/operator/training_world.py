"""A TrainingJob on the API server in a dictionary, with a Job controller and a scheduler that act when told."""

import asyncio
from typing import Any

from aischeduler.model.times import time_text
from aischeduler.operator.cluster import owner_path
from aischeduler.operator.conditions import condition_of
from aischeduler.operator.owner import Json, Settings
from aischeduler.operator.training_reconcile import TrainingReconciler
from tests.operator.documents import OURS
from tests.operator.fake_cluster import PODS, FakeCluster

PADDLE = "paddlepaddle.org/v1"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
SMALL: Json = {"requests": {"cpu": "1", "memory": "64Mi"}}
KEY = "resource.aibee.cn/"


def training_job(
    *,
    least: int = 2,
    most: int | None = 4,
    pservers: int = 1,
    fault_tolerant: bool = True,
    trainer: Json | None = None,
    name: str = "train",
    annotations: dict[str, str] | None = None,
    **more: Any,
) -> Json:
    """Return a TrainingJob of our group; `trainer` are further fields of its trainers, `more` of its spec."""
    return {
        "apiVersion": OURS,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team", **({"annotations": annotations} if annotations else {})},
        "spec": {
            "faultTolerant": fault_tolerant,
            "trainer": {
                "minInstances": least,
                **({} if most is None else {"maxInstances": most}),
                "resources": SMALL,
                **(trainer or {}),
            },
            **({"pserver": {"minInstances": pservers, "resources": SMALL}} if pservers else {}),
            **more,
        },
    }


def paddle_job(annotations: dict[str, str] | None = None, **more: Any) -> Json:
    """Return a TrainingJob as PaddlePaddle's examples write it."""
    return {
        "apiVersion": PADDLE,
        "kind": "TrainingJob",
        "metadata": {"name": "train", "namespace": "team", **({"annotations": annotations} if annotations else {})},
        "spec": {
            "image": "paddlepaddle/paddlecloud-job",
            "host_network": True,
            "port": 7164,
            "ports_num": 2,
            "ports_num_for_sparse": 1,
            "fault_tolerant": True,
            "VolumeMounts": [{"name": "data", "mountPath": "/data"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "NodeSelector": {"disk": "fast"},
            "trainer": {
                "entrypoint": "python train.py",
                "workspace": "/home/job-1",
                "min-instance": 2,
                "max-instance": 6,
                "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "500m", "memory": "600Mi"}},
            },
            "pserver": {"min-instance": 2, "max-instance": 2, "resources": {"requests": {"cpu": "500m"}}},
            "master": {"resources": {"requests": {"cpu": "200m", "memory": "500Mi"}}},
            **more,
        },
    }


class TrainingWorld:
    """One TrainingJob, its cluster, and a clock."""

    def __init__(self, document: Json, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.name = document["metadata"]["name"]
        self.path = owner_path(document["apiVersion"], "TrainingJob", "team", self.name)
        self.seconds = 1_000.0
        self.reconciler = TrainingReconciler(self.cluster, Settings(), now=lambda: self.seconds)
        self.cluster.apply(self.path, document)

    def look(self) -> float | None:
        return asyncio.run(self.reconciler.look(self.path))

    def passes(self, times: int = 3) -> float | None:
        again = None
        for _ in range(times):
            again = self.look()
        return again

    def edit(self, document: Json) -> None:
        """Change the TrainingJob as a user does."""
        self.cluster.apply(self.path, document)

    @property
    def status(self) -> Any:
        return self.cluster.objects[self.path]["status"]

    @property
    def job_path(self) -> str:
        return f"{JOBS}/{self.name}-trainer"

    @property
    def job(self) -> Any:
        return self.cluster.objects[self.job_path]

    def condition(self, kind: str) -> Any:
        return condition_of(self.cluster.objects[self.path], kind)

    def names(self) -> list[str]:
        return sorted(self.cluster.pods())

    def pod(self, name: str) -> Any:
        return self.cluster.pods()[name]

    def control(self) -> None:
        """Do what the Job controller does: one pod for each index below the parallelism, none above."""
        job = self.job
        for index in range(job["spec"]["parallelism"]):
            name = f"{self.name}-trainer-{index}"
            if f"{PODS}/{name}" not in self.cluster.objects:
                self.cluster.objects[f"{PODS}/{name}"] = self._trainer(job, name, index)
        for name, pod in self.cluster.pods().items():
            index = int(pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index", -1))
            if index >= job["spec"]["parallelism"]:
                pod["metadata"]["deletionTimestamp"] = "now"
                assert name.startswith(f"{self.name}-trainer-")

    def _trainer(self, job: Json, name: str, index: int) -> Json:
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": str(index)}
        owner = {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"], "controller": True}
        return {
            "metadata": {"name": name, "uid": f"{name}-uid", "labels": labels, "ownerReferences": [owner]},
            "spec": dict(template["spec"]),
        }

    def run_all(self) -> None:
        """Let every pod that does not terminate run."""
        for name, pod in self.cluster.pods().items():
            if "deletionTimestamp" not in pod["metadata"]:
                self.cluster.set_phase(name, "Running")

    def started(self) -> "TrainingWorld":
        """Return this world with everything made and running."""
        self.passes()
        self.control()
        self.run_all()
        self.passes()
        return self

    def resize(self, size: int, why: str = "there is room", *, ours: bool = True) -> None:
        """Write the size as the scheduler does, or as somebody else."""
        self.job["spec"] |= {"parallelism": size, "completions": size}
        if ours:
            notes = {"size": str(size), "resized-at": time_text(self.seconds), "resize-reason": why}
            self.job["metadata"].setdefault("annotations", {}).update({KEY + key: one for key, one in notes.items()})

    def end_job(self, kind: str, message: str = "", **status: int) -> None:
        """Let the Job be Complete or Failed."""
        self.job["status"] = {"conditions": [{"type": kind, "status": "True", "message": message}], **status}
