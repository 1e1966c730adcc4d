"""Exceptions at a chosen step of the engine."""

from importlib import import_module
from itertools import count
from typing import Any

import pytest


def fail_once(monkeypatch: pytest.MonkeyPatch, module: str, step: str) -> None:
    """Make a step of the engine raise the first time that this module calls it."""
    path = f"aischeduler.engine.{module}"
    function, calls = getattr(import_module(path), step), count()

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 0:
            raise ValueError("a bug in a step")
        return function(*args, **kwargs)

    monkeypatch.setattr(f"{path}.{step}", failing)
