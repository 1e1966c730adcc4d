"""`ai-scheduler explain` on a real API server: the steps of every remedy are accepted, and start the pod."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.explain_cluster import carry_out, objects, pods
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import kubectl
from tests.objects import Json

COMMAND = (sys.executable, "-m", "aischeduler", "explain")
FIRST = "sweep-1"
"""The pod that is first in its queue: no other takes the room that a remedy makes."""


def explained(plane: ControlPlane, name: str) -> Json:
    """Return the explanation of a pod, as a program reads it."""
    command = (*COMMAND, name, "-o", "json", "--kubeconfig", str(plane.kubeconfig))
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    found: Json = json.loads(answer.stdout)
    return found


@pytest.fixture
def place(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> ControlPlane:
    """The cluster of docs/cli.md on explain."""
    items: list[Any] = [item for item in (*objects(), *pods()) if item["kind"] != "CustomResourceDefinition"]
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl(control_plane, "create", "-f", "-", stdin=document)
    return control_plane


@pytest.mark.parametrize("kind", ["request", "node-uncordon", "node-label", "flag", "podsEnd"])
def test_steps_of_a_remedy_are_accepted_and_start_the_pod(kind: str, place: ControlPlane) -> None:
    before = explained(place, FIRST)
    assert (before["verdict"], before["starts"]) == ("waits", None)
    kind, _, word = kind.partition("-")
    (remedy,) = [
        one for one in before["remedies"] if one["kind"] == kind and one["text"].startswith(word) and one["steps"]
    ]
    asyncio.run(carry_out(place.kubeconfig, remedy["steps"]))
    assert explained(place, FIRST)["starts"] == remedy["starts"]
