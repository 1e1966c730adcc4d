"""A release of the chart on a real API server, with its schedulers as processes."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, kubectl
from tests.e2e.replicas import KubeconfigContext

CHART = ROOT / "helm" / "ai-scheduler"
NAMESPACE, NAME = "kube-system", "ai-scheduler"
CONFIG_PATH = "/etc/ai-scheduler/config.yaml"
"""The path of the configuration in the pods."""
OF_THE_TESTS = {"crds": {"install": False}}
"""The values of the tests: Pools are defined already."""


class Release:
    """The chart, installed by helm."""

    def __init__(self, plane: ControlPlane, helm: Path, directory: Path) -> None:
        self._plane = plane
        self._helm = helm
        self._directory = directory

    def install(self, **values: Any) -> None:
        self.run("install", NAME, str(CHART), values=values)

    def upgrade(self, **values: Any) -> None:
        self.run("upgrade", NAME, str(CHART), values=values)

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm and return its output."""
        command = [str(self._helm), *arguments, f"--namespace={NAMESPACE}"]
        if values is not None:
            command += ["-f", "-"]
        env = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig), "HELM_CACHE_HOME": str(self._directory)}
        text = json.dumps({**OF_THE_TESTS, **(values or {})})
        ran = subprocess.run(command, env=env, input=text, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def uninstall(self) -> None:
        self.run("uninstall", NAME, "--ignore-not-found")

    def access(self, *, token: str = "") -> KubeconfigContext:
        """Return arguments, configuration and a token of the service account, as for a pod of the Deployment."""
        deployment = self._get("apps/v1", "deployments")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["run", "--config", CONFIG_PATH]
        config = self._directory / "config.yaml"
        config.write_text(self._get("v1", "configmaps")["data"]["config.yaml"])
        self.token_path.write_text(token or self.new_token())
        document = json.loads(self._plane.token_kubeconfig.read_text())
        document["users"][0]["user"] = {"tokenFile": str(self.token_path)}
        kubeconfig = self._directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(document))
        return KubeconfigContext(kubeconfig, config)

    @property
    def token_path(self) -> Path:
        """The token file, which a kubelet renews."""
        return self._directory / "token"

    def new_token(self, *options: str) -> str:
        """Return a token of the release's service account, as a kubelet requests it."""
        return kubectl(self._plane, "create", "token", NAME, "-n", NAMESPACE, *options).strip()

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules of the roles of the service account."""
        cluster = self._plane.api("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}").body
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/{NAME}-election"
        return [*cluster["rules"], *self._plane.api("GET", path).body["rules"]]

    def _get(self, version: str, plural: str) -> Any:
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        found = self._plane.api("GET", f"{root}/namespaces/{NAMESPACE}/{plural}/{NAME}")
        assert found.status == 200, found.body
        return found.body
