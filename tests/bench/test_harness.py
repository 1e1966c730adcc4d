"""The benchmark itself: no figure of a run in which a pod went wrong, ratios round by round, and clear refusals."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.__main__ import main, run
from tests.bench.apart import apart
from tests.bench.cases import handover, installed
from tests.bench.heartbeats import statuses
from tests.bench.plot import svg
from tests.bench.report import ReportError, latest, replaced, section, write
from tests.bench.results import CaseResult, Machine, Results, Spread, Target, load, margins, ratios, save
from tests.bench.rounds import play
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError, faults, overfull
from tests.bench.tables import markdown, print_case
from tests.build import replace
from tests.real.bindings import Answered

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
        (Evidence((), (("a", "n"),)), "1 pods should not have been bound: a"),
        (Evidence(("a",), (("a", "n"),), ("n has 1 cpu, 2 are used",)), "1 times a full node was used"),
    ],
)
def test_run_in_which_a_pod_went_wrong_has_no_figure(evidence: Evidence, said: str) -> None:
    found = play(a_case(GOOD, GOOD, evidence), 2, lambda _: None)
    assert said in found.void
    assert RATE not in printed(found)
    assert RATE not in markdown(found)
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
    text = markdown(found)
    assert "| pods/s | 150 | peer | 50 | 3 (2 to 4) | ≥ 3 | reached |" in text
    assert "| ≥ 1,000 | missed |" in text
    assert "case: pods/s ≥ 3 of peer" in svg([found])


def test_goal_may_be_beside_another_figure_of_the_peer() -> None:
    sides = {OURS: {"own CPU": [1.0, 3.0]}, PEER: {"own CPU": [5.0, 5.0], "server's CPU": [10.0, 10.0]}}
    goals = [Target("own CPU", 0.25, at_least=False, peer=PEER, of="server's CPU")]
    found = CaseResult("case", "a case", sides, goals)
    text = markdown(found)
    assert "| own CPU | 2 | peer | 5 | 0.4 (0.2 to 0.6) |  |  |" in text
    assert "| own CPU / server's CPU | 2 | peer | 10 | 0.2 (0.1 to 0.3) | ≤ 0.25 | reached |" in text
    assert "case: own CPU ≤ 0.25 of peer: server's CPU" in svg([found])


def test_results_come_back_as_they_were_saved(tmp_path: Path) -> None:
    results = results_of(play(a_case(GOOD, GOOD), 1, lambda _: None))
    save(results, tmp_path / "new" / "results.json")
    assert load(tmp_path / "new" / "results.json") == results


def test_page_keeps_all_but_its_generated_part(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    save(results_of(play(a_case(GOOD, GOOD), 1, lambda _: None)), tmp_path / "r.json")
    write([tmp_path / "r.json"], tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| pods/s |" in text
    assert (tmp_path / "performance" / "2026-01-02T030405Z.json").exists()
    assert "<svg" in (tmp_path / "performance" / "goals.svg").read_text()


def test_page_leaves_out_cases_that_are_no_more(tmp_path: Path) -> None:
    (tmp_path / "performance.md").write_text("<!-- results -->\n<!-- end of results -->\n")
    save(
        results_of(*(CaseResult(name, name, {OURS: {RATE: [1.0]}}, []) for name in ("there", "gone"))),
        tmp_path / "r.json",
    )
    write([tmp_path / "r.json"], tmp_path, {"there"})
    assert "**there" in (tmp_path / "performance.md").read_text()
    assert "gone" not in (tmp_path / "performance.md").read_text()
    assert [case.name for case in load(tmp_path / "performance" / "2026-01-02T030405Z.json").cases] == ["there", "gone"]


def test_page_shows_of_each_case_the_last_run_that_has_it(tmp_path: Path) -> None:
    runs = []
    for day, names in (("2026-01-02", ("first", "both")), ("2026-01-03", ("both",))):
        cases = [CaseResult(name, f"{name} on {day}", {OURS: {RATE: [1.0]}}, []) for name in names]
        runs.append(replace(results_of(*cases), begun=f"{day}T00:00:00Z"))
    assert [(run.begun[:10], [case.about for case in cases]) for run, cases in latest(runs)] == [
        ("2026-01-03", ["both on 2026-01-03"]),
        ("2026-01-02", ["first on 2026-01-02"]),
    ]
    assert section(runs).index("### 2026-01-03") < section(runs).index("### 2026-01-02")


def test_figures_of_shrunk_sizes_do_not_reach_the_page(tmp_path: Path) -> None:
    save(results_of(shrink=10), tmp_path / "r.json")
    with pytest.raises(ReportError, match="divided by 10"):
        write([tmp_path / "r.json"], tmp_path)


def test_page_without_a_generated_part_is_refused() -> None:
    with pytest.raises(ReportError, match="no part between"):
        replaced("a page", "text")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds", "0"], "--rounds must be a whole number from 1 to 50, not '0'"),
        (["--rounds", "many"], "--rounds must be a whole number from 1 to 50, not 'many'"),
        (["--shrink", "101"], "--shrink must be a whole number from 1 to 100, not '101'"),
        (["--case", "nothing"], "there is no case 'nothing'; `--list` shows all"),
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


def a_binding(pod: str, epoch: int, status: int = 201) -> Answered:
    return Answered(pod, pod, "n", f"d-{pod}", str(epoch), status)


def test_hand_over_is_timed_to_the_first_pod_that_the_next_leader_bound() -> None:
    answered = [a_binding("a", 3), a_binding("b", 4, 409), a_binding("c", 4), a_binding("d", 4)]
    shown = {"a": 1.0, "c": 12.5, "d": 12.0}
    assert handover.first_moments(answered, shown) == {3: 1.0, 4: 12.0}


@pytest.mark.parametrize(
    ("answered", "bugs", "said"),
    [
        ([a_binding("a", 4), a_binding("b", 3)], [], "a leader wrote after the next one"),
        ([a_binding("a", 3)], [{"event": "failed"}], "a scheduler met a bug of ours: {'event': 'failed'}"),
    ],
)
def test_hand_over_in_which_two_led_or_one_failed_has_no_figure(
    answered: list[Answered], bugs: list[dict[str, str]], said: str
) -> None:
    handover.check([a_binding("a", 3), a_binding("b", 4)], [])
    with pytest.raises(VoidRunError) as void:
        handover.check(answered, bugs)
    assert str(void.value) == said


def test_nodes_tell_in_turn_that_they_live_and_change_nothing_but_the_time() -> None:
    written = list(statuses(nodes=2, count=3, unix_seconds=0.0))
    assert [one.path.decode().split("/")[-2] for one in written] == ["gpu-00000", "gpu-00001", "gpu-00000"]
    conditions = json.loads(written[0].body)["status"]["conditions"]
    assert conditions[-1] == {"type": "Ready", "lastHeartbeatTime": "1970-01-01T00:00:00Z"}


def test_installed_size_counts_recorded_files_and_the_bytecode_that_they_would_have(tmp_path: Path) -> None:
    record = tmp_path / "thing-1.dist-info" / "RECORD"
    record.parent.mkdir()
    texts = {"thing/a.py": "A = 1\n", "thing/broken.py": "A = = 1\n", "thing/a.so": "12345", "thing/old.pyc": "123"}
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    record.write_text("".join(f"{name},,\n" for name in (*texts, "thing/removed.py")))
    (tmp_path / "thing" / "not-recorded").write_text("1")
    found = installed.files_of(Distribution.at(record.parent))
    assert sorted(path.name for path in found) == ["a.py", "a.so", "broken.py"]
    plain, bytecode = installed.sizes_of(found)
    assert plain == 6 + 5 + 8
    assert installed.HEADER_BYTES < bytecode < 1_000


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("no-such-thing==1.0 \\\n    --hash=sha256:00\n", "no-such-thing is not installed"),
        ("pytest==0.1 \\\n", "in the lock"),
    ],
)
def test_installation_that_is_not_that_of_the_lock_has_no_size(lock: str, said: str) -> None:
    with pytest.raises(VoidRunError, match=said):
        list(installed.distributions(lock))


def test_what_the_lock_names_for_other_machines_is_not_counted() -> None:
    assert list(installed.distributions("colorama==0.4.6 ; sys_platform == 'win32' \\\n")) == []


@pytest.mark.whole
def test_case_in_process_runs_whole(tmp_path: Path) -> None:
    console = Console(width=200)
    with console.capture() as caught:
        words = ["--case", "never-fit", "--shrink", "100", "--rounds", "1", "--out", str(tmp_path / "r.json")]
        assert run(words, console) == 0
    assert "CPU s to decide all" in caught.get()
    assert load(tmp_path / "r.json").cases[0].sides[OURS]["CPU s to decide all"][0] > 0


@pytest.mark.whole
def test_work_apart_is_done_in_a_fresh_interpreter() -> None:
    assert apart(os.getpid) != os.getpid()


@pytest.mark.whole
def test_work_apart_that_fails_voids_its_run(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VoidRunError, match="failed"):
        apart(int, "no number")
    assert "no number" in capfd.readouterr().err
