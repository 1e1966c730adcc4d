"""A plan equals what then happens: random small clusters at rest, planned from a list, and the same files created."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from aischeduler.analysis.plan import UnitVerdict
from tests import seeds
from tests.analysis.plan_worlds import (
    Case,
    a_cluster,
    a_file,
    an_edit,
    drain,
    edit,
    happens,
    outcomes,
    planned,
    snapshot_of,
    some_leave,
    starts_and_victims,
)

FILES: Final = 3
"""The files that are planned and created, one after the other, in each cluster."""


def cases(name: str, clusters: int, *, restarted: bool) -> Iterator[Case]:
    """Yield what was planned and what happened; the scheduler is `restarted` before each file, or runs all the time."""
    for number in range(clusters):
        chance = seeds.random(f"{name} {number}")
        harness = a_cluster(chance, seeds.number(f"{name} {number}"))
        for file in range(FILES):
            objects = a_file(chance, f"{file}-")
            plan = planned(snapshot_of(harness), objects)
            assert (plan.notes, plan.at_rest) == ((), True), f"{name} {number}: the cluster is not at rest"
            if restarted:
                harness.restart_scheduler()
                harness.run(15.0)
            verdicts = tuple(one.verdict for one in plan.units)
            yield Case(f"{name} {number}, file {file}", outcomes(plan), happens(harness, objects), verdicts)
            some_leave(chance, harness)


@pytest.mark.parametrize("batch", [0, *(pytest.param(one, marks=pytest.mark.soak) for one in range(1, 6))])
def test_plan_equals_what_then_happens(batch: int) -> None:
    """A plan knows what a new scheduler knows."""
    verdicts = Counter[UnitVerdict]()
    for case in cases(f"plan {batch}", 20, restarted=True):
        assert not case.differs, case
        verdicts.update(case.verdicts)
    assert set(verdicts) == set(UnitVerdict), verdicts


def test_plan_hardly_ever_differs_from_what_a_scheduler_with_a_long_memory_does() -> None:
    """A scheduler remembers which lenders it has to check again, and a list of the cluster does not show that."""
    found = list(cases("long memory", 30, restarted=False))
    assert len([case.name for case in found if case.differs]) <= len(found) // 50


@pytest.mark.parametrize("batch", range(3))
def test_preview_of_a_pool_equals_what_its_edit_then_does(batch: int) -> None:
    something = 0
    for number in range(20):
        name = f"edit {batch} {number}"
        chance = seeds.random(name)
        harness = a_cluster(chance, seeds.number(name))
        harness.restart_scheduler()
        harness.run(15.0)
        pool = an_edit(chance, harness)
        plan = planned(snapshot_of(harness), [pool])
        expected = starts_and_victims([*plan.other_starts, *plan.other_evictions])
        assert edit(harness, pool) == expected, name
        something += bool(expected[0] or expected[1])
    assert something


@pytest.mark.parametrize("batch", range(2))
def test_preview_of_a_drain_equals_what_it_then_does(batch: int) -> None:
    something = 0
    for number in range(20):
        name = f"drain {batch} {number}"
        chance = seeds.random(name)
        harness = a_cluster(chance, seeds.number(name))
        harness.restart_scheduler()
        harness.run(15.0)
        node = chance.choice(harness.all("Node"))["metadata"]["name"]
        plan = planned(snapshot_of(harness), [], (node,))
        (unit,) = plan.units
        starts = [(pod.removeprefix("default/"), where) for pod, where in unit.nodes.items()]
        others, victims = starts_and_victims([*plan.other_starts, *plan.other_evictions])
        evicts = [victim.removeprefix("default/") for victim in unit.evicts]
        assert drain(harness, node) == (sorted([*starts, *others]), sorted([*evicts, *victims])), name
        something += bool(starts)
    assert something
