"""The benchmark itself: a run with a fault has no figures, ratios are of the same round, errors are one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tests.bench.__main__ import MODULES, main, run
from tests.bench.apart import apart
from tests.bench.results import CaseResult, Machine, Results, Spread, Target, margins, ratios, save
from tests.bench.rounds import play
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError, faults, overfull
from tests.bench.tables import print_case, rows

PEER = "peer"
RATE = "pods/s"
GOOD = Evidence(("a", "b"), (("a", "n"), ("b", "n")))


def a_case(*evidence: Evidence, goals: tuple[Goal, ...] = ()) -> Case:
    """Return a case whose runs have these evidences in turn; ours grows by 100 a run, the peer has 50."""
    runs = iter(evidence)
    rates = iter(range(100, 10_000, 100))

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: Measured(next(runs), {RATE: next(rates) if side == OURS else 50.0})

    return Case("case", "a case", (OURS, PEER), opened, goals=goals)


def results_of(*cases: CaseResult, shrink: int = 1) -> Results:
    machine = Machine(2, 24.0, "3.11.0", "abc", [0.5])
    return Results("2026-01-02T03:04:05Z", shrink, machine, list(cases))


def printed(case: CaseResult) -> str:
    console = Console(width=200)
    with console.capture() as caught:
        print_case(console, case)
    return caught.get()


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (Evidence(("a", "b"), (("a", "n"),)), "1 pods were not bound: b"),
        (Evidence(("a",), (("a", "n"), ("a", "m"))), "1 pods were bound twice: a"),
        (Evidence((), (("a", "n"),)), "1 pods must not be bound: a"),
        (Evidence(("a",), (("a", "n"),), ("n has 1 cpu, 2 are used",)), "1 nodes were overcommitted"),
    ],
)
def test_run_in_which_a_pod_went_wrong_has_no_figure(evidence: Evidence, said: str) -> None:
    found = play(a_case(GOOD, GOOD, evidence), 2, lambda _: None)
    assert said in found.void
    assert RATE not in printed(found)
    assert not any(found.sides.values())


def test_run_without_fault_has_none() -> None:
    assert faults(GOOD) == []


def test_node_is_too_full_by_any_resource() -> None:
    room = {"n": {"cpu": 2, "pods": 2}}
    asked = {"a": {"cpu": 1, "pods": 1}, "b": {"cpu": 2, "pods": 1}}
    assert overfull(room, asked, [("a", "n")]) == []
    assert overfull(room, asked, [("a", "n"), ("b", "n")]) == ["n has 2 cpu, 3 are used"]
    assert overfull(room, asked, [("a", "elsewhere")])[0] == "elsewhere has 0 cpu, 1 are used"


def test_sides_run_in_turn_every_other_round_backwards_and_ratios_are_of_the_same_round() -> None:
    heard: list[str] = []
    found = play(a_case(*[GOOD] * 6), 3, heard.append)
    assert [line.rpartition(" ")[2] for line in heard] == [OURS, PEER, PEER, OURS, OURS, PEER]
    assert ratios(found, RATE, PEER) == Spread(2.0, 4.0, 6.0)
    assert ratios(found, "no such figure", PEER) is None


def test_side_that_cannot_run_voids_the_case() -> None:
    @contextmanager
    def opened() -> Iterator[Measure]:
        def measure(side: str) -> Measured:
            raise VoidRunError(f"{side} did not start")

        yield measure

    assert play(Case("case", "a case", (OURS,), opened), 1, lambda _: None).void == f"{OURS} did not start"


def test_margin_is_how_many_times_better_than_the_goal() -> None:
    sides = {OURS: {RATE: [100.0, 200.0, 400.0]}, PEER: {RATE: [100.0, 100.0, 100.0]}}
    case = CaseResult("case", "a case", sides, [])
    assert margins(case, Target(RATE, 2.0, at_least=True, peer=PEER)) == Spread(0.5, 1.0, 2.0)
    assert margins(case, Target(RATE, 100.0, at_least=False, peer="")) == Spread(0.25, 0.5, 1.0)


def test_table_says_whether_a_goal_is_reached() -> None:
    goals = (Goal(RATE, 3.0, peer=PEER), Goal(RATE, 1_000.0))
    found = play(a_case(*[GOOD] * 4, goals=goals), 2, lambda _: None)
    assert [PEER, "50", "3 (2 to 4)", "≥ 3", "reached"] in [row[2:] for row in rows(found)]
    assert ["≥ 1,000", "missed"] in [row[5:] for row in rows(found)]


def test_goal_may_be_beside_another_figure_of_the_peer() -> None:
    sides = {OURS: {"own CPU": [1.0, 3.0]}, PEER: {"own CPU": [5.0, 5.0], "server's CPU": [10.0, 10.0]}}
    goals = [Target("own CPU", 0.25, at_least=False, peer=PEER, of="server's CPU")]
    found = CaseResult("case", "a case", sides, goals)
    assert list(rows(found))[:2] == [
        ["own CPU", "2", PEER, "5", "0.4 (0.2 to 0.6)", "", ""],
        ["own CPU / server's CPU", "2", PEER, "10", "0.2 (0.1 to 0.3)", "≤ 0.25", "reached"],
    ]


def test_results_are_saved_whole(tmp_path: Path) -> None:
    results = results_of(play(a_case(GOOD, GOOD), 1, lambda _: None))
    save(results, tmp_path / "new" / "results.json")
    assert msgspec.json.decode((tmp_path / "new" / "results.json").read_bytes(), type=Results) == results


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds", "0"], "--rounds must be a whole number from 1 to 50, not '0'"),
        (["--rounds", "many"], "--rounds must be a whole number from 1 to 50, not 'many'"),
        (["--shrink", "101"], "--shrink must be a whole number from 1 to 100, not '101'"),
        (["--case", "nothing"], "no case matches 'nothing'; `--list` shows all"),
        (["--case", "never-fit", "--out", "/proc/no/file"], "results cannot be written to /proc/no/file"),
        (["--case", "never-fit", "--out", "/proc"], "results cannot be written to /proc: Is a directory"),
    ],
)
def test_bad_argument_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_missing_programs_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert main(["--case", "restart", "--out", str(tmp_path / "r.json")]) == 2
    told = capsys.readouterr().err
    assert "holds no etcd" in told
    assert told.count("\n") == 1


def test_every_case_has_a_name_of_its_own() -> None:
    console = Console(width=300)
    with console.capture() as caught:
        assert run(["--full", "--list"], console) == 0
    names = [line.split()[0] for line in caught.get().splitlines()]
    assert len(set(names)) == len(names) > 20


def test_every_case_has_a_goal() -> None:
    assert [case.name for module in MODULES for case in module.cases(1) if not case.goals] == []


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("never-fit", "CPU s to decide all"),
        ("gang-over-full-nodes-alike", "victims"),
        ("parked-gangs", "ms of the longest call"),
        ("observe-worst", "worst ms of CPU"),
    ],
)
def test_case_in_process_runs_whole(name: str, figure: str, tmp_path: Path) -> None:
    console = Console(width=200)
    with console.capture() as caught:
        words = ["--case", name, "--shrink", "100", "--rounds", "1", "--out", str(tmp_path / "r.json")]
        assert run(words, console) == 0
    assert figure in caught.get()
    saved = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Results)
    assert saved.cases[0].sides[OURS][figure][0] > 0


@pytest.mark.whole
def test_work_apart_is_done_in_a_fresh_interpreter() -> None:
    assert apart(os.getpid) != os.getpid()


@pytest.mark.whole
def test_work_apart_that_fails_voids_its_run(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VoidRunError, match="failed"):
        apart(int, "no number")
    assert "no number" in capfd.readouterr().err
