"""Which owner gets a pass after an event of an object, and which reconciler makes it."""

from typing import Any

import pytest

from aischeduler.kube.http.client import Client
from aischeduler.operator.owner import Settings
from aischeduler.operator.program import Operator
from tests.kube.scripted_server import Script, serving, status
from tests.operator.documents import BRAINPP, OURS
from tests.operator.training_world import KEY, PADDLE


def body(*owners: dict[str, Any], made_for: str = "") -> Any:
    annotations = {"annotations": {f"{KEY}training-job": made_for}} if made_for else {}
    return {"metadata": {"name": "p", "namespace": "team", "ownerReferences": list(owners), **annotations}}


def owner(kind: str, api_version: str = OURS, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": "train", "controller": controller}


def path(api_version: str, plural: str = "trainingjobs") -> str:
    return f"/apis/{api_version}/namespaces/team/{plural}/train"


@pytest.mark.parametrize(
    ("found", "marked"),
    [
        (body(owner("TrainingJob")), [path(OURS)]),
        (body(owner("TrainingJob", PADDLE)), [path(PADDLE)]),
        (body(owner("BatchProcess", BRAINPP)), [path(BRAINPP, "batchprocesses")]),
        (body(owner("Job", "batch/v1"), made_for=f"{OURS}/train"), [path(OURS)]),
        (body(owner("Job", "batch/v1"), made_for=f"{PADDLE}/train"), [path(PADDLE)]),
        (body(owner("Job", "batch/v1")), []),
        (body(owner("TrainingJob", controller=False)), []),
        (body(owner("TrainingJob", "kubeflow.org/v1")), []),
        (body(made_for="kubeflow.org/v1/train"), []),
        (body(made_for="train"), []),
        (body(made_for="resource.aibee.cn/v1alpha1/"), []),
    ],
)
async def test_event_of_a_pod_or_a_job_marks_its_owner_of_our_kinds(found: Any, marked: list[str]) -> None:
    async with serving(Script()) as server, Client(server) as client:
        operator = Operator(server, client, Settings())
        await operator._part_changed(found)
    assert list(operator._passes._changed) == marked


@pytest.mark.parametrize("where", [path(OURS), path(PADDLE), path(BRAINPP, "batchprocesses")])
async def test_pass_reads_the_owner_that_was_marked(where: str) -> None:
    script = Script()
    script.on("get", where, status(404, "NotFound"))
    async with serving(script) as server, Client(server) as client:
        assert await Operator(server, client, Settings())._look(where) is None
    assert len(script.asked("get")) == 1
