"""Kubeconfig files with one context, and exec credential plugins."""

import json
from pathlib import Path
from typing import Any

import yaml

V1 = "client.authentication.k8s.io/v1"
SERVER = {"server": "https://10.0.0.1:6443"}


def write(path: Path, cluster: Any, user: Any, **more: Any) -> str:
    """Write a kubeconfig whose context `one` has cluster `c` and user `u`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        **more,
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def credential(version: str = V1, kind: str = "ExecCredential", **status: Any) -> str:
    """Return an ExecCredential as a plugin prints it."""
    return json.dumps({"apiVersion": version, "kind": kind, "status": status})


def program(path: Path, script: str) -> str:
    """Write a shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def printing(path: Path, printed: str) -> str:
    """Write a plugin that prints this and appends a line to the file `asked` beside it."""
    answer = path.with_name(f"{path.name}.answer")
    answer.write_text(printed)
    return program(path, f'echo asked >> "{path.with_name("asked")}"; cat "{answer}"')


def times_asked(directory: Path) -> int:
    """Return how often a plugin of `printing` ran."""
    asked = directory / "asked"
    return len(asked.read_text().splitlines()) if asked.exists() else 0


def runs(command: str, **more: Any) -> dict[str, Any]:
    """Return a user with an exec plugin."""
    return {"exec": {"apiVersion": V1, "command": command, "interactiveMode": "Never", **more}}
