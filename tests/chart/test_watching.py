"""Alerts, runbooks and the dashboard name existing metrics and agree with each other."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, ROOT, Helm, Json
from tests.controlplane.binaries import the_promtool
from tests.test_documents import anchors

METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
ALERTS: list[Json] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: Json = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS: list[Json] = DASHBOARD["panels"]
NAME = re.compile(r"\b(?:ai_scheduler|process)_\w+")


@pytest.fixture(scope="module")
def promtool() -> Path:
    return the_promtool()


def described() -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", METRICS, re.MULTILINE))


def unknown(queries: Iterator[str]) -> list[str]:
    """Return the metrics in queries that the documentation does not describe."""
    used = sorted({name for query in queries for name in NAME.findall(query)})
    return [name for name in used if not {name, re.sub(r"_(bucket|count|sum)$", "", name)} & described()]


def expressions() -> Iterator[str]:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["expr"]


def test_alerts_use_metrics_that_exist() -> None:
    assert unknown(rule["expr"] for rule in ALERTS) == []


def test_dashboard_uses_metrics_that_exist() -> None:
    assert unknown(expressions()) == []
    assert len(set(expressions())) > 20


def test_a_metric_that_does_not_exist_would_be_found() -> None:
    assert unknown(iter(["rate(ai_scheduler_nothing_total[5m])"])) == ["ai_scheduler_nothing_total"]


def test_every_alert_says_how_bad_it_is_and_what_it_means() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"}, rule["alert"]


def test_every_alert_has_a_runbook_that_tells_what_it_means_where_to_look_and_what_to_do() -> None:
    sections = {section.partition("\n")[0]: section for section in RUNBOOKS.split("\n## ")[1:]}
    assert list(sections) == [rule["alert"] for rule in ALERTS]
    for name, section in sections.items():
        assert [word for word in ("**Means.**", "**Look.**", "**Do.**") if word not in section] == [], name
        assert "```sh\n" in section, name


@pytest.mark.parametrize("url", ["http://docs.example/runbooks.md", "https://docs.example/runbooks"])
def test_runbook_url_leads_to_the_section(helm: Helm, url: str) -> None:
    rule = {"enabled": True, "runbookUrl": url}
    (group,) = helm.render({"metrics": {"prometheusRule": rule}}).one("PrometheusRule")["spec"]["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [rule["alert"] for rule in ALERTS]
    for rule in group["rules"]:
        where, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert where == url
        assert anchor in anchors(RUNBOOKS)


def edited(promtool: Path, expression: str, **labels: str) -> str:
    """Return the expression in promtool's form, with these labels on each selector of series."""
    expression = f"({expression})"  # one that begins with a minus would be an option
    for command in [*(("label-matchers", "set", *label) for label in labels.items()), ("format",)]:
        words = [*command[:2], expression, *command[2:]]
        ran = subprocess.run([promtool, "--experimental", "promql", *words], capture_output=True, text=True, check=True)
        expression = ran.stdout
    return expression


@pytest.mark.parametrize(("release", "job"), [("ai-scheduler", "ai-scheduler"), ("blue", "blue-ai-scheduler")])
def test_alerts_of_a_release_look_at_its_own_series_alone(helm: Helm, promtool: Path, release: str, job: str) -> None:
    rendered = helm.render({"metrics": {"prometheusRule": {"enabled": True}}}, "--namespace=ai", release=release)
    (group,) = rendered.one("PrometheusRule", job)["spec"]["groups"]
    for rule, written in zip(group["rules"], ALERTS, strict=True):
        wanted = edited(promtool, written["expr"], namespace="ai", job=job)
        assert edited(promtool, rule["expr"]) == wanted
        assert rule["labels"] == written["labels"] | {"namespace": "ai", "job": job}
        assert rule | {"expr": "", "labels": {}} == written | {"expr": "", "labels": {}}


def test_service_of_a_release_gives_its_series_the_labels_of_its_alerts(helm: Helm) -> None:
    """Prometheus takes the job from the name of the Service, and the namespace from the Service's."""
    values = {"metrics": {"serviceMonitor": {"enabled": True}}}
    rendered = helm.render(values, "--namespace=ai", release="blue")
    service = rendered.one("Service", "blue-ai-scheduler")
    monitor = rendered.one("ServiceMonitor", "blue-ai-scheduler")["spec"]
    assert (service["metadata"]["namespace"], monitor["namespaceSelector"]["matchNames"]) == ("ai", ["ai"])
    assert "jobLabel" not in monitor


@pytest.mark.parametrize(
    ("peers", "sentence"),
    [
        ({}, '{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}'),
        ({"metricsFrom": []}, "NOTE: networkPolicy.metricsFrom is empty. Nobody can read the metrics"),
    ],
)
def test_notes_of_a_release_with_a_service_monitor_say_who_can_read_the_metrics(
    helm: Helm, peers: Json, sentence: str
) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}}, "networkPolicy": peers}
    said = helm.run(["install", "ai-scheduler", str(CHART), "--dry-run=client", "-f", "-"], values)
    assert sentence in said.partition("NOTES:")[2]


def test_dashboard_arrives_as_it_is_written(helm: Helm) -> None:
    values = {"grafanaDashboard": {"enabled": True}}
    text = helm.render(values).one("ConfigMap", "ai-scheduler-dashboard")["data"]["ai-scheduler.json"]
    assert json.loads(text) == DASHBOARD


def test_every_panel_shows_the_chosen_release_alone(promtool: Path) -> None:
    assert [found["name"] for found in DASHBOARD["templating"]["list"]] == ["datasource", "namespace", "job", "pool"]
    for expression in expressions():
        query = expression.replace("$__rate_interval", "5m")
        assert edited(promtool, query, namespace="$namespace", job="$job") == edited(promtool, query)


def test_panels_have_their_own_number_and_place() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = [
        (x, y)
        for panel in PANELS
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_panels_say_what_they_show_and_ask_the_chosen_prometheus() -> None:
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["description"], panel["title"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
