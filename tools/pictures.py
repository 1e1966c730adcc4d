"""Draws docs/pictures from real output: `pictures.py` runs the product on its sandbox for four minutes.

Invariants:
- The pictures of commands are what the commands print, with their colours.
- A panel of the dashboard shows what promtool evaluates for its queries over the scrapes of the run. Only the drawing
  is ours: Grafana draws the same series in its own way.
- A picture asks for nothing from another host.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import yaml
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.text import Text

from aischeduler.cli.demo_cluster import Object, cluster
from aischeduler.model.names import POOL_KEY

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
BUILD_SCRIPT: Final = ROOT / "tools" / "controlplane" / "build.py"
DASHBOARD: Final = ROOT / "helm" / "ai-scheduler" / "files" / "dashboard.json"
PROGRAM: Final = str(Path(sys.executable).with_name("ai-scheduler"))
SCRAPE_SECONDS: Final = 5
SCRAPES: Final = 48
TARGET: Final = {"namespace": "kube-system", "job": "ai-scheduler", "instance": "ai-scheduler-0:8080"}
VARIABLES: Final = {**TARGET, "__rate_interval": "30s", "pool": ".*"}
"""The variables of the dashboard; a rate is that of six scrapes."""
COLUMN: Final = 40
ROW: Final = 26
COLOURS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#c0d8ff", "#ffa6b0")
FOREIGN: Final = re.compile(r"@font-face \{.*?\}|<!-- .*? -->", re.DOTALL)
"""What rich adds to a picture of other hosts: fonts and an address."""
NOTE: Final = (
    "The panels of the dashboard, drawn from four minutes of a scheduler on the sandbox; not a screenshot of Grafana."
)

PATHS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Node": "/api/v1/nodes",
    "Pool": "/apis/resource.aibee.cn/v1alpha1/pools",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
}

Key = tuple[str, tuple[tuple[str, str], ...]]
Lines = dict[str, dict[int, float]]
"""The values of each series by its legend and the second of the run."""


def a_job(name: str, pool: str, pods: int, cpu: int, gpus: int = 0) -> Object:
    """Return a Job of so many equal pods."""
    amounts = {"cpu": str(cpu), "memory": "8Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "main", "image": name, "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": "ai-scheduler", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": {POOL_KEY: pool}}, "spec": spec}
    whole = {"parallelism": pods, "completions": pods, "backoffLimit": 1000, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": whole}


STEPS: Final[dict[int, Object | str]] = {
    3: a_job("etl", "cpu-pool", 30, 4),
    6: a_job("notebooks", "cpu-pool", 8, 2, gpus=1),  # borrows GPUs
    8: a_job("train", "gpu-pool", 40, 8, gpus=1),
    14: a_job("digest", "cpu-pool", 90, 4),  # larger than its pool: the rest borrows
    22: a_job("tune", "gpu-pool", 20, 24, gpus=1),  # takes lent room back
    29: "etl",
    34: a_job("train-large", "gpu-pool", 30, 8, gpus=1),  # larger than what is left
    40: a_job("etl-2", "cpu-pool", 12, 4),
}
"""What the run creates, or the name of the Job that it deletes, by the turn of the scrape."""


@contextmanager
def started(*arguments: str, log: Path) -> Iterator[None]:
    """Run a command of the product during the block."""
    with log.open("wb") as out, subprocess.Popen([PROGRAM, *arguments], stdout=out, stderr=out) as program:
        try:
            yield
        finally:
            program.terminate()


def said(log: Path, pattern: str) -> str:
    """Wait until a log has a text and return the text of its group."""
    deadline = time.monotonic() + 20
    while (found := re.search(pattern, log.read_text(encoding="utf-8"))) is None:
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.1)
    return found[1]


def ask(method: str, url: str, body: Object | None = None) -> bytes:
    """Return the answer of a server of this machine."""
    content = json.dumps(body).encode() if body else None
    with urlopen(Request(url, content, {"Content-Type": "application/json"}, method=method)) as answer:  # noqa: S310
        return bytes(answer.read())


def run(folder: Path) -> list[dict[Key, float]]:
    """Run the product, draw the pictures of its commands, and return the scrapes."""
    kubeconfig, logs = folder / "kubeconfig", [folder / "sandbox.log", folder / "run.log"]
    with started("sandbox", "--kubeconfig-out", str(kubeconfig), log=logs[0]):
        server = said(logs[0], "listens on (http://[^;]+);")
        for item in cluster():
            ask("POST", server + PATHS[item["kind"]], item)
        options = ("--kubeconfig", str(kubeconfig), "--no-leader-elect", "--http-address", "127.0.0.1:0")
        with started("run", *options, log=logs[1]):
            port = said(logs[1], r'"serving metrics and health","port":(\d+)')
            scrapes = [scraped(turn, server, f"http://127.0.0.1:{port}/metrics") for turn in range(SCRAPES)]
            draw_commands(server, kubeconfig)
    return scrapes


def scraped(turn: int, server: str, metrics: str) -> dict[Key, float]:
    """Make the step of this turn, wait, and return the samples of a scrape."""
    match STEPS.get(turn):
        case str(name):
            ask("DELETE", f"{server}{PATHS['Job']}/{name}?propagationPolicy=Background")
        case dict(job):
            ask("POST", server + PATHS["Job"], job)
    time.sleep(SCRAPE_SECONDS)
    return {
        (sample.name, tuple(sorted((sample.labels | TARGET).items()))): sample.value
        for family in text_string_to_metric_families(ask("GET", metrics).decode())
        for sample in family.samples
    }


def draw_commands(server: str, kubeconfig: Path) -> None:
    """Draw the table of Pools, and the explanation of a pod that waits."""
    pods = json.loads(ask("GET", f"{server}/api/v1/namespaces/default/pods"))["items"]
    names = sorted(pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName"))
    waiting = next(name for name in names if name.startswith("train-large"))
    for file, words, width in (("pools", ("pools",), 78), ("explain", ("explain", waiting), 96)):
        environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(width), "KUBECONFIG": str(kubeconfig)}
        shown = subprocess.run([PROGRAM, *words], env=environment, capture_output=True, text=True, check=True).stdout
        (PICTURES / f"{file}.svg").write_text(terminal(f"$ ai-scheduler {' '.join(words)}", shown, width))


def terminal(command: str, shown: str, width: int) -> str:
    """Return the picture of a terminal in which a command printed this."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(Text(command, style="bold"), Text.from_ansi(shown.rstrip()), sep="\n")
    picture = console.export_svg(title="ai-scheduler", unique_id="terminal").replace("Fira Code", "DejaVu Sans Mono")
    return FOREIGN.sub("", picture)


def evaluated(promtool: str, folder: Path, scrapes: Sequence[dict[Key, float]], queries: Sequence[str]) -> Any:
    """Return the rows of each query as labels, second and value: promtool tells what it got, for none is expected."""
    series = []
    for key in sorted({key for scrape in scrapes for key in scrape}):
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in key[1])
        values = " ".join("_" if (one := scrape.get(key)) is None else repr(one) for scrape in scrapes)
        series.append({"series": f"{key[0]}{{{labels}}}", "values": values.replace("inf", "Inf").replace("nan", "NaN")})
    times = [turn * SCRAPE_SECONDS for turn in range(2, len(scrapes))]
    tests = [{"expr": query, "eval_time": f"{at}s", "exp_samples": []} for query in queries for at in times]
    test = {"interval": f"{SCRAPE_SECONDS}s", "input_series": series, "promql_expr_test": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump({"evaluation_interval": test["interval"], "tests": [test]}))
    command = [promtool, "test", "rules", str(folder / "test.yaml")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = defaultdict(list)
    for block in re.split(r'(?=expr: ")', told.stdout + told.stderr)[1:]:
        head = re.match(r'expr: ("(?:[^"\\]|\\.)*"), time: (\w+)', block)
        assert head is not None, block
        for labels, value in re.findall(r"({[^{}]*}) (\S+?)(?:,? |\n|$)", block.partition("got: ")[2]):
            if value != "NaN":
                row = dict(re.findall(r'(\w+)="(.*?)"', labels)), seconds(head[2]), float(value)
                found[json.loads(head[1])].append(row)
    return found


def seconds(text: str) -> int:
    """Return a duration such as 1m5s in seconds."""
    return sum(int(count) * {"m": 60, "s": 1}[unit] for count, unit in re.findall(r"(\d+)([ms])", text))


def query_of(target: Any) -> str:
    """Return the query of a target for all Pools."""
    return re.sub(r"\$(\w+)", lambda variable: VARIABLES[variable[1]], target["expr"])


def lines_of(panel: Any, found: Any) -> Lines:
    """Return the lines of a panel by their legends, the largest first: a legend has no room for all that stay at 0."""
    lines: Lines = defaultdict(dict)
    for target in panel.get("targets", ()):
        for labels, at, value in found[query_of(target)]:
            name = target.get("legendFormat") or " ".join(f"{label} {{{{{label}}}}}" for label in sorted(labels))
            for label, text in labels.items():
                name = name.replace(f"{{{{{label}}}}}", text)
            lines[name][at] = value
    return dict(sorted(lines.items(), key=lambda named: (-max(map(abs, named[1].values())), named[0])))


def number(value: float, unit: str) -> str:
    """Return a number in the unit of a panel."""
    match unit:
        case "percentunit":
            return f"{value:.0%}"
        case "bytes":
            return f"{value / 2**20:.0f} MiB"
        case "s":
            return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.0f} ms"
        case _:
            return f"{value:.3g}"


def dashboard(panels: Sequence[Any], found: Any) -> str:
    """Return the picture of the dashboard."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    parts = [box(panel, lines_of(panel, found)) for panel in panels]
    width, height = 24 * COLUMN, rows * ROW + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#ccccdc">'
        f'<title>Dashboard of Ai-Scheduler</title><rect width="{width}" height="{height}" rx="6" fill="#111217"/>'
        f'{"".join(parts)}<text x="8" y="{height - 10}" fill="#8e8e99">{NOTE}</text></svg>\n'
    )


def box(panel: Any, lines: Lines) -> str:
    """Return the drawing of one panel: a line for each series, a number or a table of the last values."""
    place, unit = panel["gridPos"], panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
    x, y, width, height = place["x"] * COLUMN, place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW
    title = f'<text x="8" y="17" font-size="13" font-weight="bold">{escape(panel["title"])}</text>'
    if panel["type"] == "row":
        return f'<g transform="translate({x},{y})">{title}</g>'
    last = {name: line[max(line)] for name, line in lines.items()}
    match panel["type"]:
        case "stat":
            shown, style = number(sum(last.values()), unit), 'font-size="30" fill="#73bf69" text-anchor="middle"'
            inner = f'<text x="{width / 2}" y="{height / 2 + 20}" {style}>{shown}</text>'
        case "table":
            inner = "".join(
                f'<text x="8" y="{40 + 18 * row}">{escape(name)}</text>'
                f'<text x="{width - 12}" y="{40 + 18 * row}" text-anchor="end">{number(value, unit)}</text>'
                for row, (name, value) in enumerate(last.items())
            )
        case _:
            inner = graph(lines, width, height, unit)
    frame = f'<rect x="2" y="2" width="{width - 4}" height="{height - 4}" rx="3" fill="#181b1f" stroke="#2c3235"/>'
    return f'<g transform="translate({x},{y})">{frame}{title}{inner}</g>'


def graph(lines: Lines, width: int, height: int, unit: str) -> str:
    """Return the lines of a panel with the bounds of their values and a legend."""
    values = [0.0, *(value for line in lines.values() for value in line.values())]
    low, high = min(values), max(values) or 1.0
    left, top, right, bottom = 52, 30, width - 10, height - 34

    def place(at: float, value: float) -> tuple[int, int]:
        x = left + at / (SCRAPES * SCRAPE_SECONDS) * (right - left)
        return round(x), round(bottom - (value - low) / (high - low) * (bottom - top))

    parts = []
    for value in (low, high):
        _, y = place(0, value)
        parts.append(f'<path d="M{left} {y}H{right}" stroke="#2c3235"/>')
        parts.append(f'<text x="{left - 5}" y="{y + 4}" text-anchor="end">{number(value, unit)}</text>')
    offset = left
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = " ".join("{},{}".format(*place(at, value)) for at, value in sorted(line.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if offset + 6 * len(name) < right:
            parts.append(f'<text x="{offset}" y="{height - 12}" fill="{colour}">{escape(name)}</text>')
        offset += 6 * len(name) + 12
    return "".join(parts)


def find_promtool() -> str:
    """Return the path of the built promtool, or the promtool in PATH."""
    listed = subprocess.run([sys.executable, str(BUILD_SCRIPT), "--list"], capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in listed.stdout.splitlines()).get("promtool", "promtool")


def main() -> None:
    """Draw the pictures."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = list(dict.fromkeys(query_of(target) for panel in panels for target in panel.get("targets", ())))
    with tempfile.TemporaryDirectory() as name:
        scrapes = run(Path(name))
        found = evaluated(find_promtool(), Path(name), scrapes, queries)
    (PICTURES / "dashboard.svg").write_text(dashboard(panels, found), encoding="utf-8")


if __name__ == "__main__":
    main()
