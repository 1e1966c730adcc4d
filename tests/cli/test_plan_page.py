"""docs/cli.md on plan: every command prints what is written below it, and every field and verdict is described."""

import json
import re
from pathlib import Path

import pytest

from aischeduler.analysis.cluster_snapshot import write_lines
from aischeduler.analysis.plan import UnitVerdict
from aischeduler.cli.app import main
from tests.cli.jq import filtered
from tests.cli.plan_cluster import plan_cluster

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text().partition("\n## Plan a change\n")[2]
FILES = re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```console\n\$ ai-scheduler (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory with the files of the page and its cluster."""
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    (tmp_path / "cluster.jsonl").write_bytes(b"".join(line + b"\n" for line in write_lines(plan_cluster())))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "output"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_command_prints_what_is_written_below_it(
    command: str, output: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, _, jq = command.partition(" | jq ")
    assert main([*own.split(), "--snapshot", "cluster.jsonl"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert (filtered(said.out, jq) if jq else said.out) == output


def test_every_field_is_described(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-f", "work.yaml", "--snapshot", "cluster.jsonl", "-o", "json"]
    assert main(["plan", *options]) == 0
    made = json.loads(capsys.readouterr().out)
    described = {
        name for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE) for name in row.split(", ")
    }
    assert {f"`{name}`" for name in (*made, *made["units"][0])} <= described


def test_every_verdict_is_described() -> None:
    assert [verdict for verdict in UnitVerdict if f"| `{verdict}` |" not in PAGE] == []


def test_page_shows_each_verdict() -> None:
    (_, output), *_ = COMMANDS
    assert {word for word in output.split() if word in set(UnitVerdict)} >= {"evicts", "borrows", "waits"}
