"""`ai-scheduler queues`: print the tenant queues of a cluster as a tree, once or on every change."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from aischeduler.cli.live_objects import LiveObjects, watch_objects
from aischeduler.cli.queue_numbers import QueueNumbers, queue_numbers, read_queue_numbers
from aischeduler.cli.queues_output import queue_table, queues_json
from aischeduler.cli.shown_numbers import ShowOptions, View, show
from aischeduler.kube.crds import QUEUES_NOT_INSTALLED
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.queue_resources import queue_resources

UNCOMPUTED: Final = "the use of Volcano's queues is shown without --watch: it is computed from the whole cluster"


async def print_queues(options: ShowOptions, name: str, config: Path | None = None) -> None:
    """Print this queue and those below it, all for an empty name; what Volcano's use counts as `config` says.

    Raises AccessError, ConfigError, and TyperException for an unknown name, and where the API server does not answer
    with Queues.
    """
    await show(queues_view(name, config), options)


def queues_view(name: str = "", config: Path | None = None) -> View[QueueNumbers]:
    """Return how queues are read and shown."""

    async def read(client: Client) -> QueueNumbers:
        return (await read_queue_numbers(client, time.time(), config)).below(name)

    async def watch(client: Client, draw: Callable[[QueueNumbers], None]) -> None:
        await watch_queues(client, lambda numbers: draw(numbers.below(name)))

    return View(
        kinds="Queues",
        not_installed=QUEUES_NOT_INSTALLED,
        read=read,
        watch=watch,
        table=lambda numbers: queue_table(numbers.queues),
        json=lambda numbers: queues_json(numbers.queues),
    )


async def watch_queues(client: Client, draw: Callable[[QueueNumbers], None]) -> None:
    """Draw the queues on every change, until cancelled; raises ApiError where our own cannot be listed."""
    own, other = queue_resources()
    ours, volcano = LiveObjects(own, "queue"), LiveObjects(other, "queue of Volcano", may_miss=True)

    def snapshot() -> QueueNumbers:
        numbers = queue_numbers(ours.objects(), volcano.objects(), time.time(), volcano.missing)
        uncomputed = (UNCOMPUTED,) if volcano.objects() else ()
        problems = (*ours.unreadable(), *volcano.unreadable(), *numbers.problems, *uncomputed)
        failure = ours.recent_failure() or volcano.recent_failure()
        return replace(numbers, problems=problems, watch_failure=failure)

    await watch_objects(client, (ours, volcano), snapshot, draw)
