"""The documentation describes the metrics and the log lines that exist."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from aischeduler.observability.logging import printable
from tests.observability.test_metrics import busy_world, scraped

ROOT = Path(__file__).resolve().parents[2]
METRICS = (ROOT / "docs" / "metrics.md").read_text()
DEBUGGING = (ROOT / "docs" / "debugging.md").read_text()
LOGGING = sorted(
    path for package in ("kube", "daemon", "observability") for path in (ROOT / "aischeduler" / package).rglob("*.py")
)
LEVELS = ("debug", "info", "warning", "error")


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


def test_queries_and_alerts_use_metrics_that_exist() -> None:
    known = set(exposed())
    used = set(re.findall(r"\bai_scheduler_\w+", METRICS))
    assert {
        name for name in used if re.sub(r"_(bucket|count|sum)$", "", name) not in known and name not in known
    } == set()


def test_alerts_are_yaml_of_prometheus_shape() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", METRICS, re.DOTALL)
    rules: list[dict[str, Any]] = yaml.safe_load(block)["groups"][0]["rules"]
    assert all(rule["alert"] and rule["expr"] for rule in rules)


def kinds_of_lines() -> Iterator[tuple[str, str]]:
    """Yield file and event of every log line of the package."""
    for path in LOGGING:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                event = node.args[0]
                if isinstance(event, ast.Constant):
                    yield path.name, str(event.value)


def test_every_log_event_is_explained() -> None:
    kinds = dict.fromkeys(kinds_of_lines())
    assert ("executor.py", "bind") in kinds
    assert [kind for kind in kinds if f"`{kind[1]}`" not in DEBUGGING] == []


def fields_of_lines() -> dict[str, set[str]]:
    """Return the fields of every log line by event, for events whose fields the code names one by one."""
    found: dict[str, set[str]] = {}
    open_events: set[str] = set()
    for path in LOGGING:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                event = node.args[0]
                if isinstance(event, ast.Constant):
                    found.setdefault(str(event.value), set()).update(word.arg for word in node.keywords if word.arg)
                    open_events |= {str(event.value)} if any(word.arg is None for word in node.keywords) else set()
    return {event: fields for event, fields in found.items() if event not in open_events}


def test_example_lines_have_the_fields_that_the_code_writes() -> None:
    fields, checked = fields_of_lines(), 0
    pages = sorted((ROOT / "docs").glob("*.md"))
    for line in re.findall(r'^\{"timestamp".*\}$', "\n".join(page.read_text() for page in pages), re.MULTILINE):
        told = json.loads(line)
        if told["event"] in fields:
            checked += 1
            always = {"timestamp", "level", "event", "exception", "stack"}
            assert told.keys() - always <= fields[told["event"]] | {"left_out"}, told
    assert checked


def test_every_decision_and_its_refusal_has_an_example_line() -> None:
    lines = [yaml.safe_load(line) for line in re.findall(r'^\{"timestamp".*\}$', DEBUGGING, re.MULTILINE)]
    told = {line["event"] for line in lines}
    assert {event for file, event in kinds_of_lines() if file == "executor.py"} <= told
    assert all(printable(str(line)) == str(line) for line in lines)
