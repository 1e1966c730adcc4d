"""The production scheduler with a pulse: how late its event loop runs what is due.

Run as `python -m tests.bench.beating FILE run --kubeconfig PATH …`; at its end it writes to FILE, as JSON, by how
many milliseconds a task was late that wants to run every few.
"""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

from aischeduler.config.load import load_config
from aischeduler.daemon.process import loop_factory, run
from aischeduler.kube.auth import connect
from aischeduler.observability.logging import configure

EVERY_SECONDS = 0.005


async def beat(delays_ms: list[float]) -> None:
    """Measure until cancelled."""
    while True:
        due = time.monotonic() + EVERY_SECONDS
        await asyncio.sleep(EVERY_SECONDS)
        delays_ms.append(max(0.0, time.monotonic() - due) * 1e3)


async def live(kubeconfig: str, file: Path) -> None:
    """Schedule until SIGTERM."""
    config = load_config(None)
    configure(config.logging, sys.stderr.buffer)
    server = await connect(kubeconfig, None, time.monotonic)
    delays_ms: list[float] = []
    beating = asyncio.create_task(beat(delays_ms))
    await run(server, config)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    file.write_text(json.dumps(delays_ms))


def main(words: list[str]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(live(words[words.index("--kubeconfig") + 1], Path(words[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
