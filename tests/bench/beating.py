"""The production scheduler with a pulse: how late its event loop runs what is due.

Run as `python -m tests.bench.beating FILE run --kubeconfig PATH …`; at its end it writes to FILE, as JSON, by how
many milliseconds a task was late that wants to run every few. With FILE alone there is nothing but that task: so late
the machine lets it be.
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from aischeduler.config.load import load_config
from aischeduler.daemon.reload import Source
from aischeduler.daemon.service import loop_factory, serve
from aischeduler.kube.server_access import connect
from aischeduler.observability.logging import configure

EVERY_SECONDS = 0.005


async def beat(delays_ms: list[float]) -> None:
    """Measure until cancelled."""
    while True:
        due = time.monotonic() + EVERY_SECONDS
        await asyncio.sleep(EVERY_SECONDS)
        delays_ms.append(max(0.0, time.monotonic() - due) * 1e3)


async def live(kubeconfig: str | None, file: Path) -> None:
    """Schedule, or without a kubeconfig do nothing, until SIGTERM."""
    delays_ms: list[float] = []
    beating = asyncio.create_task(beat(delays_ms))
    if kubeconfig is None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
    else:
        config = load_config(None)
        configure(config.logging, sys.stderr.buffer)
        server = await connect(kubeconfig, None, time.monotonic)
        await serve(server, config, Source(None, lambda: config), lambda _: None)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    file.write_text(json.dumps(delays_ms))


def main(words: list[str]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        kubeconfig = words[words.index("--kubeconfig") + 1] if "--kubeconfig" in words else None
        runner.run(live(kubeconfig, Path(words[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
