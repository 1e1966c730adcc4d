"""What fits of elastic jobs: a pass over their sizes, tried on the live table with the rules of an attempt.

Invariants:
- Between two slices nothing is on the table: what the pass has given and taken so far is put on and off anew, as far as
  its pods and nodes are still there.
- An instance that a job may grow by passes every rule of its pods, its queues and the limits of its loans, on a row
  that no waiting home pod of the row's pool can use now, and that no old minimum is kept for.
- Growth fills a pool no further than its `maxLoad` says.
- Instances go by the order in which the controller of the job ends them.
- Where one more instance of a kind has found no room, only rows from which the pass takes something are tried for that
  kind again: what a pass gives makes no room.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from types import TracebackType
from typing import Final, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.engine.elastic_ledger import PassLedger
from aischeduler.engine.elastic_pods import Kind, in_end_order, kind_of
from aischeduler.engine.propose import propose_briefly
from aischeduler.engine.quotas import growth_within
from aischeduler.engine.view import View
from aischeduler.model.card_shares import charge, counted, gpu_share
from aischeduler.model.device import NVIDIA_GPU
from aischeduler.model.names import CPU
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import WHOLE_LOAD
from aischeduler.model.proposal import Borrow, Hold, MakeRoom, Place, Wait, WaitFor
from aischeduler.policies.borrowing import BorrowingContext, gpus_by_row, lenders_in_order, wanted_by_home_pods
from aischeduler.policies.loan_limits import may_borrow
from aischeduler.policies.unit_placement import UnitPlacement, UnitRequest, assigned, place_unit, total_of
from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.ledger import Account, accounts_of_loan
from aischeduler.state.pod_records import USABLE, AssignedPod, PodRecord
from aischeduler.state.requests import requested
from aischeduler.state.what_if import Trial

NO_ROWS: Final = np.zeros(0, dtype=np.intp)


class JobPods(Struct):
    """The pods of one job: its instances that stay, in no order, and how many of them are on nodes.

    `minimum` are the waiting pods with which its minimum runs: the lead of its unit, or each for itself. It is empty
    where none waits, or where not all of them can be tried.
    """

    instances: list[PodRecord]
    on_nodes: int
    ordered: bool = True
    minimum: tuple[PodRecord, ...] = ()
    _in_end_order: list[PodRecord] | None = None

    def in_end_order(self) -> list[PodRecord]:
        """Return the instances, those that the controller ends first first."""
        if self._in_end_order is None:
            self._in_end_order = in_end_order(self.instances, ordered=self.ordered)
        return self._in_end_order


class _Pod(Struct, frozen=True):
    """A pod that the pass counts, or counts no more; `node` is the name of its row, and `accounts` are its own.

    A pod of a minimum may be no `instance`: a master, a parameter server.
    """

    pod: AssignedPod
    node: str
    accounts: tuple[Account, ...] = ()
    made: bool = False
    """Whether the pass has made it up: there is no such pod yet."""
    instance: bool = True


class _Step(Struct, frozen=True):
    """Pods of a job that the pass has given (`sign` 1) or taken (-1); `again` are such that it had taken before."""

    job: str
    sign: int
    pods: tuple[_Pod, ...]
    again: bool = False


class _Counted(Struct):
    """What the pass counts of one job beside its pods as they are, by uid."""

    given: dict[str, _Pod] = field(default_factory=dict)
    taken: dict[str, _Pod] = field(default_factory=dict)
    more: int = 0
    """How many more instances these are than are on nodes."""


class LiveRoom:
    """The room of the cluster for one pass. Inside `with` it is on the table."""

    def __init__(self, cluster: View, jobs: dict[str, JobPods]) -> None:
        self._cluster, self._jobs = cluster, jobs
        self._steps: list[_Step] = []
        self._counted = {name: _Counted() for name in jobs}
        self._made, self._real = dict[str, AssignedPod](), dict[str, AssignedPod]()
        self._gone = dict[str, AssignedPod]()
        """By uid: the pods that the pass has made up, those that wait and that it has given a row, and those taken."""
        self._nodes: dict[int, str] = {}
        """The rows of all these, and the names of their nodes."""
        self._ledger = PassLedger(cluster.ledger)
        self._freed: Counter[int] = Counter()
        """Rows from which the pass takes pods, and how many."""
        self._full: dict[Kind, int] = {}
        """Kind of instances -> the least number of more of them for which there was no room."""
        self._trial: Trial | None = None
        self._kept: dict[str, Mask] = {}
        self._kept_from_starts: set[str] = set()
        self._wanted: dict[str, Mask] = {}
        """Pool -> a mask of its rows that waiting home pods can use, until more room is free there."""
        self._could: dict[str, Mask] = {}
        """Waiting job -> a mask of the rows on which its minimum could run if they were empty."""
        self._numbers = count()

    def kept_nodes(self) -> dict[str, frozenset[str]]:
        """Return the nodes that are kept for old minima, by the jobs of these, in their order."""
        names = self._cluster.nodes.names
        kept = {job: mask for job, mask in self._kept.items() if job in self._kept_from_starts}
        return {job: frozenset(names[row] for row in np.flatnonzero(mask)) for job, mask in kept.items()}

    def __enter__(self) -> Self:
        self._trial = Trial(self._cluster.nodes)
        self._trial.__enter__()
        self._wanted, self._could = {}, {}
        try:
            self._put_on()
        except BaseException:  # what raises here does not reach `__exit__`
            self._trial.__exit__()
            self._trial = None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        trial, self._trial = self._trial, None
        assert trial is not None, "the room is open"
        trial.__exit__(kind, error, trace)

    @property
    def _open(self) -> Trial:
        assert self._trial is not None, "the room is open"
        return self._trial

    def _put_on(self) -> None:
        """Put what the pass has given and taken on the table, as far as its pods and nodes are still there."""
        cluster, gone = self._cluster, list[AssignedPod]()
        self._kept = {job: _as_wide(mask, cluster.nodes.width) for job, mask in self._kept.items()}
        names = cluster.nodes.names
        lost = {row for row, node in self._nodes.items() if row >= len(names) or names[row] != node}
        placed = list(self._made.values())
        if lost:
            placed = [pod for pod in placed if pod.row not in lost]
        for uid, pod in self._real.items():
            record = cluster.records.get(uid)
            if record is not None and record.counted is None and pod.row not in lost:
                placed.append(pod)
        for uid in self._gone:
            record = cluster.records.get(uid)
            gone += [record.assigned] if record is not None and record.counted is not None else []
        self._open.remove(gone)
        self._open.place_all(placed)

    def start(self, job: str) -> bool:
        """Count the pods of the minimum of a waiting job if they fit now; return whether they do.

        One that is about to make its own room, or whose pods are not all there, is no concern of the pass.
        """
        minimum, mark = self._minimum_of(job), len(self._steps)
        if any(self._cluster.claims.of(record.pod.uid) is not None for record in minimum):
            return True
        for lead in minimum:
            fits = self._start(job, lead)
            if not fits:
                self.return_to(mark)
            if fits is not None and not fits:
                return False
            if fits is None:
                return True
        return True

    def _start(self, job: str, lead: PodRecord) -> bool | None:
        """Count a waiting pod, or the unit that it leads, if that fits now; None where it is no concern of the pass."""
        cluster = self._cluster
        match propose_briefly(cluster, lead):
            case Place() as found:
                first = (lead.pod.uid, found.node, found.allocation)
                others = ((other.pod, other.node, other.allocation) for other in found.others)
                pods = []
                for uid, node, allocation in (first, *others):
                    record = cluster.records[uid]
                    pods.append(AssignedPod(record.pod, record.pod.spec, cluster.nodes.rows[node], allocation))
                self._give_minimum(job, lead, pods)
                return True
            case Borrow(lender):
                self._give_minimum(job, lead, self._abroad(lead, lender))
                return True
            case Wait(waits_for=waits_for):
                return None if waits_for in (WaitFor.REFRESH, WaitFor.CLAIM) else False
            case MakeRoom() | Hold():
                return None

    def _give_minimum(self, job: str, lead: PodRecord, pods: Iterable[AssignedPod]) -> None:
        instances = {record.pod.uid for record in self._jobs[job].instances}
        self._give(job, [self._pod(lead, pod, instance=pod.pod.uid in instances) for pod in pods])

    def _minimum_of(self, job: str) -> tuple[PodRecord, ...]:
        """Return the waiting pods with which the minimum of a job runs; none where one of them waits no longer."""
        minimum, records = self._jobs[job].minimum, self._cluster.records
        wait = all(records.get(record.pod.uid) is record and record.state in USABLE for record in minimum)
        return minimum if wait else ()

    def _abroad(self, lead: PodRecord, lender: str) -> Sequence[AssignedPod]:
        """Return the pods of a minimum on rows of a lender; none where that has no room for them any more."""
        cluster = self._cluster
        rows = self._rows_for_growth("", lender)
        ask = cluster.request_of(lead, lender)
        if isinstance(ask, UnitRequest):
            found = place_unit(ask, cluster.runner, rows)
            return found.pods if isinstance(found, UnitPlacement) else ()
        best = cluster.runner.best(ask, ask.open(rows))
        return () if best is None else (assigned(lead.pod, ask, best[0], cluster.runner),)

    def keep(self, job: str, *, from_starts: bool) -> None:
        """Let no other job grow from now on where the minimum of this one could run, nor start if `from_starts`.

        One that could not even start on the empty nodes of its pool keeps nothing.
        """
        minimum = self._minimum_of(job)
        if minimum and self._could_start(minimum):
            self._kept[job] = self._could_run(minimum, (minimum[0].home,))
            if from_starts:
                self._kept_from_starts.add(job)

    def _could_start(self, minimum: tuple[PodRecord, ...]) -> bool:
        """Return whether all nodes of its home pool, if they were empty, might hold a minimum: each of its specs alone.

        One that is larger than its pool waits for nodes, and keeps no other job from those that there are.
        """
        nodes, runner = self._cluster.nodes, self._cluster.runner
        rows = nodes.rows_of_pool(self._cluster.pools.id(minimum[0].home))
        pods = [record.pod.spec for lead in minimum for record in lead.together]
        counts = Counter(spec.key for spec in pods)
        for key, spec in {spec.key: spec for spec in pods}.items():
            on = rows[runner.could_run(spec, rows)]
            fit = np.full(len(on), len(pods), dtype=np.int64)
            for resource, amount in spec.request.amounts.items():
                if amount:
                    fit = np.minimum(fit, nodes.allocatable[nodes.column(resource), on] // requested(amount))
            if fit.sum() < counts[key]:
                return False
        return True

    def helps(self, job: str, other: str) -> bool:
        """Return whether the minimum of a waiting job could run where instances of another one are."""
        minimum = self._minimum_of(job)
        if not minimum:
            return False
        could = self._could.get(job)
        if could is None:
            home = minimum[0].home
            lenders = lenders_in_order(self._borrowing, home, self._cluster.ask(minimum[0].pod.spec, home, home))
            could = self._could[job] = self._could_run(minimum, (home, *lenders))
        instances = self._jobs[other].instances
        return any(record.counted is not None and could[record.row] for record in instances)

    def _could_run(self, minimum: tuple[PodRecord, ...], pools: Iterable[str]) -> Mask:
        """Return a mask of the rows of these pools on which a pod of a minimum could run if they were empty."""
        nodes, runner = self._cluster.nodes, self._cluster.runner
        found: Mask = np.zeros(nodes.width, dtype=np.bool_)
        specs = {record.pod.spec.key: record.pod.spec for lead in minimum for record in lead.together}
        for pool in pools:
            rows = nodes.rows_of_pool(self._cluster.pools.id(pool))
            for spec in specs.values():
                found[rows[runner.could_run(spec, rows)]] = True
        return found

    def grow(self, job: str, size: int) -> bool:
        """Count the instances up to this size if they fit now; return whether they do."""
        like, mark = self._like(job), len(self._steps)
        if like is None:
            return False
        kind, more = kind_of(like), size - self._count(job)
        known = self._full.get(kind)
        if known is not None and known <= more and not self._freed:
            return False
        for done in range(more):
            placed = self._place_one_more(job, like, only_freed=known == 1)
            if placed is None:
                self.return_to(mark)
                if not self._freed:
                    self._full[kind] = min(known or done + 1, done + 1)
                return False
            self._give(job, [placed])
        return True

    def _like(self, job: str) -> PodRecord | None:
        """Return the newest instance of a job that is still there: more would be like it."""
        records = self._cluster.records
        there = (record for record in self._jobs[job].instances if records.get(record.pod.uid) is record)
        return max(there, key=lambda record: (record.pod.created_seconds, record.pod.uid), default=None)

    def _count(self, job: str) -> int:
        """Return how many instances of a job are on nodes, with those that the pass has given and taken."""
        return self._jobs[job].on_nodes + self._counted[job].more

    def _place_one_more(self, job: str, like: PodRecord, *, only_freed: bool) -> _Pod | None:
        """Return one more instance like this one on a row; None where none fits."""
        if only_freed and not self._freed:
            return None
        pod = replace(like.pod, uid=f"{like.pod.uid}+{next(self._numbers)}", node_name="", devices=None)
        among = np.array(sorted(self._freed), dtype=np.intp) if only_freed else None
        return self._place(job, like, pod, among, made=True)

    def _place(
        self, job: str, like: PodRecord, pod: Pod, among: Rows | None = None, *, made: bool = False
    ) -> _Pod | None:
        """Return a pod like this one on the best row at home, else at a lender, `among` these; None where none fits."""
        cluster = self._cluster
        closed = growth_within(cluster, like, self._ledger) if cluster.has_quotas else None
        if closed is not None and closed.message:
            return None
        shut = closed.closed[0] if closed is not None and closed.closed else None
        for pool in self._pools_for(like, among):
            if made and not within_load(cluster, pool, pod.spec):
                continue
            ask = cluster.ask(pod.spec, pool, like.home, shut)
            rows = ask.open(self._rows_for_growth(job, pool, among))
            best = cluster.runner.best(ask, rows) if len(rows) else None
            if best is not None:
                return self._pod(like, assigned(pod, ask, best[0], cluster.runner), made=made)
        return None

    @property
    def _borrowing(self) -> BorrowingContext:
        """What a choice of a lender reads, with what the pass has given and taken."""
        return replace(self._cluster.borrowing, ledger=self._ledger)

    def _pools_for(self, like: PodRecord, among: Rows | None) -> Iterator[str]:
        """Yield the pools on whose nodes one more instance may run: its home pool, then lenders, the best first.

        With `among`, only those that have one of these rows.
        """
        cluster, home = self._cluster, like.home
        pools = None if among is None else {cluster.pool_of(row) for row in among.tolist()}
        if pools is None or home in pools:
            yield home
        if pools is not None:
            memories = cluster.nodes.cards.gpu_memories(cluster.nodes)
            total, loans = total_of([like.pod.spec], memories), self._borrowing
            if not any(may_borrow(loans, home, pool, total) for pool in pools - {home}):
                return
        lenders = lenders_in_order(self._borrowing, home, cluster.ask(like.pod.spec, home, home))
        yield from (lender for lender in lenders if pools is None or lender in pools)

    def _rows_for_growth(self, job: str, pool: str, among: Rows | None = None) -> Rows:
        """Return the rows of a pool that no waiting home pod can use, and that are kept for no other job."""
        cluster = self._cluster
        number = cluster.pools.id(pool)
        rows = cluster.nodes.rows_of_pool(number)
        if among is not None and not np.isin(among, rows, assume_unique=True).any():
            return NO_ROWS
        wanted = self._wanted.get(pool)
        if wanted is None:
            wanted = self._wanted[pool] = wanted_by_home_pods(cluster.borrowing, pool, rows)
        left = ~wanted
        for other, kept in self._kept.items():
            if other != job:
                left &= ~kept[rows]
        if among is not None:
            left &= np.isin(rows, among, assume_unique=True)
        return rows[left]

    def shrink(self, job: str, size: int) -> None:
        """Count the instances above this size no more; those that stay and wait take what becomes free first."""
        instances, counted = self._jobs[job].in_end_order(), self._counted[job]
        above = instances[: max(len(instances) - size, 0)]
        ended = [one for one in above if one.counted is not None and one.pod.uid not in counted.taken]
        names = self._cluster.nodes.names
        self._take(job, [_Pod(record.assigned, names[record.row], record.accounts) for record in ended])
        if len(above) == len(instances) or all(one.counted is not None for one in instances):
            return
        waiting = [one for one in instances[len(above) :] if one.counted is None and one.pod.uid not in counted.given]
        for record in waiting[len(waiting) - len(ended) :] if len(ended) < len(waiting) else waiting:
            placed = self._place(job, record, record.pod)
            if placed is None:
                break
            self._give(job, [placed])

    def restore(self, job: str, size: int) -> bool:
        """Count instances that `shrink` took again, where they were, if they still fit; return whether they do."""
        mark, instances, taken = len(self._steps), self._jobs[job].in_end_order(), self._counted[job].taken
        stay = reversed(instances[max(len(instances) - size, 0) :])
        for pod in [taken[record.pod.uid] for record in stay if record.pod.uid in taken]:
            row = np.array([pod.pod.row], dtype=np.intp)
            if not self._cluster.runner.passes(pod.pod.spec, row)[0]:
                self.return_to(mark)
                return False
            self._give(job, [pod], again=True)
        return True

    def mark(self) -> int:
        """Return a mark of what is counted now."""
        return len(self._steps)

    def return_to(self, mark: int) -> None:
        """Undo everything since this mark."""
        while len(self._steps) > mark:
            step = self._steps.pop()
            self._note(step, -1)
            pods = [pod.pod for pod in step.pods]
            if step.sign > 0:
                self._open.remove(pods)
                self._opened(step.pods)
            else:
                self._open.place_all(pods)

    def _pod(self, like: PodRecord, pod: AssignedPod, *, made: bool = False, instance: bool = True) -> _Pod:
        """Return a pod on a row as the pass counts it."""
        cluster, accounts = self._cluster, self._cluster.accounts_of(like, pod.row)
        pool = cluster.pool_of(pod.row)
        loan = accounts_of_loan((pool, like.home), "") if pool != like.home else ()
        return _Pod(pod, cluster.nodes.names[pod.row], (*loan, *accounts), made, instance)

    def _give(self, job: str, pods: Sequence[_Pod], *, again: bool = False) -> None:
        self._steps.append(_Step(job, 1, tuple(pods), again))
        self._note(self._steps[-1], 1)
        self._open.place_all(pod.pod for pod in pods)

    def _take(self, job: str, pods: Sequence[_Pod]) -> None:
        self._steps.append(_Step(job, -1, tuple(pods)))
        self._note(self._steps[-1], 1)
        self._open.remove([pod.pod for pod in pods])
        self._opened(pods)

    def _opened(self, pods: Iterable[_Pod]) -> None:
        """Have it asked again which rows of these pods' pools others want: more of them may be free now."""
        for pod in pods:
            self._wanted.pop(self._cluster.pool_of(pod.pod.row), None)

    def _note(self, step: _Step, sign: int) -> None:
        """Count a step of a job, or with a negative sign no more."""
        counted, more = self._counted[step.job], step.sign * sign
        for pod in step.pods if sign > 0 else reversed(step.pods):
            uid, row = pod.pod.pod.uid, pod.pod.row
            self._ledger.book(pod.accounts, pod.pod.spec, more, gpu_share(pod.pod.spec, pod.pod.allocation))
            self._nodes[row] = pod.node
            counted.more += more * pod.instance
            of = counted.taken if step.again or step.sign < 0 else counted.given
            together = self._gone if of is counted.taken else self._made if pod.made else self._real
            if (more > 0) == (of is counted.given):
                of[uid], together[uid] = pod, pod.pod
            else:
                del of[uid], together[uid]
            if of is counted.taken:
                self._freed[row] -= more
                if not self._freed[row]:
                    del self._freed[row]


def within_load(cluster: View, pool: str, spec: PodSpec) -> bool:
    """Return whether an elastic job may grow by such a pod on the nodes of a pool, by the `maxLoad` of that."""
    most, nodes = cluster.pools.pools[pool].max_load_thousandths, cluster.nodes
    if most >= WHOLE_LOAD:
        return True
    rows, cpu = nodes.rows_of_pool(cluster.pools.id(pool)), nodes.column(CPU)
    free, gpus = gpus_by_row(nodes)[:, rows].sum(axis=1).tolist()
    loads = (
        (spec.request.amounts.get(CPU, 0), int(nodes.used[cpu, rows].sum()), int(nodes.allocatable[cpu, rows].sum())),
        (counted(NVIDIA_GPU, charge(spec)), gpus - free, gpus),
    )
    return all(not asked or (asked + used) * WHOLE_LOAD <= most * offered for asked, used, offered in loads)


def _as_wide(mask: Mask, width: int) -> Mask:
    """Return a mask of rows of a table that has this width now."""
    return mask if len(mask) == width else np.resize(np.append(mask, np.zeros(width, dtype=np.bool_)), width)
