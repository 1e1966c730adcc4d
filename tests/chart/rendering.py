"""Renders the chart with Helm."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
Values = Mapping[str, Any]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "ai-scheduler"


class RefusedError(Exception):
    """Helm refuses the values; the text is its output."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of a release, in the order of Helm."""

    objects: tuple[Json, ...]

    def kinds(self) -> list[str]:
        return sorted({found["kind"] for found in self.objects})

    def all(self, kind: str) -> list[Json]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str = "ai-scheduler") -> Json:
        (found,) = [found for found in self.all(kind) if found["metadata"]["name"] == name]
        return found

    def container(self) -> Json:
        (container,) = [found for found in self.pod()["containers"] if found["name"] == "ai-scheduler"]
        found: Json = container
        return found

    def pod(self) -> Json:
        (deployment,) = (one for one in self.all("Deployment") if not one["metadata"]["name"].endswith("-operator"))
        spec: Json = deployment["spec"]["template"]["spec"]
        return spec

    def config(self) -> str:
        text: str = self.one("ConfigMap")["data"]["config.yaml"]
        return text


@dataclass(frozen=True, slots=True)
class Helm:
    """The helm program; the same values are rendered only once."""

    program: Path
    _known: dict[str, Rendered] = field(default_factory=dict)

    def render(self, values: Values, *options: str, release: str = "ai-scheduler") -> Rendered:
        """Return the objects; raises RefusedError."""
        key = json.dumps([values, options, release])
        if key not in self._known:
            text = self.run(["template", release, str(CHART), "--namespace=kube-system", *options, "-f", "-"], values)
            self._known[key] = Rendered(tuple(found for found in yaml.load_all(text, yaml.CSafeLoader) if found))
        return self._known[key]

    def run(self, arguments: Sequence[str], values: Values) -> str:
        """Return the output of a command; raises RefusedError."""
        command = [str(self.program), *arguments]
        ran = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RefusedError(ran.stdout + ran.stderr)
        return ran.stdout
