"""Generates the pages of docs/reference: `docs.py write|check`.

Invariants:
- Names, types, defaults and rules come from the product; a meaning has one source: the product where users see it there
  too (help texts, descriptions of the definitions, docstrings of the configuration), else a file of tools/reference.
- A file of tools/reference names nothing that the product lacks, and lacks nothing that needs a meaning.
- The functions return texts by path, so that a test can compare them with the files.
"""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import yaml
from prometheus_client import Histogram
from typer.main import get_command

from aischeduler.cli.app import app
from aischeduler.config import schema
from aischeduler.config.schema import Config, values
from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.watch.watched_resources import ReflectorCounts
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.observability.metrics import PREFIX, DaemonCollector, MetricsRecorder, PoolLabels, Sources

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "aischeduler"
TARGET: Final = ROOT / "docs" / "reference"
LOGGING: Final = ("cli", "daemon", "device_reporter", "kube", "observability", "operator")
"""The packages that write log lines."""
LEVELS: Final = ("debug", "info", "warning", "error")
HEAD: Final = "<!-- `make reference` writes this page; do not edit it. -->\n\n"

CLI: Final = """# Commands

`ai-scheduler COMMAND --help` prints the same. `kubectl pool` is `ai-scheduler pools`, and `kubectl pool explain` is
`ai-scheduler explain`. Exit status 1: the command failed; 2: the command line is wrong. [Command line](../cli.md)
explains the answers.
"""
CONFIGURATION: Final = """# Fields of the configuration file

Every field is optional. A running daemon takes over a change of a *live* field; the others need a restart.
`ai-scheduler config print` prints the values in force. [Configure](../configure.md) says what to set.

"""
METRICS: Final = """# Metrics

The daemon serves `/metrics` at `http.address` of the [configuration](configuration.md). Units are seconds, bytes and
cores. The label `pool` names existing Pools: the first 1,000 have series of their own, `other` is the sum of the rest.
Counters start at 0 with the process. A standby shows the same gauges of the cluster as the leader, so queries take
`max by`, not `sum`; [Operate](../operate.md) has queries.

"""
ALERTS: Final = """
## Alerts

The chart installs them with `metrics.prometheusRule.enabled=true`; each has a [runbook](../runbooks.md).

"""
EVENTS: Final = """# Events and conditions

`kubectl describe` shows both. A **reason** is a word that alerts and scripts can rely on; messages may change between
versions. Events about pods are in the namespace of the pod, events about nodes and Pools in `default`.

## Events

"""
WAITING: Final = """
A Pool always has all four conditions. Wait for one with `kubectl wait --for=condition=Accepted pool/NAME`.
"""
LOGS: Final = """# Log lines

The daemon writes one line of JSON to standard error for each decision; `--log-format console` is for people.
[Troubleshoot](../troubleshoot.md) says how to read them.
"""


def written() -> dict[Path, str]:
    """Return the pages that `write` writes."""
    pages = {
        "cli": cli_page(),
        "pool": definition_page("pools", "Pool", "pools.md"),
        "queue": definition_page("queues", "Queue", "queues.md"),
        "batchprocess": definition_page("batchprocesses", "BatchProcess", "batchprocess.md"),
        "trainingjob": definition_page("trainingjobs", "TrainingJob", "trainingjob.md"),
        "configuration": configuration_page(),
        "metrics": metrics_page(),
        "events": events_page(),
        "logs": logs_page(),
    }
    return {TARGET / f"{name}.md": HEAD + text.strip() + "\n" for name, text in pages.items()}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a cell may have any text without line breaks."""
    cells = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def code(text: str) -> str:
    """Return a text as code, or nothing."""
    return f"`{text}`" if text else ""


def sentences(*parts: str) -> str:
    """Return texts as sentences; each gets a full stop, empty ones are left out."""
    return " ".join(part.rstrip(".") + "." for part in parts if part)


@cache
def meanings(name: str) -> Any:
    """Return a file of tools/reference."""
    return yaml.safe_load((ROOT / "tools" / "reference" / f"{name}.yaml").read_text(encoding="utf-8"))


def same_names(file: str, told: Iterable[str], there: Iterable[str]) -> None:
    """Raise ValueError where a file of tools/reference and the product have other names."""
    known, needed = {str(one) for one in told}, {str(one) for one in there}
    extra, missing = sorted(known - needed), sorted(needed - known)
    if extra or missing:
        raise ValueError(f"tools/reference/{file}.yaml: does not exist: {extra}; has no meaning: {missing}")


def commands() -> dict[str, Any]:
    """Return each command by its words, groups left out."""
    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {word}": one for word, one in inner.items()}
    return found


def cli_page() -> str:
    """Return the page of the commands, their options and examples."""
    examples = meanings("cli")
    same_names("cli", examples, commands())
    parts = [CLI]
    for name, command in commands().items():
        shown = "\n".join(f"# {does}\n{run}" for run, does in examples[name].items())
        help_text = " ".join(command.help.split())
        parts.append(f"## {name}\n\n{help_text}\n\n```sh\n{shown}\n```\n")
        if command.params:
            rows = [_option(param) for param in command.params]
            parts.append(table(("Option", "Default", "Meaning"), rows))
    return "\n".join(parts)


def _option(param: Any) -> tuple[str, str, str]:
    argument = param.param_type_name == "argument"
    name = param.metavar.strip("[]") if argument else ", ".join(param.opts) + _value(param)
    default = param.default.value if isinstance(param.default, Enum) else param.default
    shown = "" if default is None or default is False else str(default)
    return code(name), code(shown), param.help + " Required." * param.required


def _value(param: Any) -> str:
    if param.is_flag:
        return ""
    if param.metavar:
        return f" {param.metavar}"
    kind = param.type_descriptor.annotation
    choices = [str(one.value) for one in kind] if isinstance(kind, type) and issubclass(kind, Enum) else get_args(kind)
    return f" {'|'.join(choices)}"


def check_examples() -> None:
    """Raise the error of the parser for an example that it refuses."""
    for name, command in commands().items():
        for line in meanings("cli")[name]:
            words = shlex.split(line)
            count = 1 + len(name.split())
            assert words[:count] == ["ai-scheduler", *name.split()], line
            command.make_context(name, words[count:])


def definition_page(plural: str, kind: str, guide: str) -> str:
    """Return the page of the fields of a custom resource."""
    (version,) = yaml.safe_load((PACKAGE / "crds" / f"{plural}.yaml").read_text(encoding="utf-8"))["spec"]["versions"]
    whole = version["schema"]["openAPIV3Schema"]
    parts = [f"# Fields of {kind}\n\n{whole['description']} [{kind}](../{guide}) explains the fields by task.\n"]
    outer = [(rule.get("fieldPath", ""), rule["message"]) for rule in whole.get("x-kubernetes-validations", ())]
    for part in ("spec", "status"):
        inner = whole["properties"][part]
        rules = {path.removeprefix(f".{part}."): message for path, message in outer}
        rows = [row for name, child in inner["properties"].items() for row in _fields(name, child, inner, rules)]
        parts.append(f"## {part}\n\n{inner['description']}\n")
        parts.append(table(("Field", "Type", "Default", "Meaning and rules"), rows))
    columns = [
        (one["name"], "wide" if one.get("priority") else "", code(one["jsonPath"]))
        for one in version["additionalPrinterColumns"]
    ]
    parts.append(f"## Columns of `kubectl get {kind.lower()}`\n")
    parts.append(table(("Column", "With `-o wide` alone", "From"), columns))
    return "\n".join(parts)


def _fields(path: str, field: Mapping[str, Any], parent: Any, more: Mapping[str, str]) -> Iterator[Sequence[str]]:
    name = path.rpartition(".")[2]
    default = str(field.get("default", "")).replace("False", "false").replace("True", "true")
    required = "required" if name in parent.get("required", ()) else code(default)
    rules = [*_rules(field), *([more[path]] if path in more else [])]
    about = " ".join(str(field.get("description", "")).split())
    yield code(path), _type(field), required, sentences(about, *(rule[0].upper() + rule[1:] for rule in rules))
    inner, lead = (field["items"], f"{path}[].") if field.get("type") == "array" else (field, f"{path}.")
    for key, child in inner.get("properties", {}).items():
        yield from _fields(lead + key, child, inner, more)


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    match field.get("type"):
        case "array":
            return f"list of {_type(field['items'])}"
        case "object" if "additionalProperties" in field:
            return f"map of {_type(field['additionalProperties'])}"
        case "integer":
            return "number"
        case kind:
            return {"date-time": "time"}.get(str(field.get("format")), str(kind))


def _rules(field: Mapping[str, Any]) -> list[str]:
    """Return the rules of a field and of its entries in words."""
    found = []
    if "enum" in field:
        found.append("Values: " + ", ".join(code(value) for value in field["enum"]))
    for key, words in (("minimum", "at least"), ("maximum", "at most")):
        found += [f"{words} {field[key]}"] if field.get(key) else []
    for key, word in (("maxItems", "entries"), ("maxProperties", "keys")):
        found += [f"at most {field[key]} {word}"] if key in field else []
    inner = field.get("items", field.get("additionalProperties", {}))
    own = [rule["message"] for rule in field.get("x-kubernetes-validations", ())]
    entries = [rule["message"] for rule in inner.get("x-kubernetes-validations", ())]
    return [*found, *own, *(f"each entry {one}" if one.startswith("must") else one for one in entries)]


def configuration_page() -> str:
    """Return the page of the fields of the configuration file."""
    docs = _attribute_docs(Path(schema.__file__))
    rows = []
    for field in values():
        owner: Any = Config()
        for name in field.attributes[:-1]:
            owner = getattr(owner, name)
        text = docs[type(owner).__name__, field.attributes[-1]]
        value = yaml.safe_dump(msgspec.to_builtins(field.value(Config())), default_flow_style=True)
        default = "" if field.value(Config()) == "" else value.removesuffix("\n").removesuffix("\n...")
        must = "" if value in ("true\n...\n", "false\n...\n") else f"Must be {field.description}"
        rows.append((code(field.path), code(default or '""'), "live" * field.reloaded, sentences(text, must)))
    return CONFIGURATION + table(("Field", "Default", "Live", "Meaning"), rows)


def _attribute_docs(path: Path) -> dict[tuple[str, str], str]:
    """Return the docstrings below the fields of classes, by class and field."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, below in pairwise(body):
            if isinstance(node, ast.ClassDef) and isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                name, text = ast.unparse(field.target), ast.literal_eval(below.value)
                found[node.name, name] = " ".join(cleandoc(text).split())
    return found


def metrics() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return name as Prometheus shows it, type, labels and help text of each metric of a daemon, sorted."""
    recorder = MetricsRecorder(PoolLabels())
    engine = Scheduler(default_profile(), "reference")
    watched: dict[str, Any] = {"Pod": _Still()}
    DaemonCollector(Sources(engine, dict, watched, bool, {}, float), recorder).take()
    labels = {one._name: one._labelnames for one in recorder.registry._collector_to_names if isinstance(one, Histogram)}
    found = []
    for metric in recorder.registry.collect():
        named = labels.get(metric.name) or getattr(metric, "_labelnames", ()) or metric.samples[0].labels
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        kind = "gauge" if metric.type == "info" else metric.type
        found.append((name, kind, tuple(named), metric.documentation))
    return sorted(found)


class _Still:
    """A kind of which nothing is watched yet."""

    counts = ReflectorCounts()
    watch_open_seconds = 0.0
    watch_idle_seconds = 0.0

    def __len__(self) -> int:
        return 0


def metrics_page() -> str:
    """Return the page of the metrics and the alerts."""
    more = {PREFIX + name: text for name, text in meanings("metrics").items()}
    same_names("metrics", more, {*more} & {name for name, *_ in metrics()})
    rows = [
        (code(name), kind, ", ".join(code(label) for label in labels), sentences(text, more.get(name, "")))
        for name, kind, labels, text in metrics()
    ]
    (group,) = yaml.safe_load((ROOT / "helm/ai-scheduler/files/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    alerts = [
        (
            f"[{rule['alert']}](../runbooks.md#{rule['alert'].lower()})",
            rule["labels"]["severity"],
            rule["for"],
            code(rule["expr"]),
        )
        for rule in group["rules"]
    ]
    listed = table(("Metric", "Type", "Labels", "Meaning"), rows)
    return METRICS + listed + ALERTS + table(("Alert", "Severity", "For", "Expression"), alerts)


def events_page() -> str:
    """Return the page of the reasons of events and conditions."""
    told = meanings("events")
    same_names("events", told["events"], EventReason)
    same_names("events", (one[0] for one in told["conditions"]), ConditionReason)
    events = [
        (code(reason), EventReason(reason).type, ", ".join(one["objects"]), one["means"], one["do"])
        for reason, one in told["events"].items()
    ]
    conditions = [(code(one[0]), one[1], code(one[2]), *one[3:]) for one in told["conditions"]]
    of_events = table(("Reason", "Type", "On", "Means", "What to do"), events)
    of_conditions = table(("Reason", "On", "Condition", "Status", "Means", "What to do"), conditions)
    return EVENTS + of_events + "\n## Conditions\n\n" + of_conditions + WAITING


def logging_modules() -> list[Path]:
    """Return the modules that may write log lines."""
    return sorted(path for name in LOGGING for path in (PACKAGE / name).rglob("*.py"))


def log_lines(modules: Iterable[Path] = ()) -> dict[str, tuple[str, set[str], bool]]:
    """Return level, fields and whether there are more fields of each log line whose event the modules name."""
    found: dict[str, tuple[str, set[str], bool]] = {}
    for path in modules or logging_modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str(event))]) if level in LEVELS:
                    _, fields, more = found.get(event, ("", set(), False))
                    named = {word.arg for word in node.keywords if word.arg and word.arg != "exc_info"}
                    found[event] = level, fields | named, more or any(word.arg is None for word in node.keywords)
                case _:
                    pass
    return found


def logs_page() -> str:
    """Return the page of the log lines and their fields."""
    told = meanings("logs")
    lines = log_lines()
    every = {event: one for section in told["sections"].values() for event, one in section.items()}
    source = "\n".join(path.read_text(encoding="utf-8") for path in logging_modules())
    variable = {event for event in every if event not in lines and f'"{event}"' in source}
    same_names("logs", every, lines.keys() | variable)
    parts = [
        LOGS,
        table(
            ("Field", "Meaning"),
            ((", ".join(code(one) for one in names.split(", ")), text) for names, text in told["fields"].items()),
        ),
    ]
    for title, section in told["sections"].items():
        rows = [(code(event), *_line(lines.get(event)), one["means"]) for event, one in section.items()]
        parts.append(f"## {title}\n\n{table(('Line', 'Level', 'Fields', 'Meaning'), rows)}")
    examples = [one["example"] for one in every.values() if "example" in one]
    parts.append("## Examples\n\n```json\n" + "\n".join(examples) + "\n```")
    return "\n".join(parts)


def _line(found: tuple[str, set[str], bool] | None) -> tuple[str, str]:
    if found is None:
        return "", "…"
    level, fields, more = found
    return level, ", ".join([*(code(field) for field in sorted(fields)), *["…"] * more])


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    match list(arguments):
        case ["write"]:
            TARGET.mkdir(exist_ok=True)
            for path, text in written().items():
                path.write_text(text, encoding="utf-8")
        case ["check"]:
            old = [path.name for path, text in written().items() if not path.exists() or path.read_text() != text]
            if old:
                print(f"docs/reference: run `make reference`: {', '.join(old)}", file=sys.stderr)
            return bool(old)
        case _:
            print("usage: docs.py write|check", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
