"""The objects that the operator makes for a BatchProcess, and what it reads of pods.

Invariants:
- A pod carries all that the scheduler needs of its gang in labels and annotations; the scheduler reads no BatchProcess.
- A pod of a role and index always has the same name, hostname and environment for the same spec.
- The owner reference has no `blockOwnerDeletion`, which would need a right to finalizers.
"""

from typing import Any, Final

from msgspec import Struct

from aischeduler.model.gang import GANG_KEY, GANG_MIN_KEY, GANG_ROLE_KEY, GANG_ROLE_MIN_KEY
from aischeduler.model.times import unix_seconds
from aischeduler.operator.batch_process import BatchProcess
from aischeduler.operator.owner import KEY_PREFIX, Json, Owner, Role, Settings, dns_label

INDEX_KEY: Final = KEY_PREFIX + "role-index"
"""The label with the index of a pod in its role."""
RANK_KEY: Final = "apps.kubernetes.io/pod-index"
"""The label with the rank of a pod, as the environment variable RANK; StatefulSets have the same label."""
ATTEMPT_KEY: Final = KEY_PREFIX + "attempt"
"""The annotation of a pod: it is the n-th pod of its name."""
MADE_BY_KEY: Final = "app.kubernetes.io/managed-by"
MADE_BY: Final = "ai-scheduler-operator"
"""The value of `MADE_BY_KEY` on every object that the operator makes."""
MASTER_PORT: Final = "23456"
"""The port that frameworks meet at unless the process says another, as in Kubeflow's PyTorchJob."""
PEERS_LENGTH_MAX: Final = 16_000
"""A longer PEERS is left out: every pod has it, so it would fill etcd with the square of the number of pods."""
CONTAINER: Final = "main"


class SeenPod(Struct, frozen=True):
    """A pod as it was seen. `place` is its role and index, `attempt` counts the pods of its name up to it.

    `phase` is that of its status. `lost_seconds` is when its container failed, in unix seconds; 0 where the pod was
    evicted or the time is unknown: it may be replaced at once. `why` says why it waits or failed, in the words of the
    scheduler or the kubelet.
    """

    name: str
    uid: str
    place: tuple[str, int]
    attempt: int
    phase: str
    terminating: bool
    bound: bool
    lost_seconds: float = 0.0
    why: str = ""


def seen_pod(document: Json, owner_uid: str, index_key: str = INDEX_KEY) -> SeenPod | None:
    """Return a pod of this owner with an index in this label; None for any other."""
    metadata = document["metadata"]
    labels = metadata.get("labels") or {}
    owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    index = labels.get(index_key, "")
    if owners != [owner_uid] or not index.isdecimal():
        return None
    attempt = (metadata.get("annotations") or {}).get(ATTEMPT_KEY, "")
    status = document.get("status") or {}
    return SeenPod(
        name=metadata["name"],
        uid=metadata["uid"],
        place=(labels.get(GANG_ROLE_KEY, ""), int(index)),
        attempt=max(int(attempt), 1) if attempt.isdecimal() else 1,
        phase=status.get("phase", "Pending"),
        terminating="deletionTimestamp" in metadata,
        bound=bool((document.get("spec") or {}).get("nodeName")),
        lost_seconds=_lost_seconds(status),
        why=_why(status),
    )


def _lost_seconds(status: Json) -> float:
    if status.get("reason") or any(
        condition.get("type") == "DisruptionTarget" for condition in status.get("conditions") or ()
    ):
        return 0.0  # the node or the cluster ended it: its program has not failed
    ends = (ended["finishedAt"] for ended in _terminations(status) if ended.get("finishedAt"))
    return max((unix_seconds(end) for end in ends), default=0.0)


def _why(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    for ended in _terminations(status):
        if ended.get("exitCode"):
            return f"exit status {ended['exitCode']}"
    return str(status.get("message") or status.get("reason") or "")


def _terminations(status: Json) -> list[Json]:
    states = [container.get("state") or {} for container in status.get("containerStatuses") or ()]
    return [state.get("terminated") or {} for state in states]


def pod_name(owner: str, role: str, index: int) -> str:
    """Return the name of the pod of a role with this index, from 0."""
    return dns_label(f"{owner}-{role}-{index}")


def gang_selector(owner: Owner) -> dict[str, str]:
    """Return the labels of everything that is made for this owner, its pods among it."""
    return {MADE_BY_KEY: MADE_BY, GANG_KEY: owner.gang}


def metadata_of(owner: Owner, name: str, labels: Json, annotations: Json | None = None) -> Json:
    """Return the metadata of an object that is made for this owner."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": {**gang_selector(owner), **labels},
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [reference],
    }


def service(owner: Owner) -> Json:
    """Return the headless Service that gives every pod an address before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(owner, owner.gang, {}),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": gang_selector(owner)},
    }


class PodMaker:
    """Makes the pods of one BatchProcess."""

    def __init__(self, process: BatchProcess, settings: Settings) -> None:
        self._process = process
        self._scheduler_name = settings.scheduler_name
        addresses = [self._address(role.name, index) for role in process.roles for index in range(role.replicas)]
        self._master = addresses[0]
        peers = ",".join(addresses)
        self._peers = [{"name": "PEERS", "value": peers}] if len(peers) <= PEERS_LENGTH_MAX else []

    def pod(self, role: Role, index: int, attempt: int) -> Json:
        """Return the document of the n-th pod of this role and index."""
        process, name = self._process, pod_name(self._process.name, role.name, index)
        rank = role.first_rank + index
        labels = {
            GANG_MIN_KEY: str(process.min_available),
            GANG_ROLE_KEY: role.name,
            INDEX_KEY: str(index),
            RANK_KEY: str(rank),
        }
        if role.min_available:
            labels[GANG_ROLE_MIN_KEY] = str(role.min_available)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata_of(process, name, labels, {**process.annotations, ATTEMPT_KEY: str(attempt)}),
            "spec": {
                **process.pod,
                "schedulerName": self._scheduler_name,
                "restartPolicy": "Never",
                "hostname": name,
                "subdomain": process.gang,
                "containers": [{**role.container, "name": CONTAINER, "env": self._environment(role, index, rank)}],
            },
        }

    def _address(self, role: str, index: int) -> str:
        """Return a name that resolves in the namespace of the pods."""
        return f"{pod_name(self._process.name, role, index)}.{self._process.gang}"

    def _environment(self, role: Role, index: int, rank: int) -> list[Any]:
        """Return the variables; what the process itself sets comes last and is not set twice."""
        ours = {
            "RANK": str(rank),
            "WORLD_SIZE": str(self._process.replicas),
            "ROLE": role.name,
            "ROLE_RANK": str(index),
            "ROLE_SIZE": str(role.replicas),
            "MASTER_ADDR": self._master,
            "MASTER_PORT": MASTER_PORT,
        }
        own = role.container.get("env") or []
        taken = {variable["name"] for variable in own}
        made = [*({"name": name, "value": value} for name, value in ours.items()), *self._peers]
        return [*(variable for variable in made if variable["name"] not in taken), *own]
