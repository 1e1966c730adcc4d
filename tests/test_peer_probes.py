"""The probes of the differential test against kube-scheduler, and the judge of two verdicts, without a server."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.peer_features import EVERY, Feature
from tests.e2e.peer_log import PeerLog, Scores
from tests.e2e.peer_probes import PROBES_OF_A_STATE, STATES, Probe, a_round
from tests.e2e.peer_states import State, a_state
from tests.e2e.peer_verdicts import Tally, Verdict, differences, our_victims
from tests.seeds import random

SCORES = Scores({"n1": 130, "n2": 170, "n3": 170})
LOG = """
I1 schedule_one.go:982] "Plugin scored node for pod" pod="blue/p" plugin="ImageLocality" node="n1" score=7
I1 schedule_one.go:982] "Plugin scored node for pod" pod="blue/p" plugin="NodeAffinity" node="n1" score=200
I1 schedule_one.go:1040] "Calculated node's final score for pod" pod="blue/p" node="n1" score=207
I1 schedule_one.go:1040] "Calculated node's final score for pod" pod="blue/other" node="n1" score=3
I1 executor.go:251] "Start the preemption asynchronously" preemptor="blue/q" node="n1" numVictims=2 numVictimsToDelete=2
"""


def a_probe() -> tuple[State, Probe]:
    play = next(a_round(0, random("a probe"), EVERY))
    return play.state, play.probes[0]


def test_round_has_each_feature_in_at_least_twenty_probes_of_at_least_four_hundred() -> None:
    plays = list(a_round(0, random("round"), EVERY))
    dealt = Counter(feature for play in plays for probe in play.probes for feature in probe.features)
    assert STATES * PROBES_OF_A_STATE >= 400
    assert dealt.keys() == EVERY
    assert min(dealt.values()) >= 20


def test_same_seed_gives_the_same_round_and_another_name_does_not() -> None:
    first, again, other = (
        json.dumps(
            [[play.state.nodes, play.state.running, [p.pod for p in play.probes]] for play in a_round(0, chance, EVERY)]
        )
        for chance in (random("one"), random("one"), random("two"))
    )
    assert first == again
    assert first != other


def test_probe_has_only_features_that_are_compared() -> None:
    for play in a_round(0, random("few"), frozenset({Feature.FIT, Feature.PORTS})):
        assert {feature for probe in play.probes for feature in probe.features} <= {Feature.FIT, Feature.PORTS}
        assert all("priorityClassName" not in pod["spec"] for pod in play.state.running)


@pytest.mark.parametrize("number", range(30))
def test_running_pods_fit_on_their_nodes_and_share_no_port(number: int) -> None:
    state = a_state(random(f"state {number}"), "s", EVERY)
    for machine in state.machines:
        assert min(machine.cpu, machine.memory, machine.foo, machine.pods - 1) >= 0
        pods = [one for one in state.running if one["spec"]["nodeName"] == machine.name]
        ports = [port["hostPort"] for pod in pods for port in pod["spec"]["containers"][0].get("ports", ())]
        assert len(ports) == len(set(ports))


def test_running_pods_that_may_be_evicted_have_distinct_start_times() -> None:
    state = a_state(random("starts"), "s", frozenset({Feature.PREEMPTION}))
    starts = [pod["status"]["startTime"] for pod in state.running]
    assert len(set(starts)) == len(starts) > 0


def test_verdicts_agree_on_any_of_the_best_nodes_and_on_no_other() -> None:
    theirs = Verdict(node="n2", scores=SCORES)
    assert differences(Verdict(node="n3"), theirs) == []
    assert differences(Verdict(node="n1"), theirs) == ["n1 is not among the best nodes ['n2', 'n3']"]


def test_scores_are_compared_but_for_what_all_nodes_have() -> None:
    theirs = Verdict(node="n2", scores=SCORES)
    assert differences(Verdict(node="n3", scores=Scores({"n1": 30, "n2": 70, "n3": 70})), theirs) == []
    other = Verdict(node="n3", scores=Scores({"n1": 29, "n2": 70, "n3": 70}))
    assert differences(other, theirs) == ["other scores {'n1': (-41, -40)}"]
    less = Verdict(node="n3", scores=Scores({"n2": 70, "n3": 70}))
    assert differences(less, theirs) == ["other scores {'n1': (None, -40)}"]
    alone = Verdict(node="n3", scores=Scores({"n3": 70}))
    assert differences(alone, theirs) == ["other scores {'n1': (None, -40), 'n2': (None, 0)}"]
    assert differences(alone, Verdict(node="n3")) == []
    assert differences(less, Verdict(node="n3")) == ["other scores {'n2': (0, None)}"]


def test_only_node_that_fits_is_the_best_although_it_has_no_score() -> None:
    assert differences(Verdict(node="n1"), Verdict(node="n1")) == []
    assert differences(Verdict(node="n2"), Verdict(node="n1")) != []


def test_verdicts_differ_where_one_binds() -> None:
    assert differences(Verdict(message="0/1"), Verdict(node="n1")) == ["one binds, the other does not"]
    assert differences(Verdict(node="n1"), Verdict(message="0/1")) == ["one binds, the other does not"]


def test_messages_agree_but_for_the_pool_and_the_clause_on_device_claims() -> None:
    ours = Verdict(message="pool default: 0/2 nodes are available: 2 x. preemption: 0/2 nodes are available: 2 y.")
    theirs = "0/2 nodes are available: 2 x. no new claims to deallocate, preemption: 0/2 nodes are available: 2 y."
    assert differences(ours, Verdict(message=theirs)) == []
    assert differences(ours, Verdict(message=theirs.replace("2 y", "1 y, 1 z"))) == ["other messages"]


def test_victims_and_nominated_nodes_are_compared() -> None:
    ours = "pool default: 0/2 nodes are available: 2 x. preemption: nominated to node n1, waits for 2 evicted pods."
    assert our_victims(ours) == 2
    assert our_victims("0/2 nodes are available: 2 x.") is None
    mine = Verdict(message=ours, nominated="n1", victims=("b", "a"))
    theirs = Verdict(message="0/2 nodes are available: 2 x.", nominated="n1", victims=("a", "b"))
    assert differences(mine, theirs) == []
    other = Verdict(message=theirs.message, nominated="n2", victims=("a",))
    assert differences(mine, other) == ["other nominated nodes", "other victims"]


def test_message_is_not_compared_only_where_a_pod_was_bound_beside_its_victims() -> None:
    theirs = Verdict(message="0/2 nodes are available: 2 x.", nominated="n1", victims=("a",))
    assert differences(Verdict(nominated="n1", victims=("a",)), theirs) == []
    assert differences(Verdict(nominated="n1"), theirs) == ["other victims"]
    assert differences(Verdict(), Verdict(message="0/2 nodes are available: 2 x.")) == ["other messages"]


def test_pod_that_waits_for_pods_that_are_leaving_agrees_with_one_that_has_no_victims() -> None:
    reasons = "0/2 nodes are available: 2 x."
    ours = Verdict(
        message=f"pool default: {reasons} preemption: nominated to node n1, waits for pods that are leaving."
    )
    clause = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    none = f"no new claims to deallocate, {clause}"
    assert differences(ours, Verdict(message=f"{reasons} {none}")) == []
    assert differences(ours, Verdict(message=f"0/2 nodes are available: 2 y. {none}")) == ["other messages"]
    unhelpful = none.replace("No preemption victims found for incoming pod", "Preemption is not helpful for scheduling")
    assert differences(ours, Verdict(message=f"{reasons} {unhelpful}")) == ["other messages"]
    assert differences(ours, Verdict(message=reasons, nominated="n2", victims=("a",))) != []


def test_report_of_a_disagreement_has_the_pod_all_objects_and_both_verdicts() -> None:
    state, probe = a_probe()
    tally = Tally()
    tally.note(state, probe, Verdict(node="n1"), Verdict(node="n2", scores=SCORES))
    tally.note(state, probe, Verdict(node="n2"), Verdict(node="n2", scores=SCORES))
    told = tally.told()
    assert told.startswith("1 of 2 probes differ")
    assert "ours: node n1" in told
    assert "kube-scheduler: node n2" in told
    assert "130 n1" in told
    assert all(f"name: {one['metadata']['name']}" in told for one in (probe.pod, *state.nodes, *state.running))
    assert tally.apart == Counter(probe.features)
    assert tally.probes == Counter(dict.fromkeys(probe.features, 2))


def test_log_of_kube_scheduler_gives_scores_and_the_number_of_victims_also_of_lines_that_come_in_parts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "peer.log"
    path.write_text(LOG[:300])
    log = PeerLog(path)
    assert log.victims("blue/q") is None
    path.write_text(LOG)
    assert log.scores("blue/p") == Scores({"n1": 207}, {"n1": {"ImageLocality": 7, "NodeAffinity": 200}})
    assert log.scores("blue/none").best("n4") == ["n4"]
    assert log.victims("blue/q") == 2


ATTEMPTS = """
I1 schedule_one.go:123] "Attempting to schedule pod" pod="blue/p"
I1 schedule_one.go:1040] "Calculated node's final score for pod" pod="blue/p" node="n1" score=207
I1 schedule_one.go:1239] "Unable to schedule pod; no fit; waiting" pod="blue/p" err="0/1 nodes: 1 \\"x\\"."
I1 scheduling_queue.go:958] "Pod moved to an internal scheduling queue" pod="blue/p" event="E" queue="Unschedulable"
""".strip("\n").split("\n")
MOVED = ATTEMPTS[-1].replace("Unschedulable", "Backoff")
VICTIMS = 'I1 executor.go:251] "Start the preemption asynchronously" preemptor="blue/p" node="n1" numVictims=1 more=1'


def a_log(path: Path, *lines: str) -> PeerLog:
    path.write_text("".join(f"{line}\n" for line in lines))
    return PeerLog(path)


def test_pod_is_settled_where_its_last_attempt_has_ended_and_nothing_wakes_it(tmp_path: Path) -> None:
    path = tmp_path / "peer.log"
    assert not a_log(path).settled("blue/p")
    assert [a_log(path, *ATTEMPTS[:count]).settled("blue/p") for count in (1, 2, 3, 4)] == [False, False, False, True]
    assert not a_log(path, *ATTEMPTS, MOVED).settled("blue/p"), "an event has woken it"
    assert not a_log(path, *ATTEMPTS[:3], MOVED).settled("blue/p"), "an event came during the attempt"
    assert a_log(path, *ATTEMPTS, MOVED, *ATTEMPTS).settled("blue/p")
    bound = 'I1 schedule_one.go:481] "Successfully bound pod to node" pod="blue/p" node="n1"'
    log = a_log(path, *ATTEMPTS, MOVED, ATTEMPTS[0], bound)
    assert (log.settled("blue/p"), log.tries("blue/p"), log.message("blue/p")) == (True, 2, "")


def test_log_has_the_message_and_the_scores_of_the_last_attempt(tmp_path: Path) -> None:
    second = (ATTEMPTS[0], ATTEMPTS[2].replace("x", "y"), ATTEMPTS[3])
    log = a_log(tmp_path / "peer.log", *ATTEMPTS, MOVED, *second)
    assert (log.message("blue/p"), log.scores("blue/p")) == ('0/1 nodes: 1 "y".', Scores())


@pytest.mark.parametrize("at", [2, 3])
def test_log_has_the_message_of_the_attempt_that_chose_the_victims(at: int, tmp_path: Path) -> None:
    first = [*ATTEMPTS[:at], VICTIMS, *ATTEMPTS[at:]]
    later = [line.replace("x", "z") for line in ATTEMPTS]
    assert a_log(tmp_path / "peer.log", *first, MOVED, *later).preempting("blue/p") == '0/1 nodes: 1 "x".'


def test_tally_counts_the_probes_with_scores_and_those_that_were_tried_again() -> None:
    state, probe = a_probe()
    tally = Tally()
    tally.note(state, probe, Verdict(node="n2", scores=SCORES), Verdict(node="n2", scores=SCORES, tries=2))
    tally.note(state, probe, Verdict(node="n2"), Verdict(node="n2"))
    assert (tally.scored, tally.retried, tally.reports) == (Counter(probe.features), 1, [])
    assert "2 probes, 0 disagreements, 1 tried again" in str(tally)
