"""A BatchProcess as the operator reads it, or the field for which it is refused; and the names of what it gets.

Invariants:
- A document of any shape gives a BatchProcess or a SpecError.
- A SpecError names one field and says what it must be. Where the CRD has a schema, the API server refuses most of this
  earlier; a definition of another maker may have none.
- A memory without a unit is in MiB, and every document that leaves the operator says so.
- A name depends on the BatchProcess alone, and it is a DNS label: a hostname, a label value and the name of an object.
  One that had to be changed ends in a hash of the whole, so that two names do not meet.

Source: section 4.2 of the description of Brain++ ("podGroup", "simpleProcesses").
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from aischeduler.config.errors import sentence
from aischeduler.config.section import whole_number
from aischeduler.model.gang import GANG_SIZE_MAX, GANG_TIMEOUT_KEY
from aischeduler.model.names import GROUP, MEMORY, POOL_KEY, SCHEDULER_NAME, VERSION
from aischeduler.model.quantity import QuantityError, parse_nano
from aischeduler.model.user_text import quoted

BRAINPP_GROUP: Final = "workspace.brainpp.cn"
"""The group in which Brain++ defines BatchProcess."""
GROUPS: Final = (GROUP, BRAINPP_GROUP)
KIND: Final = "BatchProcess"
PLURAL: Final = "batchprocesses"
BATCH_VERSION: Final = VERSION
"""The version of BatchProcess in both groups."""
KEY_PREFIX: Final = GROUP + "/"
RECORD_KEY: Final = KEY_PREFIX + "record"
"""The annotation of a BatchProcess whose definition does not keep our status: what the operator must not forget."""

BACKOFF_LIMIT: Final = 6
"""`backoffLimit` where the spec says none, as of a Job."""
BACKOFF_LIMIT_MAX: Final = 10_000
ROLES_MAX: Final = 64
ROLE_LENGTH_MAX: Final = 40
TIMEOUT_SECONDS_MAX: Final = 10**9
LABEL_LENGTH_MAX: Final = 63
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

Json = dict[str, Any]

_HASH_LENGTH: Final = 8
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_OBJECT: Final = Meta(description="an object")


class Settings(Struct, frozen=True):
    """What the operator puts into pods; an empty `default_image` stands for none."""

    scheduler_name: str = SCHEDULER_NAME
    default_image: str = ""


class Role(Struct, frozen=True):
    """One entry of `simpleProcesses`; `first_rank` is the rank of its first pod.

    `min_available` is 0 where it has no minimum; `container` lacks only the name.
    """

    name: str
    replicas: int
    min_available: int
    first_rank: int
    container: Json


class BatchProcess(Struct, frozen=True):
    """A BatchProcess that can be carried out. `timeout_seconds` is None where it waits for ever.

    `gang` is the name of its gang and Service. `annotations` are those of its pods, and `pod` the fields of their specs
    that come from the spec as they are.
    """

    api_version: str
    namespace: str
    name: str
    uid: str
    gang: str
    roles: tuple[Role, ...]
    replicas: int
    min_available: int
    timeout_seconds: int | None
    backoff_limit: int
    annotations: Mapping[str, str]
    pod: Json


class SpecError(Exception):
    """A spec that cannot be carried out; the text is a sentence that begins with the path of a field."""


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


class _Resources(Struct):
    limits: Annotated[Json, _OBJECT] | None = None
    requests: Annotated[Json, _OBJECT] | None = None


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
    resources: Annotated[_Resources, _OBJECT] | None = None


class _Spec(Struct, rename="camel"):
    simple_processes: Annotated[
        tuple[Annotated[_Process, _OBJECT], ...],
        Meta(min_length=1, max_length=ROLES_MAX, description=f"a list of 1 to {ROLES_MAX} processes"),
    ]
    pod_group: Annotated[_Group, _OBJECT] | None = None
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
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        gang=dns_label(metadata["name"]),
        roles=roles,
        replicas=replicas,
        min_available=max(least, sum(role.min_available for role in roles)),
        timeout_seconds=group.timeout_seconds,
        backoff_limit=BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
        annotations=_annotations(metadata, group.timeout_seconds),
        pod={name: raw[name] for name in POD_FIELDS if name in raw},
    )


def dns_label(text: str) -> str:
    """Return the text if it is a DNS label (RFC 1035), else a label made from it with a hash."""
    if len(text) <= LABEL_LENGTH_MAX and _LABEL.fullmatch(text):
        return text
    clean = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    lettered = clean if clean[:1].isalpha() else f"b-{clean}"
    kept = lettered[: LABEL_LENGTH_MAX - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{sha256(text.encode()).hexdigest()[:_HASH_LENGTH]}"


def _annotations(metadata: Json, timeout_seconds: int | None) -> dict[str, str]:
    """Return the annotations of the pods: all of ours that the BatchProcess has, and the pool of its label."""
    pool = (metadata.get("labels") or {}).get(POOL_KEY)
    found = {POOL_KEY: pool} if pool else {}
    annotations = (metadata.get("annotations") or {}).items()
    found |= {key: value for key, value in annotations if key.startswith(KEY_PREFIX) and key != RECORD_KEY}
    return found if timeout_seconds is None else found | {GANG_TIMEOUT_KEY: str(timeout_seconds)}


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
    resources = process.resources or _Resources()
    amounts = {"limits": resources.limits, "requests": resources.requests}
    return {
        "image": image,
        **{name: [str(word) for word in found] for name, found in words.items() if found is not None},
        **{name: raw[name] for name in CONTAINER_FIELDS if name in raw},
        "resources": {
            name: {kind: _amount(kind, amount, f"{path}.resources.{name}.{kind}") for kind, amount in found.items()}
            for name, found in amounts.items()
            if found
        },
    }


def _amount(kind: str, amount: object, path: str) -> str:
    """Return an amount as text; a memory without a unit gets Mi."""
    text = "" if isinstance(amount, bool) else str(amount)
    if kind == MEMORY and _PLAIN_NUMBER.fullmatch(text):
        text += "Mi"
    try:
        below_zero = parse_nano(text) < 0
    except QuantityError as error:
        raise SpecError(f"{path}: {error}") from error
    if below_zero:
        raise SpecError(f"{path} is {quoted(text)}, below zero")
    return text
