"""CPU of sending Bindings, against a server that costs nothing of ours."""

from functools import partial
from pathlib import Path

import pytest

from aischeduler.model.actions import Bind
from tests.bench.board import cpu_seconds, micros, show, times
from tests.bench.sending import IN_FLIGHT, bind_server, by_aiohttp, by_wire, only_bytes, run
from tests.build import a_pod

pytestmark = pytest.mark.bench

BINDINGS = 4_000
BINDS = [
    Bind(a_pod(f"train-{number:05d}"), f"gpu-{number:05d}", "gpu-pool", "gpu-pool", f"run-{number}", 1000)
    for number in range(BINDINGS)
]


def test_cpu_of_a_binding_by_the_way_it_is_sent(tmp_path: Path) -> None:
    rows = []
    for secure in (False, True):
        with bind_server(tmp_path, secure) as server:
            costs = {
                name: cpu_seconds(server, partial(run, way, BINDS))
                for name, way in (("bytes", only_bytes), ("ours", by_wire), ("aiohttp", by_aiohttp))
            }
        figures = [micros(costs[name], BINDINGS) for name in ("bytes", "ours", "aiohttp")]
        rows.append(["TLS" if secure else "TCP", *figures, times(costs["ours"], costs["aiohttp"])])
    show(
        f"A Binding sent, CPU microseconds each, {IN_FLIGHT} in flight",
        ["", "bytes made, not sent", "our pool of connections", "aiohttp", "ours / aiohttp"],
        rows,
    )
