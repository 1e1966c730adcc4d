"""The objects that the operator makes for a TrainingJob, and what it reads of the Job of its trainers.

Invariants:
- Every pod says in labels and annotations all that the scheduler needs of the gang: master, pservers and the trainers
  of the minimum start together.
- The Job gets its size once, when it is made: its parallelism and its completions belong to the scheduler.
- What the pods of a gang agree on (how many start together, whether there is a master) is that of the Job that exists.

Source: commands, variables, labels and ports of PaddlePaddle's jobs; podFailurePolicy of batch/v1.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.decode.elastic_terms import ElasticAnnotations, read_notes
from aischeduler.model.elastic import (
    ALLOWED_INSTANCES_KEY,
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
    RESIZE_REASON_KEY,
)
from aischeduler.model.gang import GANG_MIN_KEY, GANG_ROLE_KEY, GANG_ROLE_MIN_KEY
from aischeduler.model.names import CPU
from aischeduler.model.quantity import parse_milli, parse_units
from aischeduler.operator.objects import ATTEMPT_KEY, INDEX_KEY, metadata_of, pod_name
from aischeduler.operator.owner import KEY_PREFIX, LABEL_LENGTH_MAX, Json, Role, Settings, dns_label
from aischeduler.operator.paddle_spec import in_paddle_names, is_paddle
from aischeduler.operator.training_job import TERMS_KEYS, TrainingJob

MASTER: Final = "master"
PSERVER: Final = "pserver"
TRAINER: Final = "trainer"
ROLES: Final = (MASTER, PSERVER, TRAINER)
LABELS: Final = {MASTER: "paddle-job-master", PSERVER: "paddle-job-pserver", TRAINER: "paddle-job"}
"""The label of PaddlePaddle for the pods of each role; its value is the name of the TrainingJob."""
MADE_FOR_KEY: Final = KEY_PREFIX + "training-job"
"""The annotation of the pods of a Job that names the TrainingJob: GROUP/VERSION/NAME."""
JOB_INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
"""The label that the Job controller gives each pod of an Indexed Job."""
JOB_NAME_LENGTH_MAX: Final = LABEL_LENGTH_MAX - len("-4999")
"""The hostname of a pod of an Indexed Job is the name of the Job with the index."""
PROGRAM: Final = "paddle_k8s"
"""The program in the images of PaddlePaddle that starts each role."""
MASTER_PORTS: Final = {"master-port": 8080, "etcd-port": 2379}
ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.2.1"
ETCD_RESOURCES: Final[Json] = {"requests": {"cpu": "100m", "memory": "128Mi"}}
EDITED: Final = "EditIgnored"
"""The reason of the Event for an edit of what the Job that exists has fixed, and of a job that has ended."""
ANEW: Final = "Delete the TrainingJob and create it again for that"
ENDED: Final = f"the edit has no effect: the job has ended, and never starts again. {ANEW}"
"""The note of the Event for an edit of a job that has ended."""
GPU_SUFFIX: Final = "gpu"
"""How the name of a resource ends that is a whole GPU: nvidia.com/gpu."""


class SeenJob(Struct, frozen=True):
    """The Job of the trainers as it was seen; `size` is its parallelism.

    Of its pods `succeeded` and `failed` ended so. `failure` says why it has failed, empty where it has not.
    `resized_at_seconds` is when the scheduler wrote its size last, in unix seconds, 0 for never, and `why` its reason;
    `written_size` is the size that it wrote, 0 for none.
    """

    name: str
    uid: str
    size: int
    succeeded: int = 0
    failed: int = 0
    complete: bool = False
    failure: str = ""
    resized_at_seconds: float = 0.0
    why: str = ""
    written_size: int = 0


def job_name(job: TrainingJob) -> str:
    """Return the name of the Job of the trainers."""
    return dns_label(f"{job.name}-{TRAINER}", JOB_NAME_LENGTH_MAX)


def seen_job(document: Json) -> SeenJob:
    """Return what a Job says."""
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    ends = {one["type"]: one for one in status.get("conditions") or () if one.get("status") == "True"}
    failed = ends.get("Failed")
    notes = read_notes(msgspec.convert(annotations, ElasticAnnotations))
    return SeenJob(
        name=metadata["name"],
        uid=metadata["uid"],
        size=spec.get("parallelism", 1),
        succeeded=status.get("succeeded") or 0,
        failed=status.get("failed") or 0,
        complete="Complete" in ends,
        failure="" if failed is None else str(failed.get("message") or failed.get("reason") or "the Job failed"),
        resized_at_seconds=notes.resized_at_seconds,
        why=annotations.get(RESIZE_REASON_KEY, ""),
        written_size=notes.size,
    )


def as_made(job: TrainingJob, document: Json) -> TrainingJob:
    """Return the TrainingJob with what the Job that exists has fixed; `ignored` then names what of an edit waits."""
    labels = document["spec"]["template"]["metadata"]["labels"]
    env = document["spec"]["template"]["spec"]["containers"][0].get("env") or ()
    pservers = int(next((one["value"] for one in env if one["name"] == "PSERVERS"), job.pservers))
    trainers = int(labels.get(GANG_ROLE_MIN_KEY, job.trainers))
    masters = int(labels.get(GANG_MIN_KEY, job.gang_min)) - pservers - trainers
    least = max(job.min_instances, trainers)
    most = max(job.max_instances, least)
    made = replace(
        job,
        fault_tolerant=masters > 0,
        pservers=pservers,
        trainers=trainers,
        min_instances=least,
        max_instances=most,
        allowed=tuple(sorted({least, *(size for size in job.allowed if size >= least)})) if job.allowed else (),
    )
    resized = not is_annotated(document) and not made.is_elastic and job.min_instances != trainers
    waits = [
        *(["spec.faultTolerant"] if made.fault_tolerant != job.fault_tolerant else []),
        *(["spec.pserver.minInstances"] if pservers != job.pservers else []),
        *(["spec.trainer.minInstances"] if job.min_instances < trainers or resized else []),
    ]
    if not waits:
        return made
    why = "the pods that run were started together without it"
    note = f"the edit of {', '.join(waits)} has no effect: {why}. {ANEW}"
    return replace(
        made, ignored=(*job.ignored, (EDITED, in_paddle_names(note) if is_paddle(job.api_version) else note))
    )


def is_annotated(document: Json) -> bool:
    """Return whether a Job says that it is elastic."""
    return MIN_INSTANCES_KEY in (document["metadata"].get("annotations") or {})


def terms(job: TrainingJob) -> dict[str, str]:
    """Return the annotations with which the Job says its terms."""
    return {
        MIN_INSTANCES_KEY: str(job.min_instances),
        MAX_INSTANCES_KEY: str(job.max_instances),
        FREEZING_WINDOW_KEY: job.window,
        **({ALLOWED_INSTANCES_KEY: ",".join(map(str, job.allowed))} if job.allowed else {}),
        **({PRIORITY_LEVEL_KEY: job.level} if job.level else {}),
    }


def changed_terms(job: TrainingJob, document: Json) -> dict[str, str | None]:
    """Return the annotations of the Job to write, None to remove one: only of a Job that is elastic, or was."""
    if not job.is_elastic and not is_annotated(document):
        return {}
    wanted, known = terms(job), document["metadata"].get("annotations") or {}
    return {key: wanted.get(key) for key in TERMS_KEYS if wanted.get(key) != known.get(key)}


def roles_of(job: TrainingJob) -> tuple[Role, ...]:
    """Return the roles whose pods the operator makes itself."""
    counts = ((MASTER, job.masters), (PSERVER, job.pservers))
    return tuple(Role(name, count, count, 0, _container(job, name)) for name, count in counts if count)


class TrainingMaker:
    """Makes the objects of one TrainingJob."""

    def __init__(self, job: TrainingJob, settings: Settings) -> None:
        self._job = job
        self._scheduler_name = settings.scheduler_name

    def pod(self, role: Role, index: int, attempt: int) -> Json:
        """Return the document of the n-th pod of this role and index."""
        name = pod_name(self._job.name, role.name, index)
        labels = {**self._labels(role.name, role.replicas), INDEX_KEY: str(index)}
        annotations = {**self._job.annotations, ATTEMPT_KEY: str(attempt)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata_of(self._job, name, labels, annotations),
            "spec": {"hostname": name, **self._pod_spec(role.name, role.container)},
        }

    def job(self) -> Json:
        """Return the Job of the trainers, at its minimum."""
        job = self._job
        metadata = metadata_of(job, job_name(job), {LABELS[TRAINER]: job.label}, terms(job) if job.is_elastic else None)
        made_for = f"{job.api_version}/{job.name}"
        labels = metadata["labels"] | self._labels(TRAINER, job.trainers)
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "parallelism": job.trainers,
                "completions": job.trainers,
                "completionMode": "Indexed",
                "backoffLimit": job.backoff_limit,
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                },
                "template": {
                    "metadata": {"labels": labels, "annotations": {**job.annotations, MADE_FOR_KEY: made_for}},
                    "spec": self._pod_spec(TRAINER, _container(job, TRAINER)),
                },
            },
        }

    def _labels(self, role: str, least: int) -> dict[str, str]:
        return {
            GANG_MIN_KEY: str(self._job.gang_min),
            GANG_ROLE_KEY: role,
            GANG_ROLE_MIN_KEY: str(least),
            LABELS[role]: self._job.label,
        }

    def _pod_spec(self, role: str, container: Json) -> Json:
        return {
            **self._job.pod,
            "schedulerName": self._scheduler_name,
            "restartPolicy": "Never",
            "subdomain": self._job.gang,
            "containers": [{**container, "name": role}, *([_etcd()] if role == MASTER else [])],
        }


def _container(job: TrainingJob, role: str) -> Json:
    resources = {MASTER: job.master_resources, PSERVER: job.pserver_resources, TRAINER: job.trainer_resources}[role]
    ports = range(job.port, job.port + job.ports_num + job.ports_num_for_sparse)
    named = MASTER_PORTS if role == MASTER else {f"jobport-{port}": port for port in ports}
    return {
        "image": job.image,
        "command": _command(job, role),
        "env": _environment(job),
        "ports": [{"name": name, "containerPort": port} for name, port in named.items()],
        "resources": resources,
        **({"volumeMounts": job.mounts} if job.mounts else {}),
    }


def _command(job: TrainingJob, role: str) -> list[str]:
    """Return the command of a role; those that are fault tolerant are called new."""
    if role == MASTER:
        return [PROGRAM, "start_master"]
    if job.fault_tolerant:
        return [PROGRAM, f"start_new_{role}"]
    return [PROGRAM, f"start_{role}", *(["v2"] if role == TRAINER else [])]


def _environment(job: TrainingJob) -> list[Any]:
    """Return the variables; TRAINERS and PSERVERS are those of the minimum, whatever the size."""
    gpus = _gpus(job.trainer_resources)
    said = {
        "PADDLE_JOB_NAME": job.label,
        "TRAINERS": job.trainers,
        "PSERVERS": job.pservers,
        "ENTRY": job.entrypoint,
        "TRAINER_PACKAGE": job.workspace,
        "PADDLE_INIT_PORT": job.port,
        "PADDLE_INIT_TRAINER_COUNT": gpus or _cores(job.trainer_resources),
        "PADDLE_INIT_PORTS_NUM": job.ports_num,
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": job.ports_num_for_sparse,
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": job.trainers,
        "PADDLE_INIT_NUM_PASSES": job.passes,
        "PADDLE_INIT_USE_GPU": int(gpus > 0),
    }
    taken = {"NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    return [
        *({"name": name, "value": str(value)} for name, value in said.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in taken.items()),
    ]


def _gpus(resources: Json) -> int:
    """Return the whole GPUs of a trainer, which are in its limits."""
    limits = resources.get("limits") or {}
    return sum(parse_units(amount) for name, amount in limits.items() if name.endswith(GPU_SUFFIX))


def _cores(resources: Json) -> int:
    """Return the whole cores that a trainer asks for, at least one."""
    found = [(resources.get(name) or {}).get(CPU) for name in ("requests", "limits")]
    amount = next((amount for amount in found if amount is not None), "1")
    return max(parse_milli(amount) // 1000, 1)


def _etcd() -> Json:
    """Return the container with the etcd of a fault-tolerant job."""
    client, listened = "http://$(POD_IP):2379", "http://0.0.0.0:2379"
    peer = "http://$(POD_IP):2380"
    return {
        "name": "etcd",
        "image": ETCD_IMAGE,
        "command": [
            "etcd",
            "--name=master",
            f"--advertise-client-urls={client}",
            f"--listen-client-urls={listened}",
            f"--initial-advertise-peer-urls={peer}",
            f"--listen-peer-urls={peer}",
            f"--initial-cluster=master={peer}",
        ],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": ETCD_RESOURCES,
    }
