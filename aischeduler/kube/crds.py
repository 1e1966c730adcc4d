"""The custom resource definitions, and the program that writes them: `python -m aischeduler.kube.crds DIRECTORY...`.

Laws:
- This is the one source of the files; a test compares them.
- Every field has a description, so that `kubectl explain pool.spec` reads like documentation.
- The schema refuses what can be refused when it is written; what only the whole cluster can tell is a condition.
"""

import sys
from pathlib import Path
from typing import Final

import yaml

from aischeduler.kube.pool_schema import pool_schema
from aischeduler.kube.schemas import Schema
from aischeduler.model import names

HEADER: Final = "# Written by `make crds` from aischeduler/kube/crds.py; edit that, not this.\n"

NOT_INSTALLED: Final = f"the definition of pools.{names.GROUP} is not installed: kubectl apply -f manifests/crds"
"""What people are told where the API server does not know Pools."""

COLUMNS: Final = {
    "Nodes": ".status.columns.nodes",
    "CPU": ".status.columns.cpu",
    "Memory": ".status.columns.memory",
    "GPU": ".status.columns.gpu",
    "Shared": ".status.columns.shared",
    "Borrowed": ".status.columns.borrowed",
    "Pending": ".status.columns.pending",
    "Flags": ".status.columns.flags",
}
"""What `kubectl get pool` shows between the name and the age."""

WIDE_COLUMNS: Final = {
    "Own": ".status.columns.own",
    "System": ".status.columns.system",
    "Free": ".status.columns.free",
    "Pods": ".status.pods",
    "Placement": ".spec.placement",
    "Make-Room": ".spec.makeRoom",
    "Reclaim": ".spec.reclaimPolicy",
    "Ready": '.status.conditions[?(@.type=="Ready")].status',
    "Conflict": '.status.conditions[?(@.type=="Conflict")].status',
}
"""What `-o wide` adds."""


def pool_crd() -> Schema:
    """Return the CustomResourceDefinition of Pool."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"pools.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Cluster",
            "names": {
                "kind": "Pool",
                "listKind": "PoolList",
                "plural": "pools",
                "singular": "pool",
                "shortNames": ["pool"],
                "categories": ["ai-scheduler"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                    "schema": {"openAPIV3Schema": pool_schema()},
                }
            ],
        },
    }


def files() -> dict[str, str]:
    """Return the text of every file by its name."""
    return {"pools.yaml": HEADER + yaml.safe_dump(pool_crd(), sort_keys=False, width=120, allow_unicode=True)}


def write(directory: Path) -> None:
    """Write all files into the directory, which is made where it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


def _columns() -> list[Schema]:
    shown = [{"name": name, "type": "string", "jsonPath": path} for name, path in COLUMNS.items()]
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    wide = [{"name": name, "type": "string", "jsonPath": path, "priority": 1} for name, path in WIDE_COLUMNS.items()]
    return [*shown, age, *wide]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))
