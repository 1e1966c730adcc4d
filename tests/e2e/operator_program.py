"""The operator of BatchProcesses as a program, with the rights of the chart."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from tests.chart.rendering import Helm
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.e2e.cluster import apply, token_kubeconfig
from tests.objects import Json

NAME = "ai-scheduler-operator"
OURS = "resource.aibee.cn/v1alpha1"
DEFAULT_IMAGE = "registry.example.com/base:1"
LEVELS_OF_TROUBLE = ("error", "critical")


class OperatorProgram:
    """The operator, not yet started; at the end it is killed, and every BatchProcess and TrainingJob is deleted."""

    def __init__(self, plane: ControlPlane, helm: Path, directory: Path) -> None:
        self._plane = plane
        chart = Helm(helm).render({"operator": {"enabled": True}})
        wanted = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        self.objects = [chart.one(kind, NAME) for kind in wanted]
        apply(plane, *self.objects)
        kubeconfig = token_kubeconfig(plane, NAME, "kube-system", directory)
        self.health = f"127.0.0.1:{free_ports(1)[0]}"
        options = ["--kubeconfig", str(kubeconfig), "--default-image", DEFAULT_IMAGE, "--health-address", self.health]
        command = [sys.executable, "-m", "aischeduler", "operator", *options]
        self.log = plane.directory / f"operator-{time.monotonic_ns()}.log"
        self.part: Part = plane.program(self.log.stem, command, self._healthy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.part.kill()
        for plural in ("batchprocesses", "trainingjobs"):
            for found in self._plane.api("GET", f"/apis/{OURS}/{plural}").body["items"]:
                metadata = found["metadata"]
                self._plane.api(
                    "DELETE", f"/apis/{OURS}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
                )

    def _healthy(self) -> bool:
        try:
            with urlopen(f"http://{self.health}/healthz", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:  # the port is not open yet
            return False

    def rules(self) -> list[Json]:
        """Return the rules of its role."""
        (role,) = (one for one in self.objects if one["kind"] == "ClusterRole")
        rules: list[Json] = role["rules"]
        return rules

    def start(self) -> None:
        self.part.start()

    def kill(self) -> None:
        """End the operator without a warning."""
        self.part.kill()

    def troubles(self) -> list[Json]:
        """Return the lines of all runs that report an error; a line that a kill cut off is left out."""
        lines = []
        for text in self.log.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
        return [line for line in lines if line["level"] in LEVELS_OF_TROUBLE]


def path(namespace: str, name: str, api_version: str = OURS) -> str:
    return f"/apis/{api_version}/namespaces/{namespace}/batchprocesses/{name}"


def pods_of(plane: ControlPlane, namespace: str, name: str) -> dict[str, Json]:
    """Return the pods of a BatchProcess by name, terminating ones too."""
    selector = f"resource.aibee.cn/gang={name}"
    items: list[Any] = plane.api("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}").body["items"]
    return {item["metadata"]["name"]: item for item in items}


def fail(plane: ControlPlane, pod: Json) -> None:
    """Report a pod as failed, as its kubelet does; one that has gone meanwhile is left alone."""
    metadata = pod["metadata"]
    status = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Failed", "reason": "Evicted"}}
    plane.api("PATCH", f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status", status)
