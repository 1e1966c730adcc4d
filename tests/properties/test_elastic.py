"""Random histories with elastic jobs: sizes stay in their bounds, windows are kept, and nobody goes in vain.

The invariants of the engine are checked after each step (`tests.checked_scheduler`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aischeduler.engine.cluster import Cluster
from aischeduler.model.actions import Action, Bind, Evict, Resize, ResizeReason
from aischeduler.model.elastic import ElasticTerms
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool, amounts, replace
from tests.elastic import CONFLICT, FORBIDDEN, LATE, LOST, OK, WINDOW, AJob, Jobs
from tests.engine.session import Session, fail_once
from tests.tenants import a_queue

POOLS = ("mine", "theirs", "other")
TERMS = [(1, 4, ()), (2, 8, ()), (2, 8, (2, 4, 8)), (3, 3, ()), (1, 60, ())]
KINDS = ["indexed", "indexed", "plain", "servers", "completions", "queue", "Deployment", "StatefulSet"]
ANSWERS = [OK, LOST, LATE, CONFLICT, FORBIDDEN]
STEPS_THAT_FAIL = [
    ("elastic_passes", "read_job"),
    ("elastic_passes", "welcome"),
    ("elastic_passes", "take_back"),
    ("elastic_passes", "resize_to"),
    ("elastic_room", "propose_briefly"),
    ("elastic_room", "wanted_by_home_pods"),
    ("elastic_room", "growth_within"),
    ("elastic", "resize_to"),
    ("elastic", "instances_of"),
    ("resizing", "resize_to"),
]

MORNING: list[tuple[Any, ...]] = [
    ("node", "mine", 4),
    ("node", "mine", 4),
    ("node", "theirs", 6),
    ("pod", "mine", 4, 0),
    ("job", (2, 8, ()), "mine", 1000, "indexed"),
    ("job", (1, 60, ()), "theirs", 1000, "completions"),
]
"""What each day begins with: a home pod of low priority beside surplus, and a job that is soon to end."""
changes = st.one_of(
    st.tuples(
        st.just("job"),
        st.sampled_from(TERMS),
        st.sampled_from(POOLS),
        st.sampled_from([10, 1000, 10_000]),
        st.sampled_from(KINDS),
    ),
    st.tuples(st.just("pod"), st.sampled_from(POOLS), st.integers(1, 4), st.sampled_from([0, 10])),
    st.tuples(st.just("node"), st.sampled_from(POOLS), st.integers(2, 6)),
    st.tuples(st.just("end pod"), st.integers(0, 9)),
    st.tuples(st.just("end job"), st.integers(0, 9)),
    st.tuples(st.just("lose node"), st.integers(0, 9)),
    st.tuples(st.just("edit"), st.integers(0, 9), st.sampled_from(TERMS)),
    st.tuples(st.just("write"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("suspend"), st.integers(0, 9)),
    st.tuples(st.just("succeed"), st.integers(0, 9)),
    st.tuples(st.just("leave"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("pool"), st.sampled_from(POOLS), st.integers(0, 4), st.booleans()),
    st.tuples(st.just("quota"), st.integers(2, 12)),
)
steps = st.lists(
    st.one_of(
        changes,
        changes,
        changes,
        st.tuples(st.just("between"), st.integers(1, 12), changes),
        st.tuples(st.just("answers"), st.lists(st.sampled_from(ANSWERS), max_size=4)),
        st.tuples(st.just("fail"), st.sampled_from(STEPS_THAT_FAIL)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait"), st.integers(1, 45)),
        st.tuples(st.just("wait"), st.integers(1, 45)),
    ),
    min_size=4,
    max_size=24,
)


class Day:
    """A cluster of some pools with elastic jobs and plain pods."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pools = {name: a_pool(name, labels={"pool": name}) for name in POOLS}
        self.queue = a_queue("q", cpu="8")
        self.session = Session(*self.pools.values())
        self.session.tell(Seen(self.queue))
        self.jobs = Watched(self.session)
        self.jobs.watch()
        self.plain: dict[str, Pod] = {}
        self.nodes: list[Node] = []
        self.numbers: defaultdict[str, int] = defaultdict(int)
        self.monkeypatch = monkeypatch
        self.disturbed: set[str] = set()
        """Jobs whose terms were edited, or whose size another program wrote."""
        self.leaving: list[str] = []
        """Pods (uids) of jobs that somebody has deleted; they are gone when time passes."""

    def name(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{self.numbers[kind]}"

    def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("fail", (module, function)):
                fail_once(self.monkeypatch, module, function)
            case ("answers", answers):
                self.jobs.answers = list(answers)
            case ("between", decisions, change):
                self.jobs.between = decisions, lambda: self.change(change)
            case ("restart",):
                self._restart()
            case ("wait", seconds):
                self.jobs.run(1.0)
                self.end_leaving()
                self.jobs.run(float(seconds), step=2.5)
            case _:
                self.change(step)
        self.jobs.run(1.0)

    def end_leaving(self) -> None:
        """Let the pods be gone that somebody has deleted."""
        for pod in [pod for job in self.jobs.jobs.values() for pod in (*job.pods.values(), *job.others.values())]:
            if pod.uid in self.leaving:
                self.jobs.end(pod)
        self.leaving.clear()

    def change(self, step: tuple[Any, ...]) -> None:
        """Let something change in the cluster."""
        match step:
            case ("job", terms, pool, weight, kind):
                self._job(terms, pool, weight, kind)
            case ("pod", pool, cpu, priority):
                pod = a_pod(self.name("p"), cpu=str(cpu), pool=pool, priority=priority)
                self.plain[pod.uid] = pod
                self.session.see(pod)
            case ("node", pool, cpu):
                if len(self.nodes) < 5:
                    self.nodes.append(a_node(self.name("n"), cpu=str(cpu), labels={"pool": pool}))
                    self.session.see(self.nodes[-1])
            case ("end pod", at) if self.plain:
                uid = list(self.plain)[at % len(self.plain)]
                del self.plain[uid]
                self.session.tell(gone(Pod, uid))
            case ("lose node", at) if self.nodes:
                self._lose(self.nodes.pop(at % len(self.nodes)))
            case ("pool", name, limit, evicts):
                bound = amounts(cpu=str(limit)) if limit else {}
                pool = a_pool(name, labels={"pool": name}, lending_limit=bound, disable_preemption=not evicts)
                self.pools[name] = pool
                self.session.see(pool)
            case ("quota", cpu):
                self.queue = a_queue("q", cpu=str(cpu))
                self.session.tell(Seen(self.queue))
            case (str() as kind, at, *more) if self.jobs.jobs:
                self._change(kind, sorted(self.jobs.jobs)[at % len(self.jobs.jobs)], more)
            case _:
                pass

    def _job(self, terms: tuple[int, int, tuple[int, ...]], pool: str, weight: int, kind: str) -> None:
        if len(self.jobs.jobs) >= 5:
            return
        least, most, allowed = terms
        job = AJob(
            self.name("j"),
            least,
            most,
            allowed=allowed,
            weight=weight,
            pool=pool,
            ordered=kind not in ("plain", "completions", "Deployment"),
            servers=1 if kind == "servers" else 0,
            completions=5 if kind == "completions" else 0,
            queue="q" if kind == "queue" else "",
            kind=kind if kind in ("Deployment", "StatefulSet") else "Job",
        )
        self.jobs.add(job)

    def _change(self, change: str, name: str, more: list[Any]) -> None:
        match change, more:
            case "end job", _:
                self.jobs.remove(name)
            case "edit", [(least, most, allowed)] if not self.jobs.jobs[name].servers:
                self.disturbed.add(name)
                self.jobs.edit(name, least, most, allowed)
            case "write", [size]:
                self.disturbed.add(name)
                self.jobs.write(name, size)
            case "suspend", _ if not self.jobs.jobs[name].servers and self.jobs.jobs[name].kind == "Job":
                self.jobs.suspend(name, suspended=not self.jobs.jobs[name].suspended)
            case "succeed", _ if self.jobs.jobs[name].kind == "Job":
                self.jobs.succeed(name)
            case "leave", [which]:
                pods = [pod for pod in self.jobs.pods_of(name) if pod.node_name and not pod.terminating]
                if pods:
                    self.leaving.append(pods[which % len(pods)].uid)
                    self.jobs.show(replace(pods[which % len(pods)], terminating=True))

    def _lose(self, node: Node) -> None:
        self.session.tell(gone(Node, node.name))
        self.jobs.lose(node.name)
        for pod in [pod for pod in self.plain.values() if self.jobs.nodes_of.get(pod.uid) == node.name]:
            del self.plain[pod.uid]
            self.session.tell(gone(Pod, pod.uid))

    def _restart(self) -> None:
        plain = [pod for pod in self.plain.values() if pod.uid not in self.jobs.nodes_of]
        bound = [
            a_pod(
                pod.name,
                cpu=str(pod.spec.request.amounts["cpu"] // 1000),
                pool=pod.pool,
                priority=pod.priority,
                node=self.jobs.nodes_of[pod.uid],
                phase="Running",
            )
            for pod in self.plain.values()
            if pod.uid in self.jobs.nodes_of and pod.uid not in {evict.victim.uid for evict in self.jobs.evicted}
        ]
        objects = (*self.pools.values(), *self.nodes, *plain, *bound)
        self.jobs.restart(None, *objects, events=(Seen(self.queue),))
        self.session = self.jobs.session


def often_resized(resizes: list[Resize]) -> list[str]:
    """Return the resizes that came within the window of another one of their job, those for need aside."""
    last: dict[str, float] = {}
    found = []
    for resize in resizes:
        if resize.starts_window:
            before = last.get(resize.uid, float("-inf"))
            if resize.reason is ResizeReason.GROWN and resize.now_seconds < before + WINDOW:
                found.append(f"{resize.name} at {resize.now_seconds}, after {before}")
            last[resize.uid] = resize.now_seconds
    return found


def back_and_forth(resizes: list[Resize]) -> Iterator[str]:
    """Yield the jobs that are grown and shrunk at one time."""
    chosen = [resize for resize in resizes if resize.reason in (ResizeReason.GROWN, ResizeReason.SHRUNK)]
    for first, second in combinations(chosen, 2):
        if first.uid == second.uid and first.now_seconds == second.now_seconds:
            yield f"{first.name} from {first.before} to {first.instances} and back at {first.now_seconds}"


class Moment:
    """Who was where before a decision, and who of them goes for any home pod: CPUs in plain loops."""

    def __init__(self, cluster: Cluster, jobs: dict[str, AJob]) -> None:
        placed = {uid: record for uid, record in cluster.records.items() if record.counted is not None}
        self.homes = {uid: record.home for uid, record in cluster.records.items()}
        self.pools = {uid: cluster.pool_of(record.row) for uid, record in placed.items()}
        surplus = {uid for job in jobs.values() for uid in surplus_of(cluster, job)}
        borrows = {uid for uid in placed if self.homes[uid] != self.pools[uid]}
        self.go = {uid for uid in surplus | borrows if not cluster.leaving(uid)}
        instances = {pod.uid for job in jobs.values() for pod in job.pods.values()}
        self.firm = placed.keys() - borrows - instances
        """The pods at home that are no instances: a home pod of no higher priority takes nothing from them."""
        self.rooms: dict[str, tuple[str, int]] = {}
        """Node -> its pool, and the CPU that is free there without all who go."""
        for name, row in cluster.nodes.rows.items():
            node = cluster.nodes.nodes[row]
            if node is None:
                continue
            stay = [record for uid, record in placed.items() if record.row == row and uid not in self.go]
            used = sum(record.pod.spec.request.amounts["cpu"] for record in stay)
            self.rooms[name] = cluster.pool_of(row), node.allocatable["cpu"] - used

    def fits_without(self, victim: Pod, asker: Pod) -> str:
        """Return the node where those who go make room for a pod that takes the place of another home pod.

        Empty where there is none, where the victim is one of them, or where it is lost with others of its gang.
        """
        home = self.homes[asker.uid]
        if victim.uid in self.go or self.pools.get(victim.uid) != home or asker.gang is not None:
            return ""
        need = asker.spec.request.amounts["cpu"]
        return next((name for name, (pool, free) in self.rooms.items() if pool == home and need <= free), "")


def surplus_of(cluster: Cluster, job: AJob) -> list[str]:
    """Return the instances (uids) that a job has on nodes beyond its minimum: the last ones, as its controller ends."""
    elastic = job.workload.elastic
    assert elastic is not None
    if job.queue:  # the home pods here are in no queue, and take nothing from those that are in one
        return []
    if job.terms.is_production or elastic.is_finishing or job.suspended or elastic.size != cluster_size(cluster, job):
        return []
    placed = {index: pod for index, pod in job.pods.items() if is_placed(cluster, pod)}
    order = sorted(placed, key=lambda index: -index if job.ordered else -placed[index].created_seconds)
    return [placed[index].uid for index in order[: max(len(placed) - job.terms.min_instances, 0)]]


def cluster_size(cluster: Cluster, job: AJob) -> int:
    """Return the size of a job that the engine has seen."""
    known = cluster.elastic.by_key.get((job.kind, "default", job.name))
    return known.job.size if known is not None and known.problem is None else -1


def is_placed(cluster: Cluster, pod: Pod) -> bool:
    record = cluster.records.get(pod.uid)
    return record is not None and record.counted is not None and not cluster.leaving(pod.uid)


class Watched(Jobs):
    """Jobs whose evictions are judged when they are decided; something may change `between` two decisions."""

    between: tuple[int, Callable[[], None]] | None = None
    """After how many decisions something changes, and what."""

    def watch(self) -> None:
        scheduler = self.session.scheduler
        cluster, decide = scheduler._cluster, scheduler.decide

        def judged(pool: str, now: float, limit: int) -> list[Action]:
            before = Moment(cluster, self.jobs)
            claimed = cluster.claims.count_in(pool) if pool in cluster.queues else 0
            actions: list[Action] = decide(pool, now, limit)
            binds = any(isinstance(action, Bind) for action in actions)
            for action in actions:
                if isinstance(action, Evict) and action.beneficiary is not None and action.victim.uid in before.firm:
                    assert action.victim.priority < action.beneficiary.priority, f"{action.victim.name} goes in vain"
            for action in actions if not binds and not claimed else ():
                if isinstance(action, Evict) and action.beneficiary is not None:
                    node = before.fits_without(action.victim, action.beneficiary)
                    assert not node, f"{action.victim.name} goes for {action.beneficiary.name}, which fits on {node}"
            if self.between is not None:
                left, change = self.between
                self.between = (left - 1, change) if left > 1 else None
                if self.between is None:
                    change()
            return actions

        scheduler.decide = judged  # type: ignore[method-assign]

    def restart(self, *args: Any, **kwargs: Any) -> None:
        super().restart(*args, **kwargs)
        self.watch()


def in_bounds(size: int, terms: ElasticTerms) -> bool:
    return terms.min_instances <= size <= terms.max_instances and (not terms.allowed or size in terms.allowed)


def play(day: list[tuple[Any, ...]]) -> None:
    """Play a day, and judge what was decided."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for limit in ("PODS_AT_ONCE", "STEPS_AT_ONCE"):  # a pass takes many decisions
            monkeypatch.setattr(f"aischeduler.engine.elastic_passes.{limit}", 2)
        played = Day(monkeypatch)
        played.jobs.on_resize = lambda resize: _judge(played, resize)
        for step in (*MORNING, *day):
            played.play(step)
        played.jobs.answers = []
        played.jobs.run(70.0, step=2.5)
    assert not often_resized(played.jobs.resizes)
    assert not [*back_and_forth(played.jobs.resizes)]
    for job in played.jobs.jobs.values():
        left_alone = job.name in played.disturbed and job.size != job.written
        ends = job.suspended or job.workload.elastic.is_finishing  # type: ignore[union-attr]
        assert in_bounds(job.size, job.terms) or left_alone or ends, (job.name, job.size, job.terms)


def _judge(played: Day, resize: Resize) -> None:
    """Check one size when it is written."""
    job = played.jobs.jobs[resize.name]
    elastic = job.workload.elastic
    assert elastic is not None
    assert not elastic.is_finishing or resize.instances == job.size, f"{resize} of a job that ends"
    if resize.reason is not ResizeReason.NOTED:
        assert in_bounds(resize.instances, job.terms), resize
    if elastic.left is not None and resize.instances > job.size:
        assert resize.instances <= max(elastic.left, job.terms.min_instances), resize


@settings(max_examples=15, deadline=None)
@given(steps)
def test_sizes_stay_in_bounds_and_windows_are_kept(day: list[tuple[Any, ...]]) -> None:
    play(day)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(max_examples=2_000, deadline=None)
@given(steps)
def test_sizes_stay_in_bounds_and_windows_are_kept_at_length(day: list[tuple[Any, ...]]) -> None:
    play(day)


def jain(shares: list[int]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@settings(max_examples=4, deadline=None)
@given(
    st.integers(2, 5),
    st.lists(st.integers(4, 9), min_size=1, max_size=3),
    st.lists(st.integers(0, 120), min_size=5, max_size=5),
    st.sampled_from([(), (1, 2, 4)]),
    st.lists(st.tuples(st.integers(1, 4), st.integers(60, 600)), max_size=6),
)
def test_equal_jobs_receive_the_same_within_an_hour(
    count: int, nodes: list[int], delays: list[int], allowed: tuple[int, ...], home: list[tuple[int, int]]
) -> None:
    """They come one after the other, while home pods come and go. Judged over the hour after the last has come."""
    assume(sum(nodes) >= 2 * count)  # there is room for all minima
    session = Session(*(a_node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(nodes)))
    session.scheduler.closely = session.scheduler.often = False
    jobs = Jobs(session)
    for number in range(count):
        jobs.run(float(delays[number]), step=2.5)
        jobs.add(AJob(f"j{number}", 1, 60, allowed=allowed))
    jobs.run(WINDOW * 4, step=2.5)
    records = session.scheduler._cluster.elastic.by_key
    before = {key: record.received for key, record in records.items()}
    instances, sizes = dict.fromkeys(jobs.jobs, 0), len(jobs.resizes)
    events = {turn * 500: (turn, cpu, seconds) for turn, (cpu, seconds) in enumerate(home)}
    ends: dict[int, str] = {}
    for second in range(0, 3600, 5):
        if second in events:
            turn, cpu, seconds = events[second]
            session.see(a_pod(f"home{turn}", cpu=str(min(cpu, sum(nodes) - count))))
            ends[(second + seconds) // 5 * 5] = f"uid-home{turn}"
        if second in ends:
            session.tell(gone(Pod, ends[second]))
        jobs.run(5.0, step=2.5)
        for name, running in jobs.running().items():
            instances[name] += running
    assert jain(list(instances.values())) >= 0.95
    assert jain([record.received - before[key] for key, record in records.items()]) >= 0.95
    assert len(jobs.resizes) - sizes <= 3600 / WINDOW * count * 1.2
