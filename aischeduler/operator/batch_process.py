"""A BatchProcess as the operator reads it, or the field for which it is refused.

Invariants:
- A document of any shape gives a BatchProcess or a SpecError. Where the CRD has a schema, the API server refuses most
  of this earlier; a definition of another maker may have none.
- A memory without a unit is in MiB, and every document that leaves the operator says so.

Source: section 4.2 of the description of Brain++ ("podGroup", "simpleProcesses").
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from aischeduler.config.errors import sentence
from aischeduler.config.section import whole_number
from aischeduler.model.gang import GANG_SIZE_MAX, GANG_TIMEOUT_KEY
from aischeduler.model.names import GROUP, VERSION
from aischeduler.operator.owner import (
    BACKOFF_LIMIT,
    BACKOFF_LIMIT_MAX,
    OBJECT,
    PLURALS,
    Json,
    Owner,
    Resources,
    Role,
    Settings,
    SpecError,
    amounts,
    dns_label,
    inherited_annotations,
)

BRAINPP_GROUP: Final = "workspace.brainpp.cn"
"""The group in which Brain++ defines BatchProcess."""
GROUPS: Final = (GROUP, BRAINPP_GROUP)
KIND: Final = "BatchProcess"
PLURAL: Final = PLURALS[KIND]
BATCH_VERSION: Final = VERSION
"""The version of BatchProcess in both groups."""
MEMORY_UNIT: Final = "Mi"
"""The unit of a memory without one."""
ROLES_MAX: Final = 64
ROLE_LENGTH_MAX: Final = 40
TIMEOUT_SECONDS_MAX: Final = 10**9
POD_FIELDS: Final = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
    "serviceAccountName",
    "imagePullSecrets",
    "volumes",
)
"""The fields of the spec that go into every pod as they are; the API server judges them."""
CONTAINER_FIELDS: Final = ("workingDir", "env", "envFrom", "volumeMounts")
"""The fields of a process that go into its container as they are."""


class BatchProcess(Owner, frozen=True):
    """A BatchProcess that can be carried out. `timeout_seconds` is None where it waits for ever.

    `pod` has the fields of the specs of its pods that come from the spec as they are.
    """

    roles: tuple[Role, ...]
    replicas: int
    min_available: int
    timeout_seconds: int | None
    backoff_limit: int
    pod: Json


_Count = Annotated[int, whole_number(1, GANG_SIZE_MAX)]
_RoleName = Annotated[
    str,
    Meta(
        pattern=r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z",
        max_length=ROLE_LENGTH_MAX,
        description=f"a DNS label of at most {ROLE_LENGTH_MAX} characters",
    ),
]


class _Group(Struct, rename="camel"):
    replicas: _Count | None = None
    min_available: _Count | None = None
    timeout_seconds: Annotated[int, whole_number(0, TIMEOUT_SECONDS_MAX)] | None = None


class _Variable(Struct):
    name: str


class _Process(Struct, rename="camel"):
    name: _RoleName | None = None
    replicas: _Count | None = None
    min_available: _Count | None = None
    image: str | None = None
    command: tuple[Any, ...] | None = None
    args: tuple[Any, ...] | None = None
    env: tuple[Annotated[_Variable, Meta(description="a variable with a name")], ...] | None = None
    resources: Annotated[Resources, OBJECT] | None = None


class _Spec(Struct, rename="camel"):
    simple_processes: Annotated[
        tuple[Annotated[_Process, OBJECT], ...],
        Meta(min_length=1, max_length=ROLES_MAX, description=f"a list of 1 to {ROLES_MAX} processes"),
    ]
    pod_group: Annotated[_Group, OBJECT] | None = None
    backoff_limit: Annotated[int, whole_number(0, BACKOFF_LIMIT_MAX)] | None = None


def read_batch_process(document: Json, settings: Settings) -> BatchProcess:
    """Return the BatchProcess; raises SpecError."""
    metadata, raw = document["metadata"], document.get("spec") or {}
    try:
        spec = msgspec.convert(raw, _Spec)
    except msgspec.ValidationError as error:
        raise SpecError(sentence(error, _Spec, raw, "spec")) from error
    group = spec.pod_group or _Group()
    roles = _roles(spec.simple_processes, raw["simpleProcesses"], settings)
    replicas = sum(role.replicas for role in roles)
    if group.replicas not in (None, replicas):
        raise SpecError(
            f"spec.podGroup.replicas is {group.replicas}, "
            f"but the replicas of spec.simpleProcesses are {replicas} in all"
        )
    least = group.min_available or replicas
    if least > replicas:
        raise SpecError(f"spec.podGroup.minAvailable is {least}, more than the {replicas} replicas")
    if replicas > GANG_SIZE_MAX:
        raise SpecError(f"spec.podGroup.replicas is {replicas}, more than {GANG_SIZE_MAX}")
    return BatchProcess(
        api_version=document["apiVersion"],
        kind=KIND,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        gang=dns_label(metadata["name"]),
        roles=roles,
        replicas=replicas,
        min_available=max(least, sum(role.min_available for role in roles)),
        timeout_seconds=group.timeout_seconds,
        backoff_limit=BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
        annotations=inherited_annotations(metadata)
        | ({} if group.timeout_seconds is None else {GANG_TIMEOUT_KEY: str(group.timeout_seconds)}),
        pod={name: raw[name] for name in POD_FIELDS if name in raw},
    )


def _roles(processes: Sequence[_Process], raw: Sequence[Json], settings: Settings) -> tuple[Role, ...]:
    """Return the roles; `raw` has the processes as they were written."""
    roles: dict[str, Role] = {}
    first_rank = 0
    for index, process in enumerate(processes):
        path, name = f"spec.simpleProcesses[{index}]", process.name or f"process-{index}"
        if name in roles:
            raise SpecError(f"{path}.name is {name}, as the name of a process before it")
        replicas, least = process.replicas or 1, process.min_available or 0
        if least > replicas:
            raise SpecError(f"{path}.minAvailable is {least}, more than its {replicas} replicas")
        roles[name] = Role(name, replicas, least, first_rank, _container(process, raw[index], path, settings))
        first_rank += replicas
    return tuple(roles.values())


def _container(process: _Process, raw: Json, path: str, settings: Settings) -> Json:
    image = process.image or settings.default_image
    if not image:
        raise SpecError(f"{path}.image is missing, and the operator has no default image")
    words = {"command": process.command, "args": process.args}
    return {
        "image": image,
        **{name: [str(word) for word in found] for name, found in words.items() if found is not None},
        **{name: raw[name] for name in CONTAINER_FIELDS if name in raw},
        "resources": amounts(process.resources or Resources(), f"{path}.resources", MEMORY_UNIT),
    }
