"""How much room an installation takes: our package and what its lock names for this machine, uvloop included.

Counted are the sizes of all files that the records of these distributions name and that are there, in MB of 10^6 bytes,
and of the bytecode that pip makes of their modules, whether or not it is there. The interpreter is not counted.
"""

import importlib.metadata
import marshal
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

from packaging.requirements import Requirement

from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError

ROOT = Path(__file__).resolve().parents[3]
LOCK, PACKAGE = ROOT / "requirements.lock", ROOT / "aischeduler"
PINNED = re.compile(r"^([\w.-]+==[^\\\n]+)", re.MULTILINE)
HEADER_BYTES = 16
"""What stands before the code in a file of bytecode."""
WHOLE, WHOLE_MB = "MB, bytecode included", 150.0
NAMED_MB = 5.0
"""Distributions that take more are named."""


def cases(_shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, which has only one size."""

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: measure(LOCK.read_text())

    return (
        Case(
            name="installed-size",
            about="files of the package and of what requirements.lock names for this machine",
            sides=(OURS,),
            open=opened,
            rounds=1,
            goals=(Goal(WHOLE, WHOLE_MB, at_least=False),),
        ),
    )


def measure(lock: str) -> Measured:
    """Add up what is installed here. Raises VoidRunError where that is not what the lock names."""
    sizes = {found.name: sizes_of(files_of(found)) for found in distributions(lock)}
    ours = [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and path.parent.name != "__pycache__"]
    sizes["ai-scheduler"] = sizes_of(ours)
    plain, bytecode = (sum(size[part] for size in sizes.values()) / 1e6 for part in (0, 1))
    largest = {f"MB of it {name}": sum(sizes[name]) / 1e6 for name in sorted(sizes)}
    figures = {name: value for name, value in largest.items() if value >= NAMED_MB}
    return Measured(Evidence(), {WHOLE: plain + bytecode, "MB without bytecode": plain, **figures})


def distributions(lock: str) -> Iterator[Distribution]:
    """Yield what the lock names for this machine, as it is installed."""
    for line in PINNED.findall(lock):
        pinned = Requirement(line)
        if pinned.marker is not None and not pinned.marker.evaluate():
            continue
        try:
            found = importlib.metadata.distribution(pinned.name)
        except PackageNotFoundError:
            raise VoidRunError(f"{pinned.name} is not installed") from None
        if not pinned.specifier.contains(found.version):
            raise VoidRunError(f"{pinned.name} is {found.version} here, and {pinned.specifier} in the lock")
        yield found


def files_of(distribution: Distribution) -> list[Path]:
    """Return the files that its record names, without bytecode, whose size depends on who has run it."""
    paths = [Path(str(file.locate())) for file in distribution.files or ()]
    return [path for path in paths if path.suffix != ".pyc" and path.is_file()]


def sizes_of(files: list[Path]) -> tuple[int, int]:
    """Return the bytes of the files, and of the bytecode of those that are modules."""
    modules = [path for path in files if path.suffix == ".py"]
    return sum(path.stat().st_size for path in files), sum(bytecode_bytes(path) for path in modules)


def bytecode_bytes(module: Path) -> int:
    """Return how large the bytecode of a module is; what cannot be compiled has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = compile(module.read_bytes(), str(module), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return 0
    return HEADER_BYTES + len(marshal.dumps(code))
