"""The CustomResourceDefinition of BatchProcess in our group; `make crds` writes it to files.

Invariants:
- Every field has a description, so that `kubectl explain batchprocess.spec` reads like documentation.
- The schema rejects what one field shows; what needs several fields, or a definition without a schema, is the condition
  `Accepted`.
- The fields that go into pods as they are have no schema here: the API server judges them when the pod is made.
"""

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from aischeduler.kube.schema_types import (
    NAME_PATTERN,
    QUANTITY_LENGTH_MAX,
    Schema,
    array,
    conditions,
    integer,
    object_of,
    string,
)
from aischeduler.model.gang import GANG_SIZE_MAX
from aischeduler.model.names import GROUP
from aischeduler.operator.batch_process import BACKOFF_LIMIT, BACKOFF_LIMIT_MAX, ROLES_MAX, TIMEOUT_SECONDS_MAX
from aischeduler.operator.naming import BATCH_VERSION, KIND, PLURAL, ROLE_LENGTH_MAX
from aischeduler.operator.record import Phase

WORDS_MAX: Final = 1_024
WORD_LENGTH_MAX: Final = 131_072
ENTRIES_MAX: Final = 64
QUANTITY_PATTERN: Final = (
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

TEXT: Final = (
    "A BatchProcess is a gang of pods of one or several roles: at least a minimum of the whole and of each role starts "
    "together, or none does. The operator makes the pods, gives them addresses and ranks, and replaces those that are "
    "lost; the scheduler places them."
)

FILE: Final = "batchprocesses.yaml"
HEADER: Final = "# Written by `make crds` from aischeduler/operator/definition.py; edit that, not this.\n"

COLUMNS: Final = {
    "Phase": ("string", ".status.phase", 0),
    "Ready": ("string", ".status.ready", 0),
    "Min": ("integer", ".status.minAvailable", 0),
    "Restarts": ("integer", ".status.restarts", 0),
    "Age": ("date", ".metadata.creationTimestamp", 0),
    "Accepted": ("string", '.status.conditions[?(@.type=="Accepted")].status', 1),
    "Scheduled": ("string", '.status.conditions[?(@.type=="Scheduled")].status', 1),
}
"""Name -> type, JSONPath and priority of the columns of `kubectl get batchprocess`."""


def definition() -> Schema:
    """Return the CustomResourceDefinition of BatchProcess."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "preserveUnknownFields": False,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["bp"],
                "categories": ["ai-scheduler"],
            },
            "versions": [
                {
                    "name": BATCH_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path} | ({"priority": rank} if rank else {})
                        for name, (kind, path, rank) in COLUMNS.items()
                    ],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def file_text() -> str:
    """Return the content of the file of the definition."""
    return HEADER + yaml.safe_dump(definition(), sort_keys=False, width=120, allow_unicode=True)


def _schema() -> Schema:
    return object_of(
        TEXT,
        apiVersion=string("Version of the schema of this object."),
        kind=string("Kind of this object: BatchProcess."),
        metadata={"type": "object"},
        spec=_spec(),
        status=_status(),
    ) | {"required": ["spec"]}


def _spec() -> Schema:
    return object_of(
        "What runs, and how much of it must start together.",
        podGroup=object_of(
            "The gang as a whole. Without it all pods start together.",
            replicas=_count("The number of pods: the sum of the replicas of all processes, which is the default."),
            minAvailable=_count("The least number of pods that start together. Default: all."),
            timeoutSeconds=_whole(
                "How long the gang waits for room before its pods are reported as failed to schedule; 0 and no value: "
                "for ever.",
                0,
                TIMEOUT_SECONDS_MAX,
            ),
        ),
        simpleProcesses=array("The roles of the gang.", _process(), minItems=1, maxItems=ROLES_MAX)
        | {"x-kubernetes-list-type": "atomic"},
        backoffLimit=_whole(
            f"How many lost pods are made again, all together, before the BatchProcess fails. Default: "
            f"{BACKOFF_LIMIT}. A pod is lost when it fails, is evicted or is deleted.",
            0,
            BACKOFF_LIMIT_MAX,
        ),
        nodeSelector=_any("Labels that the nodes of all pods must have, as in a pod."),
        tolerations=_any_list("Taints that all pods tolerate, as in a pod."),
        affinity=_any("Affinity of all pods, as in a pod."),
        priorityClassName=string("PriorityClass of all pods.", maxLength=253, pattern=NAME_PATTERN),
        serviceAccountName=string("Service account of all pods.", maxLength=253, pattern=NAME_PATTERN),
        imagePullSecrets=_any_list("Secrets for the registries of the images, as in a pod."),
        volumes=_any_list("Volumes of all pods, as in a pod."),
    ) | {"required": ["simpleProcesses"]}


def _process() -> Schema:
    words = string("One word.", maxLength=WORD_LENGTH_MAX)
    return object_of(
        "One role: pods that are alike.",
        name=string(
            "Name of the role, part of the names of its pods. Default: process- and the index of the entry, from 0.",
            maxLength=ROLE_LENGTH_MAX,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ),
        image=string("Image of the container. Default: the default image of the operator.", maxLength=1_024),
        command=array("Program and arguments that replace the entry point of the image.", words, maxItems=WORDS_MAX),
        args=array("Arguments of the entry point.", words, maxItems=WORDS_MAX),
        workingDir=string("Directory in which the program starts.", maxLength=4_096),
        replicas=_count("The number of pods of the role. Default: 1."),
        minAvailable=_count("The least number of its pods that start together. Default: no minimum of its own."),
        resources=object_of(
            "Resources of each pod. A memory without a unit is in MiB: 2048 is 2Gi.",
            limits=_amounts("What a pod may use at most, and what it asks for where requests says nothing else."),
            requests=_amounts("What a pod asks for."),
        ),
        env=_any_list("Environment variables, as in a pod. They go before the variables of the operator."),
        envFrom=_any_list("Sources of environment variables, as in a pod."),
        volumeMounts=_any_list("Where the volumes are mounted, as in a pod."),
    )


def _status() -> Schema:
    role = object_of(
        "One role and its pods.",
        name=string("Name of the role.", maxLength=ROLE_LENGTH_MAX),
        replicas=integer("Pods that the spec wants."),
        minAvailable=integer("The least number that start together; 0: no minimum of its own."),
        pending=integer("Pods that do not run yet."),
        running=integer("Pods that run."),
        succeeded=integer("Pods that ended well."),
        failed=integer("Pods that failed and are not replaced yet."),
        attempts=array(
            "For each index, how many pods of its name there were.", integer("A count."), maxItems=GANG_SIZE_MAX
        )
        | {"x-kubernetes-list-type": "atomic"},
        completedIndexes=array("The indexes that ended well.", integer("An index."), maxItems=GANG_SIZE_MAX)
        | {"x-kubernetes-list-type": "atomic"},
    ) | {"required": ["name"]}
    return object_of(
        "What the operator made of the spec; written by the operator alone.",
        observedGeneration=integer("metadata.generation of the spec that this status describes."),
        phase=string(
            "Pending: fewer pods run than the minimum. Running: the minimum runs. Succeeded: all pods ended well. "
            "Failed: pods were lost more often than backoffLimit allows.",
            enum=[str(phase) for phase in Phase],
        ),
        replicas=integer("Pods that the spec wants."),
        minAvailable=integer("The least number that start together."),
        ready=string("Pods that run or ended well, of all: 3/4.", maxLength=32),
        restarts=integer("How many lost pods were made again."),
        roles=array("The roles and their pods.", role, maxItems=ROLES_MAX) | {"x-kubernetes-list-type": "atomic"},
        conditions=conditions(
            "What is true of the BatchProcess now.",
            "What the condition says: Accepted (the spec is in force; else the message names the field), Scheduled (at "
            "least the minimum of the whole and of each role has nodes), Completed or Failed.",
        ),
    )


def _whole(description: str, least: int, most: int) -> Schema:
    return {"description": description, "type": "integer", "format": "int32", "minimum": least, "maximum": most}


def _count(description: str) -> Schema:
    return _whole(description, 1, GANG_SIZE_MAX)


def _amounts(description: str) -> Schema:
    quantity: dict[str, Any] = {
        "description": "An amount: a whole number, or a quantity such as 500m or 64Gi.",
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "maxLength": QUANTITY_LENGTH_MAX,
        "pattern": QUANTITY_PATTERN,
        "minimum": 0,
    }
    return {
        "description": description,
        "type": "object",
        "maxProperties": ENTRIES_MAX,
        "additionalProperties": quantity,
    }


def _any(description: str) -> Schema:
    return {"description": description, "type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _any_list(description: str) -> Schema:
    return array(description, _any("One entry."), maxItems=ENTRIES_MAX) | {"x-kubernetes-list-type": "atomic"}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        (Path(argument) / FILE).write_text(file_text(), encoding="utf-8")
