"""Distributions with plugins, installed for one test into a folder on the path."""

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, distribution: str, code: str, points: Mapping[str, str]
) -> str:
    """Install a distribution of one module of this code; return the name of the module, which no other test has.

    `points` are its entry points: name -> object of the module, or of another one if a colon is in it.
    """
    module = f"{distribution}_{folder.name.replace('-', '_')}"
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {found if ':' in found else f'{module}:{found}'}" for name, found in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[aischeduler.plugins]", *lines, ""]))
    monkeypatch.syspath_prepend(folder)
    return module
