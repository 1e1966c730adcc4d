"""Alerts, runbooks and the dashboard name existing metrics and agree with each other."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.chart.rendering import CHART, ROOT, Helm, Json
from tests.test_documents import anchors

METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
ALERTS: list[Json] = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD: Json = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS: list[Json] = DASHBOARD["panels"]
NAME = re.compile(r"\b(?:ai_scheduler|process)_\w+")


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


def test_alerts_arrive_as_they_are_written_and_follow_the_name_of_the_service(helm: Helm) -> None:
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    (group,) = helm.render(values).one("PrometheusRule")["spec"]["groups"]
    assert group["rules"] == ALERTS
    (other,) = helm.render(values, release="blue").one("PrometheusRule", "blue-ai-scheduler")["spec"]["groups"]
    assert other["rules"][0]["expr"] == 'absent(up{job="blue-ai-scheduler"} == 1)'


def test_dashboard_arrives_as_it_is_written_and_follows_the_name_of_the_service(helm: Helm) -> None:
    values = {"grafanaDashboard": {"enabled": True}}
    text = helm.render(values).one("ConfigMap", "ai-scheduler-dashboard")["data"]["ai-scheduler.json"]
    assert json.loads(text) == DASHBOARD
    other = helm.render(values, release="blue").one("ConfigMap", "blue-ai-scheduler-dashboard")["data"]
    queries = [query for query in expressions() if "job=" in query]
    assert len(queries) == 2
    for query in queries:
        assert query not in str(json.loads(other["ai-scheduler.json"]))
    assert 'job=\\"blue-ai-scheduler\\"' in other["ai-scheduler.json"]


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
