"""What a process does on signals, for as long as something runs."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from signal import Signals


@contextmanager
def reacting(reactions: Mapping[Signals, Callable[[], object]]) -> Iterator[None]:
    """Let each signal call its function in the running event loop until the end."""
    loop = asyncio.get_running_loop()
    for number, react in reactions.items():
        loop.add_signal_handler(number, react)
    try:
        yield
    finally:
        for number in reactions:
            loop.remove_signal_handler(number)
