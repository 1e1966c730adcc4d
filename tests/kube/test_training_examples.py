"""The examples of training operators: the pods that the operators make of them form one gang of the right size."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.model.pod import Pod
from tests.objects import Json

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
JOBS = {
    "pytorchjob.yaml": ("training.kubeflow.org/job-name", {"Master": 1, "Worker": 3}, 4),
    "rayjob.yaml": ("ray.io/cluster", {"head": 1, "gpu": 2}, 3),
}


def templates(job: Json) -> dict[str, tuple[int, Json]]:
    """Return the number of pods and their template, by the name of their part."""
    spec = job["spec"]
    if job["kind"] == "PyTorchJob":
        return {name: (part["replicas"], part["template"]) for name, part in spec["pytorchReplicaSpecs"].items()}
    cluster = spec["rayClusterSpec"]
    workers = {group["groupName"]: (group["replicas"], group["template"]) for group in cluster["workerGroupSpecs"]}
    return {"head": (1, cluster["headGroupSpec"]["template"]), **workers}


def made_of(job: Json, label: str) -> list[Pod]:
    """Return the pods as the scheduler reads them, with the label that the operator adds."""
    pods = []
    for part, (replicas, template) in templates(job).items():
        for number in range(replicas):
            name = f"{job['metadata']['name']}-{part.lower()}-{number}"
            labels = {**template["metadata"]["labels"], label: job["metadata"]["name"]}
            metadata = {**template["metadata"], "name": name, "namespace": "default", "uid": name, "labels": labels}
            document = {"metadata": metadata, "spec": template["spec"]}
            pods.append(read_pod(msgspec.json.decode(json.dumps(document).encode(), type=PodDocument), SpecCache()))
    return pods


@pytest.mark.parametrize("name", JOBS)
def test_pods_of_the_example_are_one_gang_whose_minimum_is_all_of_them(name: str) -> None:
    label, parts, size = JOBS[name]
    job = yaml.safe_load((EXAMPLES / name).read_text())
    assert {part: replicas for part, (replicas, _) in templates(job).items()} == parts
    pods = made_of(job, label)
    assert len(pods) == size
    claims = {(pod.gang.key, pod.gang.said) for pod in pods if pod.gang is not None}
    assert len(claims) == 1
    ((_, said),) = claims
    assert said is not None
    assert (said.min_member, said.invalid) == (size, "")


@pytest.mark.parametrize("name", JOBS)
def test_pods_of_the_example_are_for_this_scheduler_and_name_a_pool(name: str) -> None:
    job = yaml.safe_load((EXAMPLES / name).read_text())
    assert {template["spec"]["schedulerName"] for _, template in templates(job).values()} == {"ai-scheduler"}
    assert {pod.pool for pod in made_of(job, JOBS[name][0])} == {"gpu-pool"}
