"""The promise that no test leaves an asyncio task behind, kept on a test that breaks it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAKS = """
import asyncio

async def test_leaks():
    asyncio.get_running_loop().create_task(asyncio.sleep(100), name="forgotten")
    await asyncio.sleep(0)

async def test_waits_for_what_it_started():
    await asyncio.get_running_loop().create_task(asyncio.sleep(0))
"""


def test_test_that_leaves_a_task_behind_fails(tmp_path: Path) -> None:
    suite = tmp_path / "test_leaks.py"
    suite.write_text(LEAKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-c"]
    finished = subprocess.run(
        [*command, str(tmp_path / "pytest.ini"), str(suite)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "2 passed, 1 error" in finished.stdout
    assert "tasks left behind: ['forgotten']" in finished.stdout
