"""Whatever is lost, resized or ended and wherever the operator ends, its passes lead to what the TrainingJob wants."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.operator.progress import FINISHED, read_record
from aischeduler.operator.training_plan import TrainingPhase, TrainingRecord
from tests.operator.fake_cluster import PODS, CrashError, FakeCluster
from tests.operator.training_world import JOBS, TrainingWorld, paddle_job, training_job

OURS = ["train-master-0", "train-pserver-0", "train-pserver-1"]
TRAINERS = [f"train-trainer-{index}" for index in range(6)]
SEVERAL_PASSES = 12

OPERATIONS = st.one_of(
    st.tuples(st.just("pass")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("control")),
    st.tuples(st.just("resize"), st.integers(2, 6)),
    st.tuples(st.sampled_from(["lose", "Failed", "Running", "Succeeded"]), st.sampled_from(OURS + TRAINERS)),
    st.tuples(st.just("crash"), st.integers(0, 16), st.booleans()),
)
ENDS = st.sampled_from(["", "Complete", "Failed"])


@dataclass
class Story:
    """A TrainingJob with a master, two pservers and 2 to 6 trainers, and what happens to it."""

    world: TrainingWorld
    size: int = 2
    """The size that was written last, by anyone but the operator."""
    unseen: int = 0
    """Pods that were lost before a pass had recorded them: nobody can count these."""

    @property
    def record(self) -> TrainingRecord:
        return read_record(self.world.cluster.objects[self.world.path], TrainingRecord)

    @property
    def has_job(self) -> bool:
        return self.world.job_path in self.world.cluster.objects

    def play(self, operation: tuple[Any, ...]) -> None:
        cluster = self.world.cluster
        match operation:
            case ("pass",):
                self.world.look()
            case ("stop",):
                cluster.stop()
            case ("control",) if self.has_job:
                self.world.control()
            case ("resize", size) if self.has_job:
                self.world.resize(size)
                self.size = size
            case ("crash", request, after):
                cluster.crash_at(request, after=after)
                with suppress(CrashError):
                    self.world.look()
                cluster.no_crash()
            case (what, name) if name in cluster.pods():
                if what == "lose":
                    self._lose(name)
                elif cluster.pods()[name].get("status", {}).get("phase") not in FINISHED:
                    cluster.set_phase(name, what)
            case _:
                pass
        if self.has_job:
            assert self.world.job["spec"]["parallelism"] == self.size, "the operator wrote a size"

    def _lose(self, name: str) -> None:
        _, role, index = name.rsplit("-", 2)
        if role != "trainer":
            attempt = int(self.world.pod(name)["metadata"]["annotations"]["resource.aibee.cn/attempt"])
            known = next((one.attempts for one in self.record.replica_statuses if one.role == role), ())
            self.unseen += (known[int(index)] if known else 0) < attempt
        self.world.cluster.lose(name)

    def settle(self) -> None:
        """Make passes while nothing else happens."""
        for _ in range(SEVERAL_PASSES):
            self.world.look()
            self.world.cluster.stop()


def story(*, paddle: bool = False) -> Story:
    if not paddle:
        return Story(TrainingWorld(training_job(most=6, pservers=2)))
    return Story(TrainingWorld(paddle_job(), FakeCluster(keeps_status=False)))


@pytest.mark.parametrize("paddle", [False, True])
@given(operations=st.lists(OPERATIONS, max_size=40), end=ENDS)
def test_any_losses_sizes_and_crashes_end_in_what_is_wanted(
    paddle: bool, operations: list[tuple[Any, ...]], end: str
) -> None:
    played = story(paddle=paddle)
    for operation in operations:
        played.play(operation)
    played.settle()
    if end:
        played.world.end_job(end, succeeded=2)
        played.settle()
    record, pods = played.record, played.world.cluster.pods()
    ours = {name: pod.get("status", {}).get("phase") for name, pod in pods.items() if "-trainer-" not in name}
    if end:
        assert record.phase == (TrainingPhase.SUCCEEDED if end == "Complete" else TrainingPhase.FAILED)
        assert set(ours.values()) <= ({"Failed", "Succeeded"} if end == "Failed" else set())
    else:
        assert sorted(ours) == OURS
        assert set(ours.values()) <= {None, "Pending", "Running"}
        assert record.trainers.wanted == played.size
    made = [path for path in played.world.cluster.created if path.startswith(PODS)]
    assert len(made) <= len(OURS) + record.restarts + played.unseen
    assert [path for path in played.world.cluster.created if path.startswith(JOBS)] == [played.world.job_path]
    sizes = [(one.before, one.after) for one in record.scale_records]
    assert all(last[1] == new[0] for last, new in pairwise(sizes))


@given(operations=st.lists(OPERATIONS, max_size=20), end=ENDS)
@settings(max_examples=50)
def test_settled_job_is_not_written_again(operations: list[tuple[Any, ...]], end: str) -> None:
    played = story()
    for operation in operations:
        played.play(operation)
    played.settle()
    if end:
        played.world.end_job(end)
        played.settle()
    before = played.world.cluster.writes
    played.settle()
    assert played.world.cluster.writes == before


@pytest.mark.parametrize("request_number", range(20))
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_each_request_of_the_first_pass_costs_nothing(request_number: int, after: bool) -> None:
    played = story()
    played.play(("crash", request_number, after))
    played.settle()
    assert played.world.names() == OURS
    made = [path for path in played.world.cluster.created if "/events/" not in path]
    assert len(made) == len(set(made)) == len(OURS) + 2
    assert played.record.restarts == 0


@pytest.mark.parametrize("request_number", range(10))
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_each_request_of_a_resize_records_it_once(request_number: int, after: bool) -> None:
    played = story()
    played.world.started()
    played.world.resize(4)
    played.size = 4
    played.play(("crash", request_number, after))
    played.settle()
    assert [(one.before, one.after) for one in played.record.scale_records] == [(2, 4)]


@pytest.mark.parametrize("request_number", range(12))
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_each_request_of_the_end_leaves_nothing_running(request_number: int, after: bool) -> None:
    played = story()
    played.world.started()
    played.world.end_job("Complete", succeeded=2)
    played.play(("crash", request_number, after))
    played.settle()
    assert [name for name in played.world.names() if "-trainer-" not in name] == []
    assert played.record.phase == TrainingPhase.SUCCEEDED


@pytest.mark.parametrize("request_number", range(12))
def test_two_operators_at_once_make_nothing_twice(request_number: int) -> None:
    played = story()
    world = played.world
    world.cluster.interrupt_at(request_number, lambda: world.reconciler.look(world.path))
    world.look()
    world.cluster.no_crash()
    played.settle()
    made = [path for path in world.cluster.created if "/events/" not in path]
    assert len(made) == len(set(made)) == len(OURS) + 2
    assert played.record.restarts == 0
