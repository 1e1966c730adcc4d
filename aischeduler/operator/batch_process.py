"""A BatchProcess as the operator reads it, or the field for which it is refused.

Invariants:
- Reading never fails: a document of any shape gives a BatchProcess or a Refusal.
- A Refusal names one field and says what it must be. Where the CRD has a schema, the API server refuses most of this
  earlier; a definition of another maker may have none.
- A memory without a unit is in MiB, and every document that leaves the operator says so.

Source: section 4.2 of the description of Brain++ ("podGroup", "simpleProcesses").
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from aischeduler.model.gang import GANG_SIZE_MAX, GANG_TIMEOUT_KEY
from aischeduler.model.names import MEMORY, POOL_KEY, SCHEDULER_NAME
from aischeduler.model.quantity import QuantityError, parse_nano
from aischeduler.model.user_text import quoted
from aischeduler.operator.naming import KEY_PREFIX, RECORD_KEY, ROLE_LENGTH_MAX, dns_label

BACKOFF_LIMIT: Final = 6
"""`backoffLimit` where the spec says none, as of a Job."""
BACKOFF_LIMIT_MAX: Final = 10_000
ROLES_MAX: Final = 64
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

Json = dict[str, Any]

_ROLE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


class Settings(Struct, frozen=True):
    """What the operator puts into pods; an empty `default_image` stands for none."""

    scheduler_name: str = SCHEDULER_NAME
    default_image: str = ""


@dataclass(frozen=True, slots=True)
class Role:
    """One entry of `simpleProcesses`. `min_available` is 0 where it has no minimum; `container` lacks only the name."""

    name: str
    replicas: int
    min_available: int
    container: Json = field(hash=False)


@dataclass(frozen=True, slots=True)
class BatchProcess:
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
    min_available: int
    timeout_seconds: int | None
    backoff_limit: int
    annotations: Mapping[str, str] = field(hash=False)
    pod: Json = field(hash=False)

    @property
    def replicas(self) -> int:
        """The number of pods."""
        return sum(role.replicas for role in self.roles)

    @property
    def first_ranks(self) -> tuple[int, ...]:
        """The rank of the first pod of each role."""
        return tuple(sum(role.replicas for role in self.roles[:index]) for index in range(len(self.roles)))


class RefusedError(Exception):
    """A field that cannot be carried out; the text is a sentence that begins with its path."""


def read_batch_process(document: Json, settings: Settings) -> BatchProcess:
    """Return the BatchProcess; raises RefusedError."""
    spec = _mapping(document, "spec", "")
    group = _mapping(spec, "podGroup", "spec.")
    roles = tuple(_roles(spec, settings))
    replicas = sum(role.replicas for role in roles)
    given = _count(group, "replicas", "spec.podGroup.", replicas)
    if given != replicas:
        raise RefusedError(
            f"spec.podGroup.replicas is {given}, but the replicas of spec.simpleProcesses are {replicas} in all"
        )
    least = _count(group, "minAvailable", "spec.podGroup.", replicas)
    if least > replicas:
        raise RefusedError(f"spec.podGroup.minAvailable is {least}, more than the {replicas} replicas")
    if replicas > GANG_SIZE_MAX:
        raise RefusedError(f"spec.podGroup.replicas is {replicas}, more than {GANG_SIZE_MAX}")
    timeout = group.get("timeoutSeconds")
    metadata = document["metadata"]
    return BatchProcess(
        api_version=document["apiVersion"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        gang=dns_label(metadata["name"]),
        roles=roles,
        min_available=max(least, sum(role.min_available for role in roles)),
        timeout_seconds=None
        if timeout is None
        else _count(group, "timeoutSeconds", "spec.podGroup.", 0, (0, TIMEOUT_SECONDS_MAX)),
        backoff_limit=_count(spec, "backoffLimit", "spec.", BACKOFF_LIMIT, (0, BACKOFF_LIMIT_MAX)),
        annotations=_annotations(metadata, timeout),
        pod={name: spec[name] for name in POD_FIELDS if name in spec},
    )


def _annotations(metadata: Json, timeout_seconds: Any) -> dict[str, str]:
    """Return the annotations of the pods: all of ours that the BatchProcess has, and the pool of its label."""
    found = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(KEY_PREFIX) and key != RECORD_KEY
    }
    pool = (metadata.get("labels") or {}).get(POOL_KEY)
    if pool:
        found.setdefault(POOL_KEY, pool)
    if timeout_seconds is not None:
        found[GANG_TIMEOUT_KEY] = str(timeout_seconds)
    return found


def _roles(spec: Json, settings: Settings) -> Iterator[Role]:
    processes = spec.get("simpleProcesses")
    if not isinstance(processes, list) or not 0 < len(processes) <= ROLES_MAX:
        raise RefusedError(f"spec.simpleProcesses must be a list of 1 to {ROLES_MAX} processes")
    names: dict[str, None] = {}
    for index, process in enumerate(processes):
        path = f"spec.simpleProcesses[{index}]"
        if not isinstance(process, dict):
            raise RefusedError(f"{path} must be an object")
        name = process.get("name", f"process-{index}")
        if not isinstance(name, str) or not _ROLE.fullmatch(name) or len(name) > ROLE_LENGTH_MAX:
            raise RefusedError(f"{path}.name must be a DNS label of at most {ROLE_LENGTH_MAX} characters")
        if name in names:
            raise RefusedError(f"{path}.name is {name}, as the name of a process before it")
        names[name] = None
        replicas = _count(process, "replicas", f"{path}.", 1)
        least = _count(process, "minAvailable", f"{path}.", 1) if "minAvailable" in process else 0
        if least > replicas:
            raise RefusedError(f"{path}.minAvailable is {least}, more than its {replicas} replicas")
        yield Role(name, replicas, least, _container(process, f"{path}.", settings))


def _container(process: Json, path: str, settings: Settings) -> Json:
    image = process.get("image") or settings.default_image
    if not isinstance(image, str) or not image:
        raise RefusedError(f"{path}image is missing, and the operator has no default image")
    container: Json = {"image": image}
    for name in ("command", "args"):
        if name in process:
            container[name] = [str(word) for word in _list(process, name, path)]
    container |= {name: process[name] for name in CONTAINER_FIELDS if name in process}
    for variable in _list(container, "env", path) if "env" in container else ():
        if not isinstance(variable, dict) or not isinstance(variable.get("name"), str):
            raise RefusedError(f"{path}env must be a list of variables with a name")
    resources = _mapping(process, "resources", path)
    amounts = {kind: _amounts(resources, kind, f"{path}resources.") for kind in ("limits", "requests")}
    return container | {"resources": {kind: found for kind, found in amounts.items() if found}}


def _amounts(resources: Json, kind: str, path: str) -> dict[str, str]:
    """Return the amounts as texts; a memory without a unit gets Mi."""
    found = {}
    for name, amount in _mapping(resources, kind, path).items():
        text = "" if isinstance(amount, bool) else str(amount)
        if name == MEMORY and _PLAIN_NUMBER.fullmatch(text):
            text += "Mi"
        try:
            below_zero = parse_nano(text) < 0
        except QuantityError as error:
            raise RefusedError(f"{path}{kind}.{name}: {error}") from error
        if below_zero:
            raise RefusedError(f"{path}{kind}.{name} is {quoted(text)}, below zero")
        found[name] = text
    return found


def _mapping(holder: Json, name: str, path: str) -> Json:
    found = holder.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RefusedError(f"{path}{name} must be an object")
    return found


def _list(holder: Json, name: str, path: str) -> list[Any]:
    found = holder[name]
    if not isinstance(found, list):
        raise RefusedError(f"{path}{name} must be a list")
    return found


def _count(holder: Json, name: str, path: str, default: int, bounds: tuple[int, int] = (1, GANG_SIZE_MAX)) -> int:
    found = holder.get(name)
    least, most = bounds
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise RefusedError(f"{path}{name} must be a whole number from {least} to {most}")
    return found
