"""The CustomResourceDefinition of Pool; `python -m aischeduler.kube.pool_crd DIRECTORY...` writes it to files.

Invariants:
- This module is the only source of the files; a test compares them.
- Every field has a description, so that `kubectl explain pool.spec` reads like documentation.
- The schema rejects what it can check in one object; what depends on the cluster is a condition.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from aischeduler.kube.pool_schema import pool_schema
from aischeduler.kube.schema_types import Schema
from aischeduler.model import names

HEADER: Final = "# Written by `make crds` from aischeduler/kube/pool_crd.py; edit that, not this.\n"

NOT_INSTALLED: Final = f"the definition of pools.{names.GROUP} is not installed: kubectl apply -f manifests/crds"
"""The message for an API server that has no Pool resource."""

Column = tuple[str, str]
"""The type and the JSONPath of a printer column."""

COLUMNS: Final[dict[str, Column]] = {
    "Ready": ("string", '.status.conditions[?(@.type=="Ready")].status'),
    "Nodes": ("integer", ".status.nodes"),
    "CPU": ("string", ".status.columns.cpu"),
    "Memory": ("string", ".status.columns.memory"),
    "GPU": ("string", ".status.columns.gpu"),
    "Shared": ("string", ".status.columns.shared"),
    "Borrowed": ("string", ".status.columns.borrowed"),
    "Pending": ("integer", ".status.pendingPods"),
    "Flags": ("string", ".status.columns.flags"),
}
"""The columns of `kubectl get pool` between name and age."""

WIDE_COLUMNS: Final[dict[str, Column]] = {
    "Own": ("string", ".status.columns.own"),
    "System": ("string", ".status.columns.system"),
    "Free": ("string", ".status.columns.free"),
    "Cards": ("string", ".status.columns.cards"),
    "Pods": ("integer", ".status.pods"),
    "Placement": ("string", ".spec.placement"),
    "Make-Room": ("string", ".spec.makeRoom"),
    "Reclaim": ("string", ".spec.reclaimPolicy"),
    "Conflict": ("string", '.status.conditions[?(@.type=="Conflict")].status'),
    "Scheduler": ("string", ".status.scheduler"),
}
"""The additional columns of `-o wide`."""


def pool_crd() -> Schema:
    """Return the CustomResourceDefinition of Pool."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"pools.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Cluster",
            "preserveUnknownFields": False,  # explicit, because a definition created as v1beta1 has true
            "names": {
                "kind": "Pool",
                "listKind": "PoolList",
                "plural": "pools",
                "singular": "pool",
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
    """Return the content of every file by its name."""
    return {"pools.yaml": HEADER + yaml.safe_dump(pool_crd(), sort_keys=False, width=120, allow_unicode=True)}


def write(directory: Path) -> None:
    """Write all files into the directory; create it if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (directory / name).write_text(text, encoding="utf-8")


def _columns() -> list[Schema]:
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    return [*_printer_columns(COLUMNS), age, *(column | {"priority": 1} for column in _printer_columns(WIDE_COLUMNS))]


def _printer_columns(columns: Mapping[str, Column]) -> list[Schema]:
    return [{"name": name, "type": kind, "jsonPath": path} for name, (kind, path) in columns.items()]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write(Path(argument))
