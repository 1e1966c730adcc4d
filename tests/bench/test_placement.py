"""The replay of a trace: a pod that fits nowhere is dropped but counts as asked for; without a trace there is none."""

import gzip
from pathlib import Path

import pytest

from aischeduler.model.pool import PlacementStrategy
from tests.bench.cases import placement
from tests.bench.rounds import play


def test_case_without_the_trace_is_void_and_says_where_it_must_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(placement, "TRACE", tmp_path)
    found = play(placement.cases(1)[0], 1, lambda _: None)
    assert found.void.startswith(f"{tmp_path} has no openb_node_list_gpu_node.csv")


@pytest.mark.parametrize("strategy", [PlacementStrategy.PACK, PlacementStrategy.FRAGMENTATION])
def test_dropped_pod_is_asked_for_and_not_allocated(
    strategy: PlacementStrategy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two GPUs hold two shares of 60 and one of 20; the third of 60 is dropped. The last pod comes too late."""
    (tmp_path / placement.NODE_FILE).write_text("sn,cpu_milli,memory_mib,gpu\na,8000,8192,2\n")
    shares = "\n".join(f"1000,1024,1,{share}" for share in (600, 200))
    (tmp_path / placement.POD_FILE).write_text(f"cpu_milli,memory_mib,num_gpu,gpu_milli\n{shares}\n1000,1024,0,0\n")
    (tmp_path / placement.ARRIVALS).write_bytes(gzip.compress(b"42 1\n43 0 2 0 0 1 1\n"))
    (tmp_path / placement.RANKS).write_bytes(gzip.compress(b"43 0\n"))
    monkeypatch.setattr(placement, "TRACE", tmp_path)
    found = placement.replay(strategy, 43, 1)
    assert found.unallocated == pytest.approx(30)
    assert found.overfull == []
