"""The request that writes the replicas of an elastic Deployment or StatefulSet, on the real API server."""

import json

import pytest

from aischeduler.kube.write.elastic_writes import read_answer, resize_patch, resize_path
from aischeduler.model.events import ResizeRefused
from tests.controlplane.plane import ControlPlane
from tests.kube.resizes import a_resize

LABELS = {"app": "w"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_replicas_are_written_at_the_version_of_the_decision_alone(control_plane: ControlPlane, kind: str) -> None:
    spec = {"replicas": 4, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    document = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "train"}, "spec": spec}
    path = resize_path(a_resize(kind, namespace="default"))
    created = control_plane.api("POST", path.rpartition("/")[0], document)
    assert created.status == 201, created.body
    metadata = control_plane.api("GET", path).body["metadata"]
    action = a_resize(kind, namespace="default", uid=metadata["uid"], version=metadata["resourceVersion"])
    answer = control_plane.api("PATCH", path, json.loads(resize_patch(action)))
    assert (answer.status, answer.body["spec"]["replicas"]) == (200, 6)
    again = control_plane.api("PATCH", path, json.loads(resize_patch(action)))
    outcome = read_answer(action, again.status, None, json.dumps(again.body).encode())
    assert isinstance(outcome, ResizeRefused)
    assert outcome.changed
    assert control_plane.api("DELETE", path).status == 200
