"""Random histories with elastic jobs: sizes stay in their bounds, and windows are kept.

The invariants of the engine are checked after each step (`tests.checked_scheduler`).
"""

from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.engine.elastic import PASS_SECONDS
from aischeduler.model.actions import Resize
from aischeduler.model.events import gone
from aischeduler.model.node import Node
from tests.build import a_node, a_pod, a_pool
from tests.elastic import AJob, Jobs
from tests.engine.session import Session

POOLS = ("mine", "theirs")
TERMS = [(1, 4, ()), (2, 8, ()), (2, 8, (2, 4, 8)), (3, 3, ()), (1, 60, ())]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("job"), st.sampled_from(TERMS), st.sampled_from(POOLS), st.sampled_from([10, 1000, 10_000])),
        st.tuples(st.just("pod"), st.sampled_from(POOLS), st.integers(1, 4), st.sampled_from([0, 0, 10])),
        st.tuples(st.just("node"), st.sampled_from(POOLS), st.integers(2, 6)),
        st.tuples(st.just("end pod"), st.integers(0, 9)),
        st.tuples(st.just("end job"), st.integers(0, 9)),
        st.tuples(st.just("lose node"), st.integers(0, 9)),
        st.tuples(st.just("edit"), st.integers(0, 9), st.sampled_from(TERMS)),
        st.tuples(st.just("wait"), st.integers(1, 45)),
    ),
    min_size=4,
    max_size=24,
)


class Day:
    """A cluster of two pools with elastic jobs and plain pods."""

    def __init__(self) -> None:
        pools = [a_pool(name, labels={"pool": name}) for name in POOLS]
        self.session = Session(*pools)
        self.jobs = Jobs(self.session)
        self.plain: list[Any] = []
        self.nodes: list[Node] = []
        self.numbers: defaultdict[str, int] = defaultdict(int)

    def name(self, kind: str) -> str:
        self.numbers[kind] += 1
        return f"{kind}{self.numbers[kind]}"

    def play(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("job", (least, most, allowed), pool, weight):
                if len(self.jobs.jobs) < 5:
                    job = AJob(self.name("j"), least, most, allowed=allowed, weight=weight, pool=pool)
                    self.jobs.add(job)
            case ("pod", pool, cpu, priority):
                pod = a_pod(self.name("p"), cpu=str(cpu), pool=pool, priority=priority)
                self.plain.append(pod)
                self.session.see(pod)
            case ("node", pool, cpu):
                if len(self.nodes) < 5:
                    self.nodes.append(a_node(self.name("n"), cpu=str(cpu), labels={"pool": pool}))
                    self.session.see(self.nodes[-1])
            case ("end pod", at) if self.plain:
                self.session.tell(gone(type(self.plain[0]), self.plain.pop(at % len(self.plain)).uid))
            case ("end job", at) if self.jobs.jobs:
                self.jobs.remove(sorted(self.jobs.jobs)[at % len(self.jobs.jobs)])
            case ("lose node", at) if self.nodes:
                self._lose(self.nodes.pop(at % len(self.nodes)))
            case ("edit", at, (least, most, allowed)) if self.jobs.jobs:
                self.jobs.edit(sorted(self.jobs.jobs)[at % len(self.jobs.jobs)], least, most, allowed)
            case ("wait", seconds):
                self.jobs.run(float(seconds), step=2.5)
            case _:
                pass
        self.jobs.run(1.0)

    def _lose(self, node: Node) -> None:
        self.session.tell(gone(Node, node.name))
        self.jobs.lose(node.name)
        for pod in [pod for pod in self.plain if self.jobs.nodes_of.get(pod.uid) == node.name]:
            self.plain.remove(pod)
            self.session.tell(gone(type(pod), pod.uid))


def often_resized(resizes: list[Resize], windows: dict[str, float]) -> list[str]:
    """Return the resizes that came within the window of another one of their job, those for need aside."""
    last: dict[str, float] = {}
    found = []
    for resize in resizes:
        if resize.starts_window:
            before = last.get(resize.uid, float("-inf"))
            if resize.reason == "Grown" and resize.now_seconds < before + windows[resize.name]:
                found.append(f"{resize.name} at {resize.now_seconds}, after {before}")
            last[resize.uid] = resize.now_seconds
    return found


def play(day: list[tuple[Any, ...]]) -> None:
    """Play a day, and judge what was decided."""
    played = Day()
    for step in (("node", "mine", 4), ("node", "theirs", 4), ("job", (2, 8, ()), "mine", 1000), *day):
        played.play(step)
    played.jobs.run(2 * PASS_SECONDS)
    windows = {resize.name: 30.0 for resize in played.jobs.resizes}
    assert not often_resized(played.jobs.resizes, windows)
    for job in played.jobs.jobs.values():
        assert job.terms.min_instances <= job.size <= job.terms.max_instances
        assert not job.terms.allowed or job.size in job.terms.allowed


@settings(max_examples=30, deadline=None)
@given(steps)
def test_sizes_stay_in_bounds_and_windows_are_kept(day: list[tuple[Any, ...]]) -> None:
    play(day)
