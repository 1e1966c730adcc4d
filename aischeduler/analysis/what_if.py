"""Changes of the state of an engine for one question, each undone at its end, and whether a pod starts then.

Invariants:
- `propose` alone decides whether a pod starts. Nothing here judges what fits.
- At the end of a change, every amount, pool, loan and pod is as before; only versions have grown.
- No pod is woken and no action is made: the engine must belong to the question alone, or be between two calls.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, structs
from msgspec.structs import replace

from aischeduler.analysis.explanation import Start, full_name
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.nominator import lifted_for, without
from aischeduler.engine.pod_counting import adopt, uncount
from aischeduler.engine.propose import propose
from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import Borrow, MakeRoom, Place, Proposal
from aischeduler.policies.eviction_order import gone_for
from aischeduler.policies.unit_placement import NotPlaced, place_unit
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.running_pods import NONE_TO_SPARE, Slots
from aischeduler.state.what_if import Clearing


class Question(Struct, frozen=True):
    """A pod, or a unit in the place of its lead, that waits at home, and the state in which it waits.

    `spec` is that of the pod, or of the first pod of the unit that does not fit; `named` (uid) is the pod asked about.
    """

    cluster: Cluster
    record: PodRecord
    now: float
    named: str
    spec: PodSpec

    @property
    def total(self) -> PodSpec:
        """A spec with the requests of the pod, or of the required pods of the unit together."""
        return self.cluster.total(self.record)

    @property
    def home(self) -> str:
        """The home pool of the pod."""
        return self.record.home

    def rows_of(self, pool: str) -> Rows:
        """Return the rows of a pool."""
        return self.cluster.nodes.rows_of_pool(self.cluster.pools.id(pool))

    def others(self) -> tuple[str, ...]:
        """Return the names of all pools but the home pool, sorted."""
        return tuple(name for name in self.cluster.pools.names() if name != self.home)

    def start(self, record: PodRecord | None = None) -> Start | None:
        """Return where the pod, or this changed record of it, starts as the state is now; None where it waits.

        It starts at once, at home or on loan, or after evictions. Pods ahead of it are not tried first.
        """
        record = record or self.record
        return self.start_by(record, proposed(self.cluster, record, self.now))

    def start_by(self, record: PodRecord, proposal: Proposal) -> Start | None:
        """Return where a proposal for a pod at home leads: a pod that borrows goes from lender to lender."""
        pool, records = record.home, self.cluster.records
        visited: tuple[str, ...] = (pool,)
        while isinstance(proposal, Borrow):
            pool, visited = proposal.lender, (*visited, proposal.lender)
            guest = _moved(record, pool, visited)
            proposal = propose(self.cluster, guest, pool, self.now, known=True)
        if not isinstance(proposal, Place | MakeRoom):
            return None
        victims = proposal.victims if isinstance(proposal, MakeRoom) else ()
        if record.leads is None:
            return Start(proposal.node, pool, victims)
        placed = {record.pod.uid: proposal.node, **{other.pod: other.node for other in proposal.others}}
        nodes = sorted((full_name(records[uid].pod), node) for uid, node in placed.items())
        return Start(placed.get(self.named, ""), pool, victims, tuple(nodes))

    @contextmanager
    def beside(self, pool: str) -> Iterator[tuple[int, PodRecord]]:
        """Place the pods of a unit that fit in a pool; yield how many, and the next pod. A single pod is the next.

        The claim of the pod, or of the unit, does not count meanwhile.
        """
        cluster, unit = self.cluster, self.record.leads
        own = cluster.claims.of(self.record.pod.uid)
        with without(cluster, (own,) if own is not None else ()) as trial:
            found = place_unit(cluster.unit_request(unit, pool), cluster.runner, self.rows_of(pool)) if unit else None
            fits, short = (found.pods, found.short) if isinstance(found, NotPlaced) else ((), 0)
            for fit in fits:
                trial.place(fit)
            yield len(fits), unit.pods[short] if unit else self.record


def question_of(cluster: Cluster, record: PodRecord, now: float) -> Question:
    """Return the question about a pod that waits, and the unit with which it does."""
    lead = at_home(record.waits_as)
    question = Question(cluster, lead, now, record.pod.uid, lead.pod.spec)
    with question.beside(question.home) as (_, short):
        return replace(question, spec=short.pod.spec)


def proposed(cluster: Cluster, record: PodRecord, now: float) -> Proposal:
    """Return the proposal for a pod in the queue of its home pool; the state counts as just refreshed.

    The Pool that the pod names exists if the engine knows it.
    """
    refreshed_at = cluster.freshness.refreshed_at
    before = refreshed_at.get(record.home)
    refreshed_at[record.home] = now
    try:
        return propose(cluster, record, record.home, now, known=True)
    finally:
        if before is None:
            del refreshed_at[record.home]
        else:
            refreshed_at[record.home] = before


def at_home(record: PodRecord) -> PodRecord:
    """Return the record as it is at the begin of an attempt at home: the same one where it waits there."""
    if record.queue == record.home and not record.visited:
        return record
    return _moved(record, record.home, ())


def _moved(record: PodRecord, queue: str, visited: tuple[str, ...]) -> PodRecord:
    """Return a copy of the record in another queue; that of a lead leads a copy of its unit."""
    moved, unit = replace(record, queue=queue, visited=visited), record.leads
    if unit is not None:
        pods = tuple(moved if member is record else member for member in unit.pods)
        moved.unit = replace(unit, lead=moved, pods=pods)
    return moved


def requesting(record: PodRecord, resource: str, amount: int) -> PodRecord:
    """Return a record of the same pod, at home, that requests this amount of a resource."""
    spec = record.pod.spec
    less = spec.request.amounts[resource] - amount
    request = replace(
        spec.request,
        amounts={**spec.request.amounts, resource: amount},
        score_cpu_milli=spec.request.score_cpu_milli - less * (resource == CPU),
        score_memory_bytes=spec.request.score_memory_bytes - less * (resource == MEMORY),
        scored_alone=None,
    )
    other = replace(spec, key=spec.key + f"/{resource}={amount}".encode(), request=request)
    return replace(record, pod=structs.replace(record.pod, spec=other), queue=record.home, visited=())


def importance(record: PodRecord) -> tuple[bool, int, int, str]:
    """Return the order in which pods end: borrowers, then lower priority, then later start, then uid."""
    pod = record.pod
    return (record.loan is None, pod.priority, -(pod.started_seconds or 2**62), pod.uid)


def may_leave(question: Question, slots: Slots) -> Mask:
    """Return a mask of the running pods in these slots that are leaving, or may be evicted for the pod."""
    return gone_for(question.cluster.preemptor_of(question.record), question.cluster.running.pods_in(slots))


@contextmanager
def room_of(question: Question, spec: PodSpec, rows: Rows, *, evicting: bool) -> Iterator[None]:
    """Free on rows of one pool what a pod of this spec may use; with `evicting`, every pod is gone that may leave.

    The claims of pods behind it in its home pool do not count.
    """
    cluster = question.cluster
    at_home = len(rows) and cluster.pool_of(int(rows[0])) == question.home
    claims = lifted_for(cluster, question.record, question.home) if at_home else ()
    with without(cluster, claims), clearing_for(cluster, spec, rows) as clearing:
        if evicting:
            slots = cluster.running.slots_on(rows)
            clearing.take_off(slots[may_leave(question, slots)])
        yield


def clearing_for(cluster: Cluster, spec: PodSpec, rows: Rows) -> Clearing:
    """Return a trial on the pods of these rows for a pod of this spec."""
    return Clearing(spec, cluster.nodes, cluster.running, rows, cluster.runner.counts(spec))


@contextmanager
def pool_as(cluster: Cluster, pool: Pool) -> Iterator[None]:
    """Give a Pool another spec; its nodeSelector stays the same."""
    before = cluster.pools.pools[pool.name]
    assert before.selector == pool.selector, "another selector moves nodes"
    cluster.pools.see(pool)
    try:
        yield
    finally:
        cluster.pools.see(before)


@contextmanager
def node_as(cluster: Cluster, node: Node) -> Iterator[None]:
    """Give a node of the same pool another spec or other labels."""
    before = cluster.nodes.nodes[cluster.nodes.rows[node.name]]
    assert before is not None, "the node exists"
    cluster.nodes.see(node)
    try:
        yield
    finally:
        cluster.nodes.see(before)


@contextmanager
def node_added(cluster: Cluster, node: Node) -> Iterator[None]:
    """Add an empty node of a name that no node has."""
    row, _ = cluster.nodes.see(node)
    cluster.pools.assign_row(row, node)
    try:
        yield
    finally:
        cluster.pools.assign_row(row, None)
        cluster.nodes.forget(node.name)


@contextmanager
def pods_ended(cluster: Cluster, records: Sequence[PodRecord]) -> Iterator[None]:
    """Take pods off their nodes, as if they were gone; the units that they leave are not formed again."""
    gone = [(record, record.assigned) for record in records]
    shrunk, before = cluster.ledger.shrunk, set(cluster.ledger.shrunk)
    spare, stale = dict(cluster.running.spare), dict(cluster.units.stale)
    for record in records:
        uncount(cluster, record)
    try:
        yield
    finally:
        for record, assigned in reversed(gone):
            cluster.nodes.add(assigned)
            adopt(cluster, record, assigned)
            if record.unit is not None:
                cluster.running.set_spare(record.unit.number, spare.get(record.unit.number, NONE_TO_SPARE))
        shrunk.intersection_update(before)
        cluster.units.stale = stale
