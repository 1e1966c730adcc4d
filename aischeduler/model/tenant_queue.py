"""Tenant queues: the share of a tenant or a project, in cards by model and in other resources.

A tenant queue says whose share a pod uses; a Pool says on which machines it runs. The queue of pods that wait in a pool
is another thing, and is called the queue of the pool.

Invariants:
- A queue counts at each of its ancestors too. A resource that it does not name is not limited.
- With `cards`, a card that none of them covers has the quota 0; without, cards are not limited.
- A malformed part makes the queue invalid, and `invalid` names it: it takes nothing new. No other queue is affected.

Source: Queue of scheduling.volcano.sh/v1beta1, and capacity-card.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from aischeduler.model.names import GPU_SHARE
from aischeduler.model.quantity import quantity_text
from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import LabelSelector
from aischeduler.model.workload import ServiceType

QUEUE_KEY: Final = "resource.aibee.cn/queue"
"""The annotation that names the tenant queue of a pod, or of the pods of a workload."""
VOLCANO_QUEUE_KEY: Final = "scheduling.volcano.sh/queue-name"
DEFAULT_QUEUE: Final = "default"
"""The tenant queue of pods that name none, where there is one of our own kind."""
LEVELS_MAX: Final = 16
"""The most queues from one to its root, both counted."""
CARDS_MAX: Final = 64
"""The most card names of one queue."""


class TenantSettings(Struct, frozen=True):
    """What the configuration says of all tenants; a running scheduler takes it over anew.

    With `card_unlimited_cpu_memory`, pods with cards count neither in cpu nor in memory. `over_commit_milli`
    thousandths of the capability of a queue in cpu and memory are its quota. `service_types` are those of pods of
    which nothing else says one, by the kind of their owner. `non_preemptible` are the namespaces whose pods may say
    that they are not to be evicted, None for none of them.
    """

    card_unlimited_cpu_memory: bool = False
    over_commit_milli: int = 1000
    service_types: tuple[tuple[str, ServiceType], ...] = ()
    non_preemptible: LabelSelector | None = None


class QueueState(StrEnum):
    """Whether pods of a queue start, and run on."""

    OPEN = "Open"
    CLOSED = "Closed"
    """Nothing new starts."""
    DRAINING = "Draining"
    """Nothing new starts, and running pods are evicted after `drain_after_seconds`."""


class QueueSource(StrEnum):
    """The kind of the object that declares a queue; of one name, the first of this list counts."""

    OWN = "Queue"
    VOLCANO = "Queue.scheduling.volcano.sh"


class CardQuota(Struct, frozen=True):
    """So many `cards` of the form `card` (see `model.card_types.card_form`); `name` is what the user wrote."""

    name: str
    card: str
    cards: int


class TenantQueue(Struct, frozen=True):
    """A queue as its object says it.

    `parent` is empty for a root. `capability` bounds what its pods take together. `allowed_namespaces` None means all.
    Of durations, in seconds: a pod may be reclaimed once it has run for `min_runtime_seconds`; pods above a lowered
    quota are evicted after `shrink_after_seconds`, None for never; pods of a queue that drains after
    `drain_after_seconds`. `over_quota_since_seconds` and `draining_since_seconds` are when its status began to say so,
    in unix seconds, 0 where it does not. `ignored` are fields that are set and have no meaning here.
    """

    name: str
    source: QueueSource = QueueSource.OWN
    uid: str = ""
    generation: int = 0
    parent: str = ""
    capability: ResourceList = field(default_factory=dict)
    cards: tuple[CardQuota, ...] = ()
    priority: int = 0
    reclaimable: bool = True
    state: QueueState = QueueState.OPEN
    allowed_namespaces: LabelSelector | None = None
    min_runtime_seconds: int = 0
    shrink_after_seconds: int | None = None
    drain_after_seconds: int = 0
    over_quota_since_seconds: int = 0
    draining_since_seconds: int = 0
    ignored: tuple[str, ...] = ()
    invalid: str = ""


class CardUse(Struct, frozen=True):
    """The cards of one form that pods of a queue use, and its quota; None where it is not limited."""

    card: str
    used_hundredths: int
    quota: int | None = None

    @property
    def used(self) -> str:
        """How many cards they use, as 2.5."""
        return quantity_text(GPU_SHARE, self.used_hundredths)


class QueueSummary(Struct, frozen=True):
    """The numbers of one queue with all that count in it: cpu in milli, memory in bytes, everything else in units.

    The shares of GPUs are GPU_SHARE, beside whole ones under their names.
    `used` are the requests of its pods on nodes and of those that own claims, `borrowed` what of it is on nodes of
    other pools than their own; `pending` are the requests of `pending_pods` that wait, held ones too. `quota` is the
    capability, each in its unit (`unit_of`). `cards` are sorted by name: those that it names, and others that it uses.
    """

    used: ResourceList
    pending: ResourceList
    borrowed: ResourceList
    quota: ResourceList
    cards: tuple[CardUse, ...] = ()
    pods: int = 0
    pending_pods: int = 0
