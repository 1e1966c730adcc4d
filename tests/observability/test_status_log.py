"""The log lines with the numbers of each Pool and each tenant queue: when they are written, and their content."""

from collections.abc import Mapping
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from aischeduler.model.actions import ReportPool
from aischeduler.model.names import CPU, MEMORY, PODS
from aischeduler.model.pool_summary import GPU
from aischeduler.observability.status_log import LINES_MAX, PERIOD_SECONDS, PoolStatusLog, QueueStatusLog
from tests.kube.queue_reports import BUSY, a_queue_report
from tests.observability.world import Clock, summary

ALL_FIELDS = {
    "event",
    "pool",
    *("preemption", "borrowing", "sharing", "nodes", "pods", "pending_pods"),
    *(
        f"{resource}_{kind}"
        for resource in ("cpu", "memory_gib", "gpu")
        for kind in ("used", "allocatable", "shared", "borrowed", "pending")
    ),
}


class Lines:
    """A log of these pools, its clock, and the written lines."""

    def __init__(self, *pools: str) -> None:
        self.pools = list(pools)
        self.clock = Clock()
        self._written = CapturingLogger()
        log = structlog.wrap_logger(self._written, processors=[], wrapper_class=structlog.BoundLogger).bind()
        self.log = PoolStatusLog(log, lambda: self.pools, self.clock)

    def report(self, pool: str, *, nodes: int = 1, **amounts: Mapping[str, int]) -> None:
        told = summary(pool, nodes=nodes, sharing=True, cards=(), **amounts)
        self.log.record([ReportPool(pool, f"u-{pool}", 1, (), told)])

    def written(self) -> list[dict[str, Any]]:
        """Write the lines that are due and return them."""
        before = len(self._written.calls)
        self.log.write()
        return [call.kwargs for call in self._written.calls[before:]]

    def named(self) -> list[str]:
        return [line["pool"] for line in self.written() if line["event"] == "pool status"]


def test_line_has_the_numbers_of_the_table_in_cores_gib_and_devices() -> None:
    lines = Lines("gpu")
    gib = 2**30
    lines.report(
        "gpu",
        nodes=2,
        used={CPU: 1_250, MEMORY: gib // 2, GPU: 3, "nvidia.com/gpu/100": 50, PODS: 4},
        allocatable={CPU: 64_000, MEMORY: 512 * gib, GPU: 8},
        shared={GPU: 1},
        borrowed={CPU: 500},
        pending={PODS: 7, GPU: 16},
    )
    (line,) = lines.written()
    assert line.keys() == ALL_FIELDS
    assert (line["event"], line["pool"], line["nodes"], line["pods"], line["pending_pods"]) == (
        "pool status",
        "gpu",
        2,
        4,
        7,
    )
    assert (line["preemption"], line["borrowing"], line["sharing"]) == (True, True, True)
    assert (line["cpu_used"], line["cpu_allocatable"], line["cpu_borrowed"]) == (1.25, 64, 0.5)
    assert (line["memory_gib_used"], line["memory_gib_allocatable"]) == (0.5, 512)
    assert (line["gpu_used"], line["gpu_allocatable"], line["gpu_shared"], line["gpu_pending"]) == (3.5, 8, 1, 16)


def test_line_of_a_tenant_queue_has_its_cards_as_used_and_quota_and_is_written_once() -> None:
    written, clock = CapturingLogger(), Clock()
    log = structlog.wrap_logger(written, processors=[], wrapper_class=structlog.BoundLogger).bind()
    lines = QueueStatusLog(log, lambda: ["vision"], clock)
    for _ in range(2):
        lines.record([a_queue_report("vision", summary=BUSY)])
        lines.write()
        clock.now += PERIOD_SECONDS
    (call,) = written.calls
    assert call.kwargs == {
        "event": "queue status",
        "queue": "vision",
        "state": "Open",
        "priority": 0,
        "over_quota": False,
        "pods": 5,
        "pending_pods": 2,
        "cards": "H200 0/4, RTX-4090 6/8, V100 1",
        "cpu_used": 3,
        "cpu_quota": 4,
        "memory_gib_used": 3,
        "memory_gib_quota": 4,
    }


def test_first_line_is_written_at_once_and_the_next_a_minute_later_with_the_newest_numbers() -> None:
    lines = Lines("a")
    lines.report("a", nodes=1)
    assert [line["nodes"] for line in lines.written()] == [1]
    for nodes in (2, 3):
        lines.report("a", nodes=nodes)
        lines.clock.now += PERIOD_SECONDS / 2 - 1
        assert lines.written() == []
    lines.clock.now += 2
    assert [line["nodes"] for line in lines.written()] == [3]


def test_numbers_equal_to_those_of_the_last_line_have_no_line() -> None:
    lines = Lines("a")
    lines.report("a", nodes=1)
    assert lines.named() == ["a"]
    lines.report("a", nodes=2)
    assert lines.written() == []
    lines.report("a", nodes=1)
    lines.clock.now += PERIOD_SECONDS
    assert lines.written() == []
    lines.report("a", nodes=2)
    assert lines.named() == ["a"]


def test_pools_beyond_the_limit_are_named_once_a_minute_and_come_first_in_the_next() -> None:
    names = [f"pool-{number:03}" for number in range(LINES_MAX + 2)]
    lines = Lines(*names)
    for name in names:
        lines.report(name)
    *first, left_out = lines.written()
    assert [line["pool"] for line in first] == names[:LINES_MAX]
    told = {"event": "pool statuses left out", "count": 2, "pools": f"{names[-2]}, {names[-1]}"}
    assert left_out == told
    lines.clock.now += 1
    assert lines.written() == []
    for name in names:
        lines.report(name, nodes=5)
    lines.clock.now += PERIOD_SECONDS
    assert lines.named() == [*names[-2:], *names[: LINES_MAX - 2]]


def test_pool_that_was_deleted_and_is_created_again_has_its_first_line_at_once() -> None:
    lines = Lines("a", "b")
    lines.report("a")
    assert lines.named() == ["a"]
    lines.pools.remove("a")
    lines.report("a", nodes=2)
    lines.clock.now += PERIOD_SECONDS
    assert lines.written() == []
    lines.pools.append("a")
    lines.report("a")
    assert lines.named() == ["a"]
