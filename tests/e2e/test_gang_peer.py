"""This scheduler and kube-scheduler with its gate GangScheduling start the same gangs.

Both get the same gangs on equal nodes of one API server; an oracle that tries all ways judges both. Where the room of
one side depends on where a scheduler puts pods, either the sides are levelled between the gangs, or a difference has to
have a cause that the oracle confirms. The counts are printed at the end.

Invariant: the gangs come from the seed. Of equally good nodes kube-scheduler takes one at random, so that the
differences of one seed may vary.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import install
from tests.e2e.daemon import Daemon
from tests.e2e.gang_cases import (
    GANGS_OF_A_DAY,
    Cluster,
    Gang,
    a_cluster,
    crowded_day,
    equal_pods_day,
    left_of,
    next_gang,
    spare_day,
)
from tests.e2e.gang_stage import (
    GATES,
    OURS,
    SERVER_FLAGS,
    SIDES,
    THEIRS,
    Outcomes,
    Stage,
    create_priorities,
    describe,
)
from tests.e2e.gang_verdicts import (
    NOT_FOUND,
    Tally,
    beside_room,
    by_queue_order,
    cause_of,
    in_part,
    left_over,
    passed_over,
)
from tests.e2e.rights import grant
from tests.packing_oracle import fits
from tests.seeds import random

pytestmark = [pytest.mark.soak, pytest.mark.newest]

FEW, MANY = 2, 16
"""The seeds of each scenario: `-k few` selects the few."""
CASES = [pytest.param(number, id=f"{'few' if number < FEW else 'many'}-{number:02d}") for number in range(MANY)]
_namespaces = count(1)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Start a control plane whose API server has PodGroups."""
    with ControlPlane(control_plane.binaries, *SERVER_FLAGS, scheduler_flags=(GATES,)) as plane:
        install(plane)
        grant(plane)
        yield plane


@pytest.fixture
def empty_plane(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield the control plane; at the end delete the pods and nodes, and stop kube-scheduler."""
    create_priorities(plane)
    yield plane
    plane.kill("kube-scheduler")
    sweep(plane)


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Yield the counts of the run, and print them at its end."""
    tally = Tally()
    yield tally
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(tally)


def same_pods(outcomes: Outcomes) -> bool:
    """Return whether each gang has equally many pods on nodes on both sides."""
    ours, theirs = ([len(one.placed) for one in outcomes[side]] for side in SIDES)
    return ours == theirs


def whole(outcomes: Outcomes, side: str) -> list[str]:
    """Return the gangs that have started on a side."""
    return [one.gang.name for one in outcomes[side] if one.whole]


def played_at_once(plane: ControlPlane, cluster: Cluster, gangs: list[Gang]) -> Outcomes:
    """Start both schedulers when everything exists, and return what becomes of the gangs."""
    stage = Stage(plane, f"day-{next(_namespaces)}", cluster)
    stage.offer(gangs)
    with Daemon(plane) as daemon:
        daemon.start()
        plane.start_kube_scheduler()
        return stage.settled(gangs, same_pods)


@pytest.mark.parametrize("number", CASES)
def test_gang_after_gang_both_start_those_that_fit(empty_plane: ControlPlane, tally: Tally, number: int) -> None:
    chance = random(f"gang after gang {number}")
    stage = Stage(empty_plane, f"turns-{next(_namespaces)}", a_cluster(chance))
    model, free = list(SIDES)[number % 2], stage.cluster.free()
    with Daemon(empty_plane) as daemon:
        daemon.start()
        empty_plane.start_kube_scheduler()
        for turn in range(GANGS_OF_A_DAY):
            gang = next_gang(chance, f"gang-{turn}", free)
            stage.offer([gang])
            found = stage.settled([gang], same_pods)
            tally.note("gang after gang", found)
            (ours,), (theirs,) = (found[side] for side in SIDES)
            told = f"free: {free}{describe(found)}"
            assert ours.whole == fits(free, gang.required), told
            if ours.whole and not theirs.whole and not gang.alike:
                tally.differs(f"gang after gang {number}", gang, THEIRS, NOT_FOUND)
            else:
                assert len(theirs.placed) == len(ours.placed), told
            stage.clear_waiting(found)
            stage.level(gang, found, model)
            free = left_of(free, found[model][0].pods)
            assert all(min(room) >= 0 for room in free), told


@pytest.mark.parametrize("number", CASES)
def test_gangs_at_once_that_all_fit_all_start_on_both_sides(
    empty_plane: ControlPlane, tally: Tally, number: int
) -> None:
    cluster, gangs = spare_day(random(f"spare day {number}"))
    found = played_at_once(empty_plane, cluster, gangs)
    tally.note("all fit", found)
    for side in SIDES:
        assert whole(found, side) == [gang.name for gang in gangs], f"{cluster}{describe(found)}"
        assert all(min(room) >= 0 for room in left_over(cluster, found[side])), f"{cluster}{describe(found)}"


@pytest.mark.parametrize("number", CASES)
def test_of_gangs_of_equal_pods_queue_order_decides_on_both_sides(
    empty_plane: ControlPlane, tally: Tally, number: int
) -> None:
    cluster, gangs = equal_pods_day(random(f"equal pods {number}"))
    found = played_at_once(empty_plane, cluster, gangs)
    tally.note("equal pods, not all fit", found)
    expected = by_queue_order(cluster, gangs)
    assert not all(expected.values()), "all gangs fit"
    for side in SIDES:
        counts = {one.gang.name: len(one.placed) for one in found[side]}
        assert counts == expected, f"{side}: {cluster}{describe(found)}"


@pytest.mark.parametrize("number", CASES)
def test_in_a_crowd_no_gang_starts_in_part_and_none_waits_that_fitted_at_its_turn(
    empty_plane: ControlPlane, tally: Tally, number: int
) -> None:
    cluster, gangs = crowded_day(random(f"crowded day {number}"))
    found = played_at_once(empty_plane, cluster, gangs)
    tally.note("different pods, not all fit", found)
    over = {side: passed_over(cluster, found[side]) for side in SIDES}
    told = f"{cluster}{describe(found)}"
    for side in SIDES:
        assert in_part(found[side]) == [], told
        assert all(min(room) >= 0 for room in left_over(cluster, found[side])), told
        assert set(beside_room(cluster, found[side])) <= set(over[side])
    assert over[OURS] == [], told
    assert [gang for gang in over[THEIRS] if gang.alike] == [], told
    for side, other in ((OURS, THEIRS), (THEIRS, OURS)):
        for gang in gangs:
            if gang.name in whole(found, other) and gang.name not in whole(found, side):
                tally.differs(f"crowded day {number}", gang, side, cause_of(gang, side, cluster, found))
