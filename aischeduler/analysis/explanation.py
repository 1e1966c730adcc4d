"""Why a pod is where it is, as values: what `explain` finds, before anything prints it.

Invariants:
- An explanation names objects by name, and every amount is an integer in the unit of its resource.
- Every tuple has an order that ends in a unique name.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from aischeduler.model.card_shares import unit_of
from aischeduler.model.gang import Lack
from aischeduler.model.names import GPU_SHARE
from aischeduler.model.pod import Pod
from aischeduler.model.proposal import LenderRefusal
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import QueueSource
from aischeduler.model.times import time_text
from aischeduler.plugins.spread_filter import Skew


class Verdict(StrEnum):
    """The state of a pod, in one word."""

    BOUND = "bound"
    """It is on a node."""
    WAITS = "waits"
    """It waits for an attempt, or for an event that can help it."""
    NOMINATED = "nominated"
    """It waits for pods that are leaving a node."""
    HELD = "held"
    """It is not tried until what holds it changes."""
    GATED = "gated"
    """Its own scheduling gates hold it, or its unit does not start yet."""


class MissingKind(StrEnum):
    """What a node lacks for a pod."""

    RESOURCE = "resource"
    LABEL = "label"
    """A label, or a requirement on labels, that the node does not satisfy."""
    TOLERATION = "toleration"
    """The pod's toleration of a taint of the node."""
    SCHEDULABLE = "schedulable"
    """The node is cordoned."""
    PORT = "port"
    NAME = "name"
    """The node is not one of those that the pod names."""
    SPREAD = "spread"
    """The pod would exceed the maxSkew of a constraint in the domain of the node."""


class Missing(Struct, frozen=True, order=True):
    """One thing that a node lacks. `amount` of the `asked` amount is missing, in the unit of the resource.

    Of a domain, `amount` is the number of pods by which `skew` exceeds its maxSkew.
    """

    kind: MissingKind
    name: str
    amount: int = 0
    asked: int = 0
    skew: Skew | None = None


class NearestMiss(Struct, frozen=True):
    """The node that lacks the least of those that one rule refuses."""

    node: str
    missing: tuple[Missing, ...]


class Refusal(Struct, frozen=True):
    """A rule, and the number of `nodes` that it is the first to refuse; `reason` is kube-scheduler's text.

    `counts` says on how many of these nodes each thing is missing, amounts aside.
    """

    rule: str
    nodes: int
    reason: str
    counts: tuple[tuple[Missing, int], ...] = ()
    nearest: NearestMiss | None = None


class NoLoan(Struct, frozen=True):
    """A pool that does not lend to the pod, and why, in a sentence with the numbers.

    `refusal` is the reason as a word. The pool is the home pool where that may not borrow at all.
    """

    pool: str
    refusal: LenderRefusal
    reason: str


class RemedyKind(StrEnum):
    """The family of a remedy."""

    REQUEST = "request"
    NODE = "node"
    LIMIT = "limit"
    QUOTA = "quota"
    """A tenant queue lets more in."""
    FLAG = "flag"
    PODS_END = "podsEnd"


class Start(Struct, frozen=True):
    """Where a pod starts: the node, the pool of the node, and the pods (uids) that are evicted first.

    Of a unit, `nodes` has each pod (namespace/name) that starts with its node, sorted. A node is empty where it must be
    added; `node` is empty too for a pod that its unit does not need and that does not start with it.
    """

    node: str
    pool: str
    victims: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """The nodes of all pods that start, each once."""
        return tuple(dict.fromkeys(node for _, node in self.nodes)) or (self.node,)


class LowerRequest(Struct, frozen=True):
    """The pod requests `amount` of a resource instead of more."""

    resource: str
    amount: int


class EditPool(Struct, frozen=True):
    """These fields of the spec of a Pool change, as a merge patch; None removes a field."""

    pool: str
    spec: Mapping[str, bool | list[str] | dict[str, str] | None]


class EditQueue(Struct, frozen=True):
    """This merge patch changes a tenant queue, an object of the kind that `source` says."""

    queue: str
    source: QueueSource
    patch: Mapping[str, Any]


class EditQueues(Struct, frozen=True):
    """These tenant queues change, the queue of the pod before its ancestors."""

    edits: tuple[EditQueue, ...]


class EndPods(Struct, frozen=True):
    """These pods end."""

    pods: tuple[Pod, ...]


class EditNode(Struct, frozen=True):
    """A node is uncordoned, or gets labels that it does not have."""

    node: str
    uncordon: bool = False
    labels: Mapping[str, str] | None = None


class AddNode(Struct, frozen=True):
    """A node joins that equals `like` in all but its name, and is empty."""

    like: str


Edit = LowerRequest | EditPool | EditQueues | EndPods | EditNode | AddNode


class Remedy(Struct, frozen=True):
    """One change with which the pod starts. `cost` orders the remedies of one kind, the least first."""

    kind: RemedyKind
    text: str
    edit: Edit
    start: Start
    cost: tuple[int, str]


class Loan(Struct, frozen=True):
    """The loan on which a pod runs, or would run."""

    lender: str
    home: str


class PodUnit(Struct, frozen=True):
    """The unit of a pod: the pods (namespace/name) that wait together, else all that are known of it, sorted.

    `required` of those that wait start together or not at all; 0 where they do not wait together. `first_refused` is
    the first of them that fits on no node of its home pool beside those before it, if that keeps them waiting; `fit` is
    how many would fit there together now. `lacks` says which pods the unit waits for before it is tried.
    """

    name: str
    pods: tuple[str, ...]
    required: int
    first_refused: str = ""
    fit: int = 0
    lacks: tuple[Lack, ...] = ()


class QuotaLevel(Struct, frozen=True):
    """What a tenant queue says of one dimension: a resource, or with `is_card` cards by a name of them.

    `used` is what its pods and those below it hold, `asked` what the pods ask for that start together, in its `unit`.
    `quota` is None where it is not limited. Some level of a dimension that is `concerned` refuses. `holders` are
    those pods (namespace/name) that hold the most of what a level lacks that refuses.
    """

    queue: str
    name: str
    resource: str
    used: int
    asked: int
    quota: int | None
    is_card: bool = False
    refuses: bool = False
    concerned: bool = False
    holders: tuple[tuple[str, int], ...] = ()

    @property
    def unit(self) -> str:
        """The name of the unit of the amounts: hundredths of cards, or that of the resource."""
        return GPU_SHARE if self.is_card else unit_of(self.resource)[0]


class QuotaUse(Struct, frozen=True):
    """The quotas of a pod in a `queue`; with `replaces`, pods of an older version of its Deployment hold some of it."""

    queue: str
    levels: tuple[QuotaLevel, ...]
    replaces: bool = False

    @property
    def refusing(self) -> tuple[QuotaLevel, ...]:
        """The levels that refuse."""
        return tuple(level for level in self.levels if level.refuses)


class KeptPods(Struct, frozen=True):
    """Pods (namespace/name) that hold what a pod lacks, and a rule of tenant queues for which they are not evicted.

    `until_seconds` (unix) is when the first of them may go; None where time does not change it.
    """

    reason: str
    pods: tuple[str, ...]
    until_seconds: int | None = None

    @property
    def text(self) -> str:
        """The reason, with the time if there is one."""
        at = "" if self.until_seconds is None else f": the first may go at {time_text(self.until_seconds)}"
        return f"{self.reason}{at}"


class Explanation(Struct, frozen=True):
    """Everything about one pod. What is said of a pod that waits together with others holds for all of them.

    `pool` is the pool in whose queue it waits, or on whose node it is. `ahead` pods come before it in that queue; the
    first of them are named. `message` is what holds it, or the message that the scheduler reports.

    `total` nodes of its pool were looked at. A pod that waits although it fits has a `start`. A bound pod has its
    `node`, its `loan` if it is on one, and `ranking`: the nodes that fit now, the best first, with their scores.
    `asks` are its requests.
    """

    pod: Pod
    pool: str
    home: str
    verdict: Verdict
    asks: ResourceList
    message: str = ""
    hint: str = ""
    """What to edit of a queue that does not take the pod, where that is no remedy."""
    node: str = ""
    loan: Loan | None = None
    ahead: int = 0
    ahead_pods: tuple[str, ...] = ()
    total: int = 0
    refused: tuple[Refusal, ...] = ()
    preemption: str = ""
    leaving: tuple[str, ...] = ()
    """The pods (namespace/name) for whose end a nominated pod waits, or that it would evict."""
    kept: tuple[KeptPods, ...] = ()
    """The pods that it may not evict, where there are tenant queues."""
    borrowing: tuple[NoLoan, ...] = ()
    start: Start | None = None
    remedies: tuple[Remedy, ...] = ()
    fitting: int = 0
    ranking: tuple[tuple[str, int], ...] = ()
    unit: PodUnit | None = None
    quota: QuotaUse | None = None
    """Of a pod that waits in a tenant queue, where no room is held for it."""


def full_name(pod: Pod) -> str:
    """Return namespace and name of a pod."""
    return f"{pod.namespace}/{pod.name}"
