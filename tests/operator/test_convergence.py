"""Whatever is lost and wherever the operator ends, its passes lead to the pods that the spec wants, or to Failed."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.operator.owner import Settings
from aischeduler.operator.progress import FINISHED, Phase, Progress, read_record
from aischeduler.operator.reconcile import Reconciler
from tests.operator.documents import BRAINPP, OURS, batch_process, path_of, role
from tests.operator.fake_cluster import PODS, CrashError, FakeCluster

LIMIT = 4
NAMES = ["train-a-0", "train-a-1", "train-a-2", "train-b-0"]
SEVERAL_PASSES = 12

OPERATIONS = st.one_of(
    st.tuples(st.just("pass")),
    st.tuples(st.just("stop")),
    st.tuples(st.sampled_from(["lose", "Failed", "Running", "Succeeded"]), st.sampled_from(NAMES)),
    st.tuples(st.just("crash"), st.integers(0, 12), st.booleans()),
)


@dataclass
class Story:
    """A BatchProcess of three and one pods, and what happens to it."""

    cluster: FakeCluster
    api_version: str
    unseen: int = 0
    """Pods that were lost before a pass had recorded them: nobody can count these."""

    def __post_init__(self) -> None:
        self.path = path_of(api_version=self.api_version)
        roles = [role(3, 1, name="a"), role(1, 1, name="b")]
        self.cluster.apply(self.path, batch_process(*roles, minimum=2, limit=LIMIT, api_version=self.api_version))
        self.reconciler = Reconciler(self.cluster, Settings(), now=lambda: 1_000.0)

    def progress(self) -> Any:
        return read_record(self.cluster.objects[self.path], Progress)

    def look(self) -> None:
        asyncio.run(self.reconciler.look(self.path))

    def play(self, operation: tuple[Any, ...]) -> None:
        match operation:
            case ("pass",):
                self.look()
            case ("stop",):
                self.cluster.stop()
            case ("crash", request, after):
                self.cluster.crash_at(request, after=after)
                with suppress(CrashError):
                    self.look()
                self.cluster.no_crash()
            case (what, name) if name in self.cluster.pods():
                if what == "lose":
                    self._lose(name)
                elif self.cluster.pods()[name].get("status", {}).get("phase") not in FINISHED:
                    self.cluster.set_phase(name, what)
            case _:
                pass
        assert self.progress().restarts <= LIMIT

    def _lose(self, name: str) -> None:
        _, name_of_role, index = name.rsplit("-", 2)
        pod = self.cluster.pods()[name]
        attempt = int(pod["metadata"]["annotations"]["resource.aibee.cn/attempt"])
        place = (name_of_role, int(index))
        self.unseen += self.progress().attempts(place) < attempt and not self.progress().finished
        self.cluster.lose(name)

    def settle(self) -> None:
        """Make passes while nothing else happens."""
        for _ in range(SEVERAL_PASSES):
            self.look()
            self.cluster.stop()


@pytest.mark.parametrize("api_version", [OURS, BRAINPP])
@given(operations=st.lists(OPERATIONS, max_size=40))
def test_any_losses_and_crashes_end_in_the_wanted_pods_or_in_failed(
    api_version: str, operations: list[tuple[Any, ...]]
) -> None:
    story = Story(FakeCluster(keeps_status=api_version == OURS), api_version)
    for operation in operations:
        story.play(operation)
    story.settle()
    progress, pods = story.progress(), story.cluster.pods()
    if progress.phase == Phase.FAILED:
        assert {pod.get("status", {}).get("phase") for pod in pods.values()} <= {str(phase) for phase in FINISHED}
    else:
        done = {name for name in NAMES if progress.completed((name.split("-")[1], int(name.split("-")[2])))}
        assert set(pods) | done == set(NAMES)
        assert [name for name in pods if pods[name].get("status", {}).get("phase") == "Failed"] == []
    made = [path for path in story.cluster.created if path.startswith(PODS)]
    assert len(made) <= len(NAMES) + progress.restarts + story.unseen
    assert progress.restarts <= LIMIT


@given(operations=st.lists(OPERATIONS, max_size=20))
@settings(max_examples=50)
def test_settled_batch_process_is_not_written_again(operations: list[tuple[Any, ...]]) -> None:
    story = Story(FakeCluster(), OURS)
    for operation in operations:
        story.play(operation)
    story.settle()
    before = story.cluster.writes
    story.settle()
    assert story.cluster.writes == before


@pytest.mark.parametrize("request_number", range(16))
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_each_request_of_the_first_pass_costs_nothing(request_number: int, after: bool) -> None:
    story = Story(FakeCluster(), OURS)
    story.play(("crash", request_number, after))
    story.settle()
    assert sorted(story.cluster.pods()) == sorted(NAMES)
    assert len([path for path in story.cluster.created if path.startswith(PODS)]) == len(NAMES)
    assert story.progress().restarts == 0


@pytest.mark.parametrize("request_number", range(16))
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_each_request_of_a_restart_counts_it_once(request_number: int, after: bool) -> None:
    story = Story(FakeCluster(), OURS)
    story.settle()
    story.cluster.lose("train-a-1")
    story.play(("crash", request_number, after))
    story.settle()
    assert sorted(story.cluster.pods()) == sorted(NAMES)
    assert story.progress().restarts == 1


@pytest.mark.parametrize("request_number", range(12))
def test_two_operators_at_once_make_no_pod_twice(request_number: int) -> None:
    story = Story(FakeCluster(), OURS)
    story.cluster.interrupt_at(request_number, lambda: story.reconciler.look(story.path))
    story.look()
    story.cluster.no_crash()
    story.settle()
    made = [path for path in story.cluster.created if path.startswith(PODS)]
    assert sorted(made) == [f"{PODS}/{name}" for name in sorted(NAMES)]
    assert story.progress().restarts == 0
