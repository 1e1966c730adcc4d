"""The gates of the code: layers, types, lint, format and sizes."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
PACKAGE = sorted((ROOT / "aischeduler").rglob("*.py"))
EVERYTHING = sorted([*PACKAGE, *(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")])

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def run(*command: str) -> None:
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def test_layers_hold() -> None:
    run(tool("lint-imports"), "--no-cache")


def test_types_are_strict() -> None:
    run(sys.executable, "-m", "mypy")


def test_ruff_finds_nothing() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_format_is_that_of_ruff() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_has_at_most_600_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MODULE_LINES_MAX


@cache
def functions(path: Path) -> tuple[FunctionNode, ...]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def length(function: FunctionNode) -> int:
    """Return the number of lines from the signature to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def parameters(function: FunctionNode) -> int:
    """Return the number of parameters that may be given by position."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_have_at_most_60_lines() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name} has {length(function)} lines"
        for path in EVERYTHING
        for function in functions(path)
        if length(function) > FUNCTION_LINES_MAX
    ]
    assert long == []


def test_functions_take_at_most_five_positional_parameters() -> None:
    """Builders of tests, which name every argument, and commands, whose options are parameters, are not checked."""
    wide = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name} takes {parameters(function)}"
        for path in PACKAGE
        if "cli" not in path.parts
        for function in functions(path)
        if parameters(function) > PARAMETERS_MAX
    ]
    assert wide == []


def test_only_the_command_line_prints() -> None:
    prints = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PACKAGE
        if "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert prints == []


@pytest.mark.parametrize("path", [p for p in PACKAGE if p.name == "__init__.py"], ids=lambda p: p.parent.name)
def test_package_has_a_docstring_and_no_code(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} needs a docstring of one sentence"
    assert all(isinstance(node, ast.Expr | ast.Assign) for node in tree.body)
