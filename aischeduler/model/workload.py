"""Workloads: what the objects that make pods say of them beside what the pods say themselves.

Invariant: what a pod says counts; what it does not say, its workload says, then the workload of that one.

Source: Volcano's `volcano.sh/` annotations, which its controllers copy from a workload to its PodGroup.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.model.elastic import ElasticJob

SERVICE_TYPE_KEY: Final = "volcano.sh/service.type"
PREEMPTABLE_KEY: Final = "volcano.sh/preemptable"
"""The annotation, on a pod the label too, that says whether pods may be evicted for others."""
CARD_NAME_KEY: Final = "volcano.sh/card.name"
"""The annotation of a pod with the names of the cards that it needs, the preferred first: A100|V100."""
CARD_REQUEST_KEY: Final = "volcano.sh/card.request"
"""The annotation of a workload with the number of cards of all its pods by name, as JSON: {"A100|V100": 8}."""
ON_EVICTION_KEY: Final = "resource.aibee.cn/on-eviction"
"""The annotation of a Job, a JobSet or a PodGroup: Restart or Abort."""
SUSPENDED_KEY: Final = "resource.aibee.cn/suspended-for-eviction"
"""The annotation of a Job or a JobSet that this scheduler has suspended to evict its pods: one of the next two."""
SUSPENDED_RESTART: Final = "restart"
"""It is resumed once its pods are gone."""
SUSPENDED_ABORT: Final = "abort"
"""It stays suspended."""


class ServiceType(StrEnum):
    """What pods are for, where their tenants share cards."""

    INFERENCE = "inference"
    TRAINING = "training"


class CardRequest(Struct, frozen=True):
    """So many cards of one of these `forms` (`model.card_types.card_form`), the preferred first; `name` as written."""

    name: str
    forms: tuple[str, ...]
    cards: int


class TenantTerms(Struct, frozen=True):
    """What a pod or a workload says of its tenant and its service; an empty field says nothing.

    `service_type` is the text as written, which may be no `ServiceType`. `preemptable` is None where nothing is said.
    With `aborts`, an evicted gang is not started again. `invalid` names a part that cannot be read, with the field.
    """

    queue: str = ""
    service_type: str = ""
    preemptable: bool | None = None
    card_request: tuple[CardRequest, ...] = ()
    aborts: bool = False
    invalid: str = ""


NO_TERMS: Final = TenantTerms()


class Workload(Struct, frozen=True):
    """An object that makes pods: a ReplicaSet, StatefulSet, DaemonSet, Job or JobSet, or the PodGroup of a gang.

    `owner` is the controller of the object itself, as `Deployment/web`; empty where it has none. `retries` is
    how many pods of a Job may fail before it fails itself (`backoffLimit`); -1 where no number of evictions makes it
    fail. `managed` is True where another program decides whether it is suspended. With `suspended`
    this scheduler has suspended it to evict its pods, and is to resume it once they are gone.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""
    owner: str = ""
    terms: TenantTerms = NO_TERMS
    retries: int = -1
    managed: bool = False
    suspended: bool = False
    elastic: ElasticJob | None = None
    """What it says of the number of its instances; None where it does not ask to be elastic."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies the object."""
        return self.kind, self.namespace, self.name


class Tenancy(Struct, frozen=True):
    """What counts for a pod of all that is said: by it, by its workload, by the kind of that one.

    `queue` is empty where it is in none. `service` is None where it is unknown. `known` is False while its workload was
    not seen, whose word is missing. `misspelt` is the text of a service type that is none.
    """

    queue: str = ""
    service: ServiceType | None = None
    preemptable: bool = True
    known: bool = True
    aborts: bool = False
    misspelt: str = ""
    card_request: tuple[CardRequest, ...] = ()
    invalid: str = ""


NO_TENANCY: Final = Tenancy()


class JobRef(Struct, frozen=True):
    """A Job or a JobSet that is suspended, or resumed, as a whole. With `aborts` it stays suspended."""

    kind: str
    namespace: str
    name: str
    uid: str
    aborts: bool = False
