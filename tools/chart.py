"""Writes what follows from the chart's values and from the configuration's schema: `chart.py write|manifests`.

Laws:
- What a key means has one home: values.yaml for the chart, aischeduler/config/schema.py for what stands below `config`.
- `write` replaces marked parts of files and touches nothing else; `manifests` renders the chart with its defaults.
- The functions return texts by path, so that a test can compare them with what is there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from aischeduler.config.schema import Config

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "helm" / "ai-scheduler"
MANIFESTS: Final = ROOT / "manifests"
BUILD_SCRIPT: Final = ROOT / "tools" / "controlplane" / "build.py"

TABLE_BEGIN: Final = "<!-- values: written by `make chart` from values.yaml -->\n"
TABLE_END: Final = "<!-- values: end -->\n"
MANIFEST_HEADER: Final = "# Written by `make manifests` from helm/ai-scheduler; change that, not this.\n"
OWN_PORT: Final = "^:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$"
"""In a cluster the kubelet and Prometheus ask the pod's address, at a port that is known: no host, and not `none`."""

_SOURCE = re.compile(r"^# Source: ai-scheduler/templates/(\S+)\n", re.MULTILINE)
_HELMS_OWN = re.compile(r"^ +(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Value:
    """A key of values.yaml, dotted, with what its comment says."""

    key: str
    meaning: str


def described_values(text: str) -> Iterator[Value]:
    """Yield the keys of values.yaml that have a comment beginning with `# --`, in order."""
    parents: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            words = [stripped.removeprefix("# -- ")]
        elif words and stripped.startswith("# "):
            words.append(stripped.removeprefix("# "))
        elif found := re.match(r"( *)([A-Za-z]+):", line):
            indent, name = len(found[1]), found[2]
            parents = [*(parent for parent in parents if parent[0] < indent), (indent, name)]
            if words:
                yield Value(".".join(parent for _, parent in parents), " ".join(words))
            words = []


def values_table(text: str) -> str:
    """Return the table of values.yaml in Markdown."""
    defaults = yaml.safe_load(text)
    rows = ["| Key | Default | Meaning |", "|---|---|---|"]
    rows += [
        f"| `{value.key}` | `{_short(_at(defaults, value.key))}` | {value.meaning} |"
        for value in described_values(text)
    ]
    return "\n".join(rows) + "\n"


def readme(current: str, values: str) -> str:
    """Return the chart's README with the table as the values are now."""
    head, begin, rest = current.partition(TABLE_BEGIN)
    _, end, tail = rest.partition(TABLE_END)
    assert begin, "the README has lost the mark before its table"
    assert end, "the README has lost the mark after its table"
    return f"{head}{begin}\n{values_table(values)}\n{end}{tail}"


def schema(current: str) -> str:
    """Return values.schema.json with `config` as the configuration's schema is now."""
    document = json.loads(current)
    _, components = msgspec.json.schema_components([Config], ref_template="#/definitions/{name}")
    whole = {name: _for_helm(component) for name, component in components.items()}
    whole["Http"]["properties"]["address"] |= {"pattern": OWN_PORT, "description": "a port alone, such as :8080"}
    chart = {name: kept for name, kept in document["definitions"].items() if name[0].islower()}
    document["properties"]["config"] = {"$ref": "#/definitions/Config"}
    document["definitions"] = {**chart, **whole}
    return json.dumps(document, indent=2) + "\n"


def written() -> dict[Path, str]:
    """Return the files that `write` writes."""
    table, types = CHART / "README.md", CHART / "values.schema.json"
    return {
        table: readme(table.read_text(), (CHART / "values.yaml").read_text()),
        types: schema(types.read_text()),
    }


def manifests(helm: str) -> dict[Path, str]:
    """Return the plain manifests: a file for each template of the chart with its defaults, and a kustomization."""
    command = [helm, "template", "ai-scheduler", str(CHART), "--namespace=kube-system", "--skip-tests"]
    rendered = subprocess.run([*command, "--set=crds.install=false"], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for document in rendered.split("---\n")[1:]:
        source = _SOURCE.match(document)
        assert source is not None, "helm names the template of each document"
        found.setdefault(source[1], []).append(_HELMS_OWN.sub("", document[source.end() :]).strip() + "\n")
    files = {MANIFESTS / name: MANIFEST_HEADER + "---\n".join(found[name]) for name in sorted(found)}
    return {MANIFESTS / "kustomization.yaml": _kustomization(sorted(found)), **files}


def find_helm() -> str:
    """Return where helm is: among the programs of the control plane, else in PATH."""
    listed = subprocess.run([sys.executable, str(BUILD_SCRIPT), "--list"], capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in listed.stdout.splitlines()).get("helm", "helm")


def _kustomization(names: Sequence[str]) -> str:
    resources = "".join(f"  - {name}\n" for name in ("crds/pools.yaml", *names))
    return f"{MANIFEST_HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{resources}"


def _at(values: Any, key: str) -> Any:
    for name in key.split("."):
        values = values[name]
    return values


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("|", "\\|")


def _for_helm(component: Any) -> Any:
    """Put what msgspec says into the draft and the regular expressions that every helm knows.

    Defaults are left out, and so is what docstrings say of whole mappings, which is for Python's readers.
    """
    match component:
        case dict():
            left_out = {"default", "title"} | ({"description"} if "properties" in component else set())
            kept = {key: _for_helm(child) for key, child in component.items() if key not in left_out}
            return {"$ref": kept["$ref"]} if "$ref" in kept else kept
        case list():
            return [_for_helm(child) for child in component]
        case str():
            return " ".join(component.replace("\\A", "^").replace("\\Z", "$").split())
        case _:
            return component


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write what the one argument names and answer the exit status."""
    match list(arguments):
        case ["write"]:
            _write(written())
        case ["manifests"]:
            files = manifests(find_helm())
            for old in sorted({*MANIFESTS.glob("*.yaml")} - set(files)):
                old.unlink()
            _write(files)
        case _:
            print("usage: chart.py write|manifests", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
