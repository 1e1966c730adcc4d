"""The custom resource definitions, and the program that writes them: `python -m aischeduler.kube.crds DIRECTORY`.

Laws:
- This is the one source of the files; a test compares them.
- Every field has a description, so that `kubectl explain pool.spec` reads like documentation.
- The schema refuses what can be refused when it is written; what only the whole cluster can tell is a condition.
"""

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from aischeduler.model import names
from aischeduler.model.pool import Placement
from aischeduler.model.selectors import LABEL_OPERATORS

Schema = dict[str, Any]

HEADER: Final = "# Written by `make crds` from aischeduler/kube/crds.py; edit that, not this.\n"
REQUIREMENTS_MAX: Final = 64
"""Labels or expressions in one selector."""
VALUES_MAX: Final = 256
"""Values in one expression of a selector."""
CONDITIONS_MAX: Final = 16
"""Conditions in one status."""

POOL_TEXT: Final = (
    "A Pool is a set of nodes that one business owns. Pods name their pool in the annotation "
    f"{names.POOL_KEY}; every pool has its own queue and its own scheduling loop. Nodes that no Pool or more than one "
    "selects belong to the pool named default, as do pods that name no Pool."
)


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
                    "additionalPrinterColumns": [
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
                    ],
                    "schema": {"openAPIV3Schema": _pool_schema()},
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


def _pool_schema() -> Schema:
    return _object(
        POOL_TEXT,
        apiVersion=_string("Version of the schema of this object."),
        kind=_string("Kind of this object: Pool."),
        metadata={"type": "object"},
        spec=_object(
            "What the pool owns and what it lends; written by people.",
            nodeSelector=_selector(),
            disablePreemption=_switch(
                "Whether the pool's own pods may not evict others: neither pods of lower priority nor borrowers whose "
                "room they need."
            ),
            disableBorrowing=_switch("Whether the pool's own pods may not run on idle nodes of other pools."),
            disableSharing=_switch("Whether pods of other pools may not run on this pool's idle nodes."),
            placement=_string(
                "Which of the nodes that fit is preferred: Spread takes the emptiest, Pack the fullest. When it is "
                "absent, pods that ask for GPUs pack and all others spread.",
                enum=[str(placement) for placement in Placement],
            ),
        ),
        status=_object(
            "What the scheduler made of the spec; written by the scheduler alone.",
            observedGeneration=_integer("metadata.generation of the spec that this status speaks of."),
            conditions=_conditions(),
        ),
    )


def _selector() -> Schema:
    expression = _object(
        "One comparison of one label.",
        key=_string("The label's key.", minLength=1, maxLength=317),
        operator=_string(
            "How the label is compared: In and NotIn with values, Exists and DoesNotExist without.",
            enum=sorted(str(operator) for operator in LABEL_OPERATORS),
        ),
        values=_array("Values to compare with.", _string("A label value.", maxLength=63), maxItems=VALUES_MAX)
        | {"x-kubernetes-list-type": "atomic"},
    )
    return _object(
        "The nodes that belong to the pool: all parts have to match. Absent: the pool owns no nodes, its pods can only "
        "borrow. Empty: every node matches. Nodes that several Pools select belong to the pool named default.",
        matchLabels={
            "description": "Labels that a node must have with exactly these values.",
            "type": "object",
            "maxProperties": REQUIREMENTS_MAX,
            "additionalProperties": {"type": "string", "maxLength": 63},
        },
        matchExpressions=_array(
            "Comparisons that a node's labels must all satisfy.",
            expression | {"required": ["key", "operator"]},
            maxItems=REQUIREMENTS_MAX,
        )
        | {"x-kubernetes-list-type": "atomic"},
    )


def _conditions() -> Schema:
    condition = _object(
        "One thing that is true, false or unknown of the pool.",
        type=_string(
            "What the condition says: Accepted (the spec is understood and in force) or Conflict (other pools select "
            "the same nodes).",
            maxLength=316,
            pattern=r"^[A-Za-z][A-Za-z0-9]*$",
        ),
        status=_string("True, False or Unknown.", enum=["True", "False", "Unknown"]),
        observedGeneration=_integer("metadata.generation of the spec that this condition speaks of."),
        lastTransitionTime=_string("When the status last changed.", format="date-time"),
        reason=_string(
            "One word for why.", minLength=1, maxLength=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
        ),
        message=_string("A sentence for people that names the field or the node.", maxLength=32768),
    )
    required = {"required": ["type", "status", "lastTransitionTime", "reason", "message"]}
    return _array("What is true of the pool now.", condition | required, maxItems=CONDITIONS_MAX) | {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def _object(description: str, **properties: Schema) -> Schema:
    return {"description": description, "type": "object", "properties": properties}


def _string(description: str, **bounds: Any) -> Schema:
    return {"description": description, "type": "string", **bounds}


def _integer(description: str) -> Schema:
    return {"description": description, "type": "integer", "format": "int64", "minimum": 0}


def _switch(description: str) -> Schema:
    return {"description": description, "type": "boolean", "default": False}


def _array(description: str, items: Schema, **bounds: int) -> Schema:
    return {"description": description, "type": "array", "items": items, **bounds}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
