"""The protocols of plugins: a plugin is one class with one or more of them.

Invariants:
- A filter returns a mask over the rows of a view, a score a vector; neither loops over nodes in Python, a few apart.
- A plugin reads its arguments only: no clock, no random number, no memory of earlier pods.
- A `static` plugin reads only labels, taints, cordons and names of nodes, and the rare card types of pools. Its results
  are kept until those change; a live plugin is called again for each row that changed.
- A `Filter` judges a row by that row alone. A `CrossRowFilter` names what changes its answers.
- None means a filter that passes every row, or a score of zero. A live filter that returns None for a pod does so
  whatever else counts on the rows.

Source: the extension points of kube-scheduler; `helps` stands for its QueueingHints.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.framework.node_view import NodeView
from aischeduler.model.allocation import Allocation
from aischeduler.model.binding_request import BindingRequest
from aischeduler.model.gang import Gang, Lack
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.allocation_parts import AllocationPart
from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.ledger import Account, Sums
from aischeduler.state.node_table import NodeTable
from aischeduler.state.running_pods import Spare
from aischeduler.state.units import GangTable

Scores = npt.NDArray[np.int64]


class PlacementRequest(Struct, frozen=True, eq=False, gc=False):
    """A class of pods that needs a node, and the nodes that the pool prefers for it.

    `closed` is a mask over all rows, True where it may not run whatever the filters say; None where no row is closed.
    """

    spec: PodSpec
    placement: PlacementStrategy
    closed: Mask | None = None

    def open(self, rows: Rows) -> Rows:
        """Return those of `rows` that are not closed."""
        return rows if self.closed is None else rows[~self.closed[rows]]


class Filter(Protocol):
    """A plugin that decides on which rows a pod may run."""

    name: str
    static: bool

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        """Return a mask as long as `at`, True where the pod may run."""

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        """Return the reasons for rows that this filter refused: each text with its number of rows."""

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether a parked pod could pass this filter on the node, as the node is after a change.

        It saves a call of `filter` for a pod that never fits there: it must be fast, and True where it is unsure.
        """


@runtime_checkable
class AmountFilter(Filter, Protocol):
    """A live filter that reads amounts only, so that it can be called with any amounts.

    A row that passes also passes with less in use. `reasons` may be called with rows that pass: they count for nothing.
    """

    by_amounts: bool


@runtime_checkable
class LastingFilter(Filter, Protocol):
    """A live filter of which some refusals last whatever pods leave the row."""

    def resolvable(self, spec: PodSpec, at: NodeView) -> Mask:
        """Return a mask as long as `at`, False where the pod may not run whatever pods leave the row."""


@runtime_checkable
class NamingFilter(Filter, Protocol):
    """A filter that knows the rows that may pass, where the required terms of a pod name few nodes.

    Other rows need not be read. A pod without required terms of node affinity is not asked about.

    Source: kube-scheduler's PreFilterResult.
    """

    def named(self, spec: PodSpec, nodes: NodeTable) -> list[int] | None:
        """Return the only rows that may pass, ascending; None where there may be many."""


@runtime_checkable
class ResourceIgnoring(Protocol):
    """A filter that leaves some resources to another program: nothing of them counts for the pods of its profile."""

    ignores_any: bool

    def ignores(self, resource: str) -> bool:
        """Return whether requests of this resource count nowhere."""


class PreFilterState(Protocol):
    """What a `CrossRowFilter` knows of the table for one class of pods: counts as they are now, trials included."""

    def filter(self, at: NodeView) -> Mask:
        """Return a mask as long as `at`, True where the pod may run."""

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask as long as `at`, False where the pod may not run whatever pods leave the row."""

    def reasons(self, at: NodeView) -> Counter[str]:
        """Return the reasons for rows that this filter refused: each text with its number of rows."""


class CrossRowFilter(Protocol):
    """A filter whose answer for a row depends on more than the row. It runs after all other filters.

    It counts assigned pods by `counts`; what it returns changes only with these counts, with labels, taints and pools
    of nodes, and for a pod with volumes with `NodeTable.storage`. A state that keeps something keeps the versions of
    what it was made from (`state.kept`) beside it. Nothing of it is kept with the results of other filters. With an
    attribute `by_class` that is True, or a method of this name that returns True for a class, `applies` reads the class
    of the pod alone: it is asked once per class.
    """

    name: str

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the filter may refuse a row for the pod; False is Skip. It must be fast."""

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return what is counted for the pod: a change of it changes what this filter answers.

        The required anti-affinity that pods carry need not be named: it is counted, and wakes the pods it selects.
        """

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return what the filter needs for an attempt, from the last such value if there is one (PreFilter)."""


class PreScoreState(Protocol):
    """What a `CrossRowScore` knows of the table for one class of pods: counts as they are now, trials included."""

    def score(self, at: NodeView) -> Scores:
        """Return a vector from 0 to 100 as long as `at`, which has every row that fits: it is normalised over them."""


class CrossRowScore(Protocol):
    """A score whose value for a row depends on other rows: on pods there, or on which rows fit.

    It reads the counts of `scored`, and is asked in each call: nothing of it is kept with the results of other scores.
    With an attribute or a method `by_class` as that of `CrossRowFilter`, `prefers` is asked once per class.
    """

    name: str
    weight: int

    def prefers(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether rows may differ in score for the pod; False is Skip. It must be fast."""

    def scored(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return what is counted for the pod because the score reads it."""

    def prescore(self, ask: PlacementRequest, nodes: NodeTable, before: PreScoreState | None) -> PreScoreState:
        """Return what the score needs for an attempt, from the last such value if there is one (PreScore)."""


class Score(Protocol):
    """A plugin that scores rows from 0 to 100; the weighted sum of all scores decides.

    With `normalize` raw values are scaled over the feasible rows so that the largest becomes 100; with `reverse` the
    largest becomes 0. Only static scores are normalised.
    """

    name: str
    static: bool
    weight: int
    normalize: bool
    reverse: bool

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Return a vector as long as `at`; only the values of rows that passed every filter count."""


class EnqueueGate(Protocol):
    """A plugin that holds pods before their first attempt (PreEnqueue)."""

    name: str

    def holds(self, pod: Pod) -> str:
        """Return why the pod is held; empty where it is not."""


class Reserve(Protocol):
    """A plugin that keeps something of its own for a pod that is placed (Reserve, Unreserve)."""

    name: str

    def reserve(self, pod: Pod, node: str) -> None:
        """Keep what the pod needs on the node; it is placed there next."""

    def release(self, pod: Pod, node: str) -> None:
        """Give back what `reserve` kept: the pod was not bound, or it left the node. It may be called for any pod."""


class CannotAllocateError(Exception):
    """An allocator finds nothing for a pod on a row: its filter let pass what cannot be, or pods do not leave."""


class Allocator(Protocol):
    """A plugin that chooses what pods get for themselves on a row, and keeps a part of allocations for it (Reserve).

    `part` is the name of the part, one for all profiles. A filter has checked that the row has what the pod needs. With
    `for_claims` it chooses for pods that claim room too, without the pods that leave.
    """

    name: str
    part: str
    for_claims: bool

    def make_part(self, nodes: NodeTable) -> AllocationPart:
        """Return the part for a new table of nodes."""

    def allocates(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether pods of this class get something. It must be fast."""

    def choose(
        self, given: Allocation, spec: PodSpec, at: NodeView, state: PreFilterState | None, placement: PlacementStrategy
    ) -> Allocation:
        """Return what a pod gets on the one row of `at`, with what it is `given` there otherwise.

        `state` is what the plugin's own `prefilter` returned; None where it has none. `placement` is that of the pool.
        Raises CannotAllocateError.
        """

    def bound(self, given: Allocation, pod: Pod, nodes: NodeTable) -> Allocation:
        """Return what a bound pod has, as its object and its node say, with what it is `given` otherwise."""


@runtime_checkable
class GroupAllocator(Allocator, Protocol):
    """An allocator that chooses for the pods of a gang on one row at once, where the gang asks for one node."""

    def choose_together(
        self, given: Sequence[Allocation], specs: Sequence[PodSpec], at: NodeView, placement: PlacementStrategy
    ) -> tuple[Allocation, ...]:
        """Return what each pod gets on the one row of `at`, in place of what was chosen for one after another."""


class Quota(Protocol):
    """A plugin that says in which accounts of the ledger pods count, and how much these may hold (PreEnqueue).

    A pod counts while it is on a row or owns a claim, pods that were bound before too.
    """

    name: str

    def accounts_of(self, pod: Pod) -> tuple[Account, ...]:
        """Return the accounts of a pod; none where it counts in none. It must be fast."""

    def refuses(self, pod: Pod, asked: PodSpec, ledger: Sums) -> str:
        """Return why the pod, or its unit, which asks for as much, may not take it; empty where it may."""


class UnitMembers(Struct, frozen=True):
    """The pods of one unit that wait, and those that are on nodes; each sorted by uid.

    `gang` is the gang that they form; None where the policy knows none. With `started`, the unit was whole before, or
    may have been, and some of it is left: its pods on nodes are of use.
    """

    waiting: tuple[Pod, ...]
    placed: tuple[Pod, ...]
    gang: Gang | None = None
    started: bool = False


class Formed(Struct, frozen=True):
    """The waiting pods of a unit in the order in which they are placed: the first `required` of them all or none.

    The others are placed with them as room allows, and wait for themselves afterwards. With less than two `required`
    every pod waits for itself, unless they are to be placed `near` those on nodes: then each waits in the unit's place.
    """

    pods: tuple[Pod, ...]
    required: int
    near: bool = False


class Incomplete(Struct, frozen=True):
    """The waiting pods of a unit are not tried yet; the message says why, and `lacks` which pods it waits for."""

    message: str
    lacks: tuple[Lack, ...] = ()


class UnitPolicy(Protocol):
    """A plugin that says which pods are decided at once, as a gang is (Coscheduling's PreEnqueue, Permit and loss)."""

    name: str

    def unit_of(self, pod: Pod) -> str:
        """Return the name of the pod's unit, unique in the cluster; empty where the pod is a unit of one."""

    def gang_of(self, pods: tuple[Pod, ...], gangs: GangTable) -> Gang | None:
        """Return the gang that these pods of one unit form, sorted by uid; None where there is none."""

    def form(self, members: UnitMembers) -> Formed | Incomplete:
        """Return how the waiting pods of a unit wait, beside those that are on nodes."""

    def spare(self, members: UnitMembers) -> Spare | None:
        """Return how many pods on nodes may leave; None where they are fewer than start together."""


class Delayed(Struct, frozen=True):
    """The Binding waits; the rule is asked again after this time at the latest."""

    seconds: float


class Vetoed(Struct, frozen=True):
    """The pod is not bound to the node; the message says why."""

    message: str


class Permit(Protocol):
    """A plugin that may delay or veto a Binding after the pod was placed (Permit, and the wait of PreBind)."""

    name: str

    def permit(self, pod: Pod, node: str, waited_seconds: float) -> Delayed | Vetoed | None:
        """Return what stops the Binding, None where nothing does; the pod has waited for it since it was placed."""


class PostFilter(Protocol):
    """A plugin that is told when no node of a pool fits a pod (PostFilter)."""

    name: str

    def post_filter(self, pod: Pod, pool: str) -> str:
        """Return what the reason of the pod is to say beside why the pool's nodes do not fit; empty for nothing.

        It is called whenever that reason is made, also for an explanation.
        """


class QueueSort(Protocol):
    """A plugin that sorts the queues (QueueSort). It is one for all profiles.

    Home pods stay before borrowers, and the time of creation decides between equal ranks.
    """

    name: str

    def rank(self, pod: Pod) -> int:
        """Return the place of the pod: smaller is tried first. It changes only with the pod."""


class PreBind(Protocol):
    """A plugin that prepares the Binding of a placed pod, in the daemon (PreBind)."""

    name: str

    async def pre_bind(self, pod: Pod, node: str) -> None:
        """Prepare what the pod needs on the node; an exception refuses the Binding, and the pod is tried again."""


class BindPlugin(Protocol):
    """A plugin that binds pods itself, in the daemon (extension point Bind). DefaultBinder is asked last."""

    name: str

    async def bind(self, pod: Pod, node: str, request: BindingRequest) -> bool:
        """Return True once the API server has the pod on the node; False, with nothing done, for Skip.

        After an exception the pod is read: if it is on no node, it is tried again after its backoff.
        """


class PostBind(Protocol):
    """A plugin that is told of a Binding that succeeded, in the daemon (PostBind)."""

    name: str

    def post_bind(self, pod: Pod, node: str) -> None:
        """Note that the pod was bound; an exception is logged."""


class Plugins(Struct, frozen=True):
    """The plugins of a profile, in the order in which they are called. Without `preempts` no pod makes room."""

    gates: tuple[EnqueueGate, ...]
    filters: tuple[Filter, ...]
    scores: tuple[Score, ...]
    cross_row: tuple[CrossRowFilter, ...] = ()
    cross_scores: tuple[CrossRowScore, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    allocators: tuple[Allocator, ...] = ()
    quotas: tuple[Quota, ...] = ()
    permits: tuple[Permit, ...] = ()
    units: UnitPolicy | None = None
    volume_seconds: float | None = None
    """How long a Binding waits for its volumes (PreBind of VolumeBinding); None where it does not."""
    preempts: bool = True
    post_filters: tuple[PostFilter, ...] = ()
    queue_sort: QueueSort | None = None
    pre_binds: tuple[PreBind, ...] = ()
    post_binds: tuple[PostBind, ...] = ()
    binds: tuple[BindPlugin, ...] = ()
    default_binds: bool = True
    """Whether DefaultBinder binds the pods that all `binds` leave to it."""
    reads: tuple[str, ...] = ()
    """The keys of labels of pods by which plugins tell pods apart; `PodSpec.marks` has them."""
