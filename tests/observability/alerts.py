"""Prometheus' own judge of the chart's alerts: promtool evaluates the rules over scrapes, one a minute."""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client.parser import text_string_to_metric_families

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "helm" / "ai-scheduler" / "files" / "alerts.yaml"
NAMES: Final = tuple(rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"])
TARGET: Final = {"job": "ai-scheduler", "instance": "ai-scheduler-0:8080"}
"""The labels that Prometheus adds to each series of a scrape."""

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""The samples of one scrape by name and labels."""


def scraped(page: bytes) -> Series:
    """Return the samples of a page in Prometheus' text format."""
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, tuple(sorted((sample.labels | TARGET).items()))): sample.value
        for family in families
        for sample in family.samples
    }


def firing(promtool: Path, directory: Path, scrapes: Sequence[Series | None]) -> set[str]:
    """Return the alerts that fire at the end of these scrapes, one a minute; None is one that failed.

    promtool compares with an expectation and tells what differs: the alerts that fire.
    """
    up = ("up", tuple(sorted(TARGET.items())))
    every = sorted({up, *(key for scrape in scrapes for key in scrape or ())})
    lines = []
    for key in every:
        values = [
            float(scrape is not None) if key == up else None if scrape is None else scrape.get(key)
            for scrape in scrapes
        ]
        labels = ",".join(f"{name}={_quoted(value)}" for name, value in key[1])
        shown = " ".join(
            "_" if value is None else repr(value).replace("nan", "NaN").replace("inf", "+Inf") for value in values
        )
        lines.append({"series": f"{key[0]}{{{labels}}}", "values": shown})
    path = directory / "alerts.yaml"
    path.write_text(yaml.safe_dump(_document(lines, len(scrapes) - 1)))
    ended = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    told = ended.stdout + ended.stderr
    found = set(re.findall(r'expr: "count\(ALERTS{alertname=\\"(\w+)\\"', told))
    if bool(found) != bool(ended.returncode):
        raise AssertionError(told)
    return found


def _document(series: list[dict[str, str]], minutes: int) -> dict[str, Any]:
    """Return a test by which no alert fires after so many minutes."""
    expected = [
        {
            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
            "eval_time": f"{minutes}m",
            "exp_samples": [{"labels": "{}", "value": 0}],
        }
        for name in NAMES
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": expected}
    return {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
