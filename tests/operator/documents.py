"""BatchProcesses for the tests of the operator."""

from pathlib import Path
from typing import Any

import yaml

from aischeduler.operator.cluster import owner_path
from aischeduler.operator.owner import Json

OURS = "resource.aibee.cn/v1alpha1"
BRAINPP = "workspace.brainpp.cn/v1alpha1"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "batchprocess-brainpp.yaml"


def path_of(name: str = "train", api_version: str = OURS) -> str:
    return owner_path(api_version, "BatchProcess", "team", name)


def role(replicas: int, minimum: int | None, **more: Any) -> Json:
    least = {} if minimum is None else {"minAvailable": minimum}
    return {"image": "train:1", "command": ["train"], "replicas": replicas, **least, **more}


def batch_process(
    *roles: Json,
    name: str = "train",
    api_version: str = OURS,
    minimum: int | None = None,
    limit: int | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    timeout: int | None = None,
    **more: Any,
) -> Json:
    group = {"minAvailable": minimum, "timeoutSeconds": timeout}
    return {
        "apiVersion": api_version,
        "kind": "BatchProcess",
        "metadata": {
            "name": name,
            "namespace": "team",
            **({"annotations": annotations} if annotations else {}),
            **({"labels": labels} if labels else {}),
        },
        "spec": {
            "podGroup": {field: value for field, value in group.items() if value is not None},
            "simpleProcesses": list(roles),
            **({"backoffLimit": limit} if limit is not None else {}),
            **more,
        },
    }


def brainpp_example() -> Json:
    """Return the example of the description of Brain++, word by word in its meaning."""
    found: Json = yaml.safe_load(EXAMPLE.read_text())
    return found
