"""The documentation describes the metrics and the log lines that exist."""

import json
import re
from pathlib import Path

import yaml

from aischeduler.observability.logging import printable
from tests.observability.test_metrics import busy_world, scraped
from tools.docs import log_lines

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
METRICS = (REFERENCE / "metrics.md").read_text()
LOGS = (REFERENCE / "logs.md").read_text()
TROUBLESHOOT = (ROOT / "docs" / "troubleshoot.md").read_text()


def described() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return every metric of the tables with its type and labels."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", METRICS, re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def exposed() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return every metric of a scrape with its type and labels, named as Prometheus shows it."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for family in scraped(busy_world(), ""):
        kind = "gauge" if family.type == "info" else family.type
        name = f"{family.name}_total" if kind == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels if label != "le"}
        found[name] = (kind, tuple(sorted(labels)))
    return found


def test_every_metric_is_described_with_its_type_and_labels_and_nothing_else_is() -> None:
    assert {name: (kind, tuple(sorted(labels))) for name, (kind, labels) in described().items()} == exposed()


def test_pages_name_metrics_that_exist() -> None:
    known = set(exposed())
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    used = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bai_scheduler_\w+", pages)}
    assert used - known == set()


def test_example_lines_have_the_fields_that_the_code_writes() -> None:
    fields = {event: fields for event, (_, fields, more) in log_lines().items() if not more}
    checked = 0
    pages = sorted((ROOT / "docs").rglob("*.md"))
    for line in re.findall(r'^\{"timestamp".*\}$', "\n".join(page.read_text() for page in pages), re.MULTILINE):
        told = json.loads(line)
        if told["event"] in fields:
            checked += 1
            always = {"timestamp", "level", "event", "exception", "stack"}
            assert told.keys() - always <= fields[told["event"]] | {"left_out"}, told
    assert checked


def test_every_decision_and_its_refusal_has_an_example_line() -> None:
    lines = [yaml.safe_load(line) for line in re.findall(r'^\{"timestamp".*\}$', LOGS, re.MULTILINE)]
    told = {line["event"] for line in lines}
    assert log_lines([ROOT / "aischeduler" / "kube" / "executor.py"]).keys() <= told
    assert all(printable(str(line)) == str(line) for line in lines)
