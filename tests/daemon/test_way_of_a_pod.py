"""The architecture page draws the way of a pod; here it is compared with the calls of a daemon that binds one."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import aischeduler
from tests.daemon.cluster import cluster

PACKAGE = Path(aischeduler.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text()
HOP = re.compile(r"^\d+\. `(\w+(?:/\w+)+\.py)` `([\w.]+)`", re.MULTILINE)
RETURNS_MAX = 4
"""A pod comes back where the daemon sleeps, or where one module is both entrance and exit."""


def the_way() -> list[tuple[str, str]]:
    """Return the module and the function of each hop."""
    return HOP.findall(PAGE[PAGE.index("## The way of a pod") : PAGE.index("## An attempt that finds no node")])


@contextmanager
def recorded() -> Iterator[list[tuple[str, str]]]:
    """Record the calls of functions of the package, in their order."""
    calls, kept = list[tuple[str, str]](), dict[CodeType, tuple[str, str] | None]()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in kept:
            path = Path(code.co_filename)
            inside = path.is_relative_to(PACKAGE)
            name = code.co_qualname.partition(".<locals>")[0]  # a lambda belongs to the function that has made it
            kept[code] = (path.relative_to(PACKAGE).as_posix(), name) if inside else None
        found = kept[code]
        if found is not None:
            calls.append(found)

    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def test_pod_that_fits_passes_the_hops_of_the_page_in_their_order() -> None:
    async with cluster() as world:
        await world.node("n")
        await world.pod("before")
        await world.until(world.all_placed)
        with recorded() as calls:
            await world.pod("p")
            await world.until(world.all_placed)
    at, passed = 0, list[tuple[str, str]]()
    for hop in the_way():
        if hop not in calls[at:]:
            break
        at = calls.index(hop, at) + 1
        passed.append(hop)
    assert passed == the_way()


def test_way_of_a_pod_comes_back_to_a_module_four_times_at_most() -> None:
    modules = [module for module, _ in the_way()]
    returns = [
        module for turn, module in enumerate(modules) if module in modules[:turn] and modules[turn - 1] != module
    ]
    assert len(returns) <= RETURNS_MAX, returns
