import ast
from pathlib import Path

import pytest

import aischeduler.sandbox.api_server as anchor

PACKAGE = Path(anchor.__file__).parent
WORLD = {"asyncio", "time", "random", "threading", "socket", "aiohttp", "structlog"}
SHELLS = {"http_server.py"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_http_server_imports_clocks_sockets_and_random_numbers(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert path.name in SHELLS or not imported & WORLD
