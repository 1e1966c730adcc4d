"""The journal of a running scheduler is a file within bounds, and no fault of the disk reaches the scheduler."""

import asyncio
import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aischeduler.daemon import journal_file
from aischeduler.daemon.journal_file import JournalFile, JournalLimits
from aischeduler.engine.journal import JournaledScheduler, replay
from aischeduler.engine.profile import default_profile
from aischeduler.model.events import Seen
from tests.build import a_node, a_pod
from tests.kube.scripted_server import until

AT = datetime(2026, 11, 25, 12, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Log:
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def warning(self, event: str, **fields: Any) -> None:
        assert event == "journal ended"
        self.reasons.append(fields["reason"])


def journal(directory: Path, log: Log, clock: Clock | None = None, **limits: Any) -> JournalFile:
    return JournalFile(directory, log, clock or Clock(), AT, JournalLimits(**limits))  # type: ignore[arg-type]


def larger(path: Path, size: int) -> bool:
    """Return whether a file is larger than this."""
    return path.stat().st_size > size


async def test_file_of_a_scheduler_is_replayed_without_a_difference(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_file, "WRITE_SECONDS", 0.01)
    file = journal(tmp_path / "new", Log())
    writer = asyncio.create_task(file.run())
    scheduler = JournaledScheduler(default_profile(), "run", file.write)
    scheduler.observe(Seen(a_node("n", cpu="2")), 0.0)
    for number in range(5):
        scheduler.observe(Seen(a_pod(f"p{number}", cpu="1")), 0.0)
        written = file.path.stat().st_size
        scheduler.decide("default", 0.0, 1)
        await until(partial(larger, file.path, written))
    writer.cancel()
    file.close()
    lines = file.path.read_bytes().splitlines()
    assert file.path.name == f"journal-20261125T120000Z-{os.getpid()}.jsonl"
    assert len(lines) == 12
    assert replay(lines) is None


def test_piece_whose_thread_comes_late_is_written_before_the_file_is_closed(tmp_path: Path) -> None:
    file = journal(tmp_path, Log())
    file.write(b"first")
    file._take()  # `run` was cancelled before its thread wrote this
    file.write(b"second")
    file.close()
    file._put()
    assert file.path.read_bytes() == b"first\nsecond\n"


def test_journal_ends_at_its_largest_size_with_a_whole_line(tmp_path: Path) -> None:
    log = Log()
    file = journal(tmp_path, log, file_bytes=25)
    for _ in range(5):
        file.write(b"123456789")
    file.close()
    assert log.reasons == ["the file has its largest size"]
    assert file.path.read_bytes() == b"123456789\n" * 3


async def test_journal_ends_at_its_largest_age(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_file, "WRITE_SECONDS", 0.01)
    log, clock = Log(), Clock()
    file = journal(tmp_path, log, clock, file_seconds=60.0)
    file.write(b"early")
    clock.now = 61.0
    await asyncio.wait_for(file.run(), 120)
    file.write(b"late")
    assert log.reasons == ["the file has its largest age"]
    assert file.path.read_bytes() == b"early\n"


def test_full_disk_ends_the_journal_and_nothing_else(tmp_path: Path) -> None:
    log = Log()
    file = journal(tmp_path, log)
    assert file._file is not None
    file._file.close()
    file._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - the journal closes it
    file.write(b"line")
    file.close()
    assert len(log.reasons) == 1
    assert "No space left on device" in log.reasons[0]


def test_slow_disk_ends_the_journal(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_file, "WAITING_BYTES_MAX", 100)
    log = Log()
    file = journal(tmp_path, log)
    for _ in range(20):
        file.write(b"123456789")
    assert log.reasons == ["the disk is slower than the scheduler"]
    file.close()
    assert file.path.read_bytes().count(b"\n") == 11


def test_old_journals_are_removed_by_age_and_by_the_sum_of_their_sizes(tmp_path: Path) -> None:
    for day, size in ((10, 10), (22, 60), (23, 60), (24, 60)):
        old = tmp_path / f"journal-202611{day}T000000Z-7.jsonl"
        old.write_bytes(b"x" * size)
        seconds = datetime(2026, 11, day, tzinfo=UTC).timestamp()
        os.utime(old, (seconds, seconds))
    (tmp_path / "notes.txt").write_text("not a journal")
    file = journal(tmp_path, Log(), all_bytes=130)
    file.close()
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["journal-20261123T000000Z-7.jsonl", "journal-20261124T000000Z-7.jsonl", file.path.name, "notes.txt"]


def test_directory_that_cannot_be_written_is_an_error_of_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        journal(tmp_path / "file", Log())


async def test_lines_stay_whole_where_the_kernel_writes_a_part_at_a_time(tmp_path: Path) -> None:
    """A nearly full disk or a signal makes a write short; the next piece began in the middle of a line."""
    file = journal(tmp_path, Log())
    whole = file._file
    assert whole is not None
    write, end, lengths = whole.write, whole.close, list[int]()

    class Short:
        close = staticmethod(end)

        def write(self, piece: memoryview) -> int:
            lengths.append(len(piece))
            return write(piece[:7])

    file._file = Short()  # type: ignore[assignment]
    for number in range(3):
        file.write(b'{"call": %d, "more": "text"}' % number)
    file.close()
    assert lengths[0] > 7
    assert file.path.read_bytes() == b"".join(b'{"call": %d, "more": "text"}\n' % number for number in range(3))
