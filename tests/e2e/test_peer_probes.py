"""This scheduler and kube-scheduler give random pods on random clusters the same verdict, one by one and in sequence.

Both see the same nodes and pods. Compared are: whether the pod is bound, the whole message, the node, which has to be
one of kube-scheduler's best, the scores of all nodes that fit, and for a preemption the nominated node and the victims.
A disagreement is reported with all objects, so that it can be seen again. Of fifty pods one after the other, the counts
by domain are compared.
"""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import install
from tests.e2e.daemon import Daemon
from tests.e2e.peer_features import EVERY, Feature
from tests.e2e.peer_log import FLAGS
from tests.e2e.peer_probes import a_round
from tests.e2e.peer_sequences import KINDS, a_sequence
from tests.e2e.peer_stage import OURS, THEIRS, Stage
from tests.e2e.peer_verdicts import Tally
from tests.seeds import random

ROUNDS = int(os.environ.get("AI_SCHEDULER_ROUNDS", "5"))
"""The rounds of the soak with the first one, which runs every day."""
PROBES_OF_A_FEATURE_MIN = 20
ONLY = os.environ.get("AI_SCHEDULER_STATES", "")
"""The beginning of the names of the states that are played; a round that is not whole fails at its end."""
FEATURES = frozenset(map(Feature, os.environ.get("AI_SCHEDULER_FEATURES", ",".join(EVERY)).split(",")))
"""The features of the probes; the variable is for work on one of them."""
pytestmark = [pytest.mark.newest, pytest.mark.timeout(900)]
CASES = [pytest.param(number, marks=pytest.mark.soak if number else pytest.mark.daily) for number in range(ROUNDS)]

SEQUENCES = [pytest.param(number, marks=[pytest.mark.soak] * (number > 0)) for number in range(4)]


@pytest.fixture(autouse=True)
def clean_cluster() -> None:
    """Keep what the module has created between its tests."""


@pytest.fixture(scope="module")
def peer(control_plane: ControlPlane) -> Iterator[Part]:
    """Start kube-scheduler with the log of its scores."""
    peer = control_plane.peer(*FLAGS)
    yield peer
    peer.kill()


@pytest.fixture(scope="module")
def volumes(control_plane: ControlPlane) -> Iterator[None]:
    """Run the controllers of claims and volumes."""
    controllers = control_plane.volume_controllers()
    controllers.start()
    yield
    controllers.kill()


@pytest.fixture(scope="module")
def stage(control_plane: ControlPlane, volumes: None, peer: Part) -> Iterator[Stage]:
    """Start both schedulers."""
    install(control_plane)
    stage = Stage(control_plane, peer.log)
    with closing(stage), Daemon(control_plane) as daemon:
        daemon.start()
        peer.start()
        yield stage
    sweep(control_plane)


@pytest.mark.parametrize("number", CASES)
def test_both_schedulers_give_random_pods_the_same_verdict(
    request: pytest.FixtureRequest, stage: Stage, number: int
) -> None:
    tally = Tally()
    for play in a_round(number, random(f"round {number} of probes"), FEATURES):
        if not play.state.name.startswith(ONLY):
            continue
        with stage.holding(play.state):
            for probe in play.probes:
                tally.note(play.state, probe, *stage.verdicts(play.state, probe.pod))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(tally)
    assert tally.reports == [], tally.told()
    assert set(tally.probes) == FEATURES
    assert min(tally.probes.values()) >= PROBES_OF_A_FEATURE_MIN


@pytest.mark.parametrize("number", SEQUENCES)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_fifty_pods_one_after_the_other_end_in_the_same_counts(stage: Stage, kind: Feature, number: int) -> None:
    name = f"{kind.replace('_', '-')}-{number}"
    played = a_sequence(random(f"sequence {name}"), name, kind)
    with stage.holding(played.state):
        placed = {side: stage.sequence(side, played.pods) for side in (OURS, THEIRS)}
    told = "\n".join(f"{side}: {dict(sorted(found.items()))}" for side, found in placed.items())
    assert len(placed[OURS]) == len(placed[THEIRS]), f"{told}\n{played.state.nodes}"
    assert played.counts(placed[OURS]) == played.counts(placed[THEIRS]), f"{told}\n{played.state.nodes}"
