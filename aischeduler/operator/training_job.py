"""A TrainingJob as the operator reads it, of our own group or of PaddlePaddle's, or the field for which it is refused.

Invariants:
- A document of any shape gives a TrainingJob or a SpecError, whose sentence names fields as that group spells them.
- What is accepted and has no effect is told: `ignored` has the reason and the note of an Event.
- The operator decides no size: it only says the terms between which the scheduler chooses.

Source: TrainingJob of paddlepaddle.org/v1; levels and freezing window of its scheduler's design.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from aischeduler.config.errors import sentence
from aischeduler.config.section import whole_number
from aischeduler.kube.decode.elastic_terms import duration_seconds
from aischeduler.kube.decode.fields import FieldError
from aischeduler.model.elastic import (
    ALLOWED_INSTANCES_KEY,
    FREEZING_WINDOW_KEY,
    FREEZING_WINDOW_SECONDS,
    INSTANCES_MAX,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
    PriorityLevel,
)
from aischeduler.model.gang import GANG_SIZE_MAX
from aischeduler.model.names import POOL_KEY
from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.operator.owner import (
    BACKOFF_LIMIT,
    BACKOFF_LIMIT_MAX,
    LABEL_LENGTH_MAX,
    OBJECT,
    Json,
    Owner,
    Resources,
    Settings,
    SpecError,
    amounts,
    dns_label,
    inherited_annotations,
)
from aischeduler.operator.paddle_spec import in_our_names, in_paddle_names, is_paddle

KIND: Final = "TrainingJob"
IMAGE: Final = "paddlepaddle/paddlecloud-job"
"""The image where neither the spec nor the operator says one."""
PORT: Final = 7164
PORT_MAX: Final = 65_535
PORTS_MAX: Final = 1_000
ALLOWED_MAX: Final = 512
"""The most allowed sizes, so that the scheduler reads the annotation that lists them."""
PASSES_MAX: Final = 1_000_000
TEXT_LENGTH_MAX: Final = 131_072
NAME_LENGTH_MAX: Final = 253
MASTER_RESOURCES: Final[Json] = {
    "limits": {"cpu": "2", "memory": "1Gi"},
    "requests": {"cpu": "1", "memory": "500Mi"},
}
"""The resources of a master that says none."""
TERMS_KEYS: Final = (
    MIN_INSTANCES_KEY,
    MAX_INSTANCES_KEY,
    ALLOWED_INSTANCES_KEY,
    FREEZING_WINDOW_KEY,
    PRIORITY_LEVEL_KEY,
)
"""The annotations of the Job of the trainers that say its terms; they are never inherited by pods."""
UNEVEN: Final = "spec.trainer: maxInstances should be equal to minInstances when faultTolerant is disabled"
UNEVEN_PADDLE: Final = "spec.trainer: max-instances should be equal to min-instances when fault_tolerant is disabled"

IGNORED: Final = "IgnoredField"
MISPLACED: Final = "MisplacedField"


class CleanPodPolicy(StrEnum):
    """When the finished pods of a job that has ended are deleted."""

    ALWAYS = "Always"
    NEVER = "Never"
    ON_COMPLETION = "OnCompletion"
    ON_FAILURE = "OnFailure"


class TrainingJob(Owner, frozen=True):
    """A TrainingJob that can be carried out.

    `label` is the value of the labels of PaddlePaddle. `trainers` start together with the master, if the job is
    `fault_tolerant`, and with the `pservers`; between `min_instances` and `max_instances` the scheduler chooses, of the
    `allowed` ones if there are any. `level` is empty where `priority_class` alone says the priority. `pod` has fields
    of every pod, and `mounts` the volume mounts of every main container. `ignored` has reason and note of Events.
    """

    label: str
    image: str
    fault_tolerant: bool
    passes: int
    port: int
    ports_num: int
    ports_num_for_sparse: int
    entrypoint: str
    workspace: str
    pservers: int
    trainers: int
    min_instances: int
    max_instances: int
    allowed: tuple[int, ...]
    window: str
    window_seconds: float
    level: str
    priority_class: str
    backoff_limit: int
    clean: CleanPodPolicy
    master_resources: Json
    pserver_resources: Json
    trainer_resources: Json
    pod: Json
    mounts: list[Any]
    ignored: tuple[tuple[str, str], ...]

    @property
    def masters(self) -> int:
        """The number of masters."""
        return int(self.fault_tolerant)

    @property
    def gang_min(self) -> int:
        """The number of pods that start together."""
        return self.masters + self.pservers + self.trainers

    @property
    def is_elastic(self) -> bool:
        """Whether the scheduler chooses the number of trainers."""
        return self.min_instances < self.max_instances


_Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX, description=f"a text of at most {TEXT_LENGTH_MAX} characters")]
_Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX, description="a name of at most 253 characters")]
_Count = Annotated[int, whole_number(1, INSTANCES_MAX)]
_CountOrNone = Annotated[int, whole_number(0, INSTANCES_MAX)]
_Level = Annotated[PriorityLevel, Meta(description="Experiment, Offline, Normal or Production")]
_Policy = Annotated[CleanPodPolicy, Meta(description="Always, Never, OnCompletion or OnFailure")]
_Allowed = Annotated[
    tuple[int, ...], Meta(max_length=ALLOWED_MAX, description=f"a list of at most {ALLOWED_MAX} whole numbers")
]
_Resources = Annotated[Resources, OBJECT]


class _Master(Struct):
    resources: _Resources | None = None


class _Pserver(Struct, rename="camel"):
    min_instances: _CountOrNone = 0
    max_instances: _CountOrNone | None = None
    resources: _Resources | None = None


class _Trainer(Struct, rename="camel"):
    min_instances: _Count
    max_instances: _Count | None = None
    allowed_instances: _Allowed = ()
    entrypoint: _Text = ""
    workspace: _Text = ""
    resources: _Resources | None = None


class _Spec(Struct, rename="camel"):
    trainer: Annotated[_Trainer, OBJECT]
    pserver: Annotated[_Pserver, OBJECT] | None = None
    master: Annotated[_Master, OBJECT] | None = None
    image: _Text = ""
    fault_tolerant: bool = False
    passes: Annotated[int, whole_number(1, PASSES_MAX)] = 1
    port: Annotated[int, whole_number(1, PORT_MAX)] = PORT
    ports_num: Annotated[int, whole_number(1, PORTS_MAX)] = 1
    ports_num_for_sparse: Annotated[int, whole_number(0, PORTS_MAX)] = 1
    host_network: bool = False
    priority_level: _Level | None = None
    priority_class_name: _Name = ""
    freezing_window: _Text = ""
    pool: _Name = ""
    queue: _Name = ""
    clean_pod_policy: _Policy = CleanPodPolicy.ON_COMPLETION
    backoff_limit: Annotated[int, whole_number(0, BACKOFF_LIMIT_MAX)] = BACKOFF_LIMIT


def read_training_job(document: Json, settings: Settings) -> TrainingJob:
    """Return the TrainingJob; raises SpecError."""
    if not is_paddle(document["apiVersion"]):
        return _read(document, document.get("spec") or {}, settings)
    try:
        found = _read(document, in_our_names(document.get("spec") or {}, document["metadata"]), settings)
    except SpecError as error:
        text = str(error)
        raise SpecError(UNEVEN_PADDLE if text == UNEVEN else in_paddle_names(text)) from error
    notes = tuple((reason, in_paddle_names(note)) for reason, note in found.ignored)
    return msgspec.structs.replace(found, ignored=notes)


def _read(document: Json, raw: Json, settings: Settings) -> TrainingJob:
    try:
        spec = msgspec.convert(raw, _Spec)
    except msgspec.ValidationError as error:
        raise SpecError(sentence(error, _Spec, raw, "spec")) from error
    metadata, trainer, pserver = document["metadata"], spec.trainer, spec.pserver or _Pserver()
    most = trainer.min_instances if trainer.max_instances is None else trainer.max_instances
    _check(spec, most)
    terms = tuple(sorted({trainer.min_instances, *_inside(trainer, most)})) if trainer.allowed_instances else ()
    master = spec.master.resources if spec.master else None
    named = {POOL_KEY: spec.pool, QUEUE_KEY: spec.queue}
    level = PriorityLevel.NORMAL if not (spec.priority_level or spec.priority_class_name) else spec.priority_level
    gang = dns_label(metadata["name"])
    return TrainingJob(
        api_version=document["apiVersion"],
        kind=KIND,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        gang=gang,
        annotations=inherited_annotations(metadata, TERMS_KEYS) | {key: name for key, name in named.items() if name},
        label=metadata["name"] if len(metadata["name"]) <= LABEL_LENGTH_MAX else gang,
        image=spec.image or settings.default_image or IMAGE,
        fault_tolerant=spec.fault_tolerant,
        passes=spec.passes,
        port=spec.port,
        ports_num=spec.ports_num,
        ports_num_for_sparse=spec.ports_num_for_sparse,
        entrypoint=trainer.entrypoint,
        workspace=trainer.workspace,
        pservers=pserver.min_instances,
        trainers=trainer.min_instances,
        min_instances=trainer.min_instances,
        max_instances=most,
        allowed=terms,
        window=spec.freezing_window or f"{FREEZING_WINDOW_SECONDS:.0f}s",
        window_seconds=_window(spec.freezing_window),
        level=level or "",
        priority_class=spec.priority_class_name,
        backoff_limit=spec.backoff_limit,
        clean=spec.clean_pod_policy,
        master_resources=amounts(master or Resources(), "spec.master.resources") or MASTER_RESOURCES,
        pserver_resources=amounts(pserver.resources or Resources(), "spec.pserver.resources"),
        trainer_resources=amounts(trainer.resources or Resources(), "spec.trainer.resources"),
        pod=_pod(spec, raw),
        mounts=raw.get("volumeMounts") or [],
        ignored=tuple(_joined(_ignored(spec, most, raw))),
    )


def _check(spec: _Spec, most: int) -> None:
    """Raise SpecError for what several fields show together."""
    trainer, pserver = spec.trainer, spec.pserver or _Pserver()
    least = trainer.min_instances
    if least > most:
        raise SpecError(_crossed("trainer", least, most))
    if pserver.max_instances and pserver.min_instances > pserver.max_instances:
        raise SpecError(_crossed("pserver", pserver.min_instances, pserver.max_instances))
    if not spec.fault_tolerant and least < most:
        raise SpecError(UNEVEN)
    for name, count, resources in (
        ("trainer", least, trainer.resources),
        ("pserver", pserver.min_instances, pserver.resources),
    ):
        if count and not _says(resources):
            raise SpecError(f"spec.{name}.resources has neither requests nor limits, and an instance needs one of them")
    pods = most + pserver.min_instances + spec.fault_tolerant
    if pods > GANG_SIZE_MAX:
        pods_text = f"with master and pservers that is {pods} pods, and at most {GANG_SIZE_MAX} are possible"
        raise SpecError(f"spec.trainer.maxInstances is {most}: {pods_text}")
    last = spec.port + spec.ports_num + spec.ports_num_for_sparse - 1
    if last > PORT_MAX:
        raise SpecError(f"spec.port is {spec.port}, so that the last port is {last}, more than {PORT_MAX}")


def _crossed(name: str, least: int, most: int) -> str:
    """Return why a minimum above its maximum is refused."""
    return f"spec.{name}.minInstances is {least}, more than maxInstances, which is {most}: lower it, or raise that"


def _says(resources: Resources | None) -> bool:
    return resources is not None and bool(resources.limits or resources.requests)


def _inside(trainer: _Trainer, most: int) -> Iterator[int]:
    return (size for size in trainer.allowed_instances if trainer.min_instances <= size <= most)


def _pod(spec: _Spec, raw: Json) -> Json:
    """Return the fields of every pod; the API server judges those that it gets as they are."""
    network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.host_network else {}
    priority = {"priorityClassName": spec.priority_class_name} if spec.priority_class_name else {}
    return network | priority | {name: raw[name] for name in ("volumes", "nodeSelector") if raw.get(name)}


def _ignored(spec: _Spec, most: int, raw: Json) -> Iterator[tuple[str, str]]:
    trainer, pserver = spec.trainer, spec.pserver or _Pserver()
    if "passes" in raw["trainer"]:
        yield MISPLACED, "spec.trainer.passes has no effect; the field is spec.passes"
    if (pserver.max_instances or 0) > pserver.min_instances:
        kept = f"the pservers stay at minInstances, {pserver.min_instances}"
        yield IGNORED, f"spec.pserver.maxInstances {pserver.max_instances} has no effect: {kept}"
    outside = sorted({*trainer.allowed_instances} - {*_inside(trainer, most)})
    if outside:
        sizes = ", ".join(map(str, outside))
        bounds = f"minInstances {trainer.min_instances} to maxInstances {most}"
        verb = "has" if len(outside) == 1 else "have"
        yield IGNORED, f"spec.trainer.allowedInstances: {sizes} {verb} no effect outside {bounds}"
    if "etcd-endpoint" in (raw.get("master") or {}):
        yield IGNORED, "spec.master.etcd-endpoint has no effect: the master has an etcd of its own"


def _joined(notes: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield one note for each reason."""
    known: dict[str, list[str]] = {}
    for reason, note in notes:
        known.setdefault(reason, []).append(note)
    for reason, texts in known.items():
        yield reason, "; ".join(texts)


def _window(text: str) -> float:
    """Return a freezing window in seconds; raises SpecError."""
    try:
        return duration_seconds("spec.freezingWindow", text) if text else FREEZING_WINDOW_SECONDS
    except FieldError as error:
        raise SpecError(str(error)) from error
