"""What is made of the answers of the driver of a real H100, of other cards, and of a driver that fails."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.device_reporter.hardware import DriverError, Gpu, Gpus, Place, Xid
from aischeduler.device_reporter.nvml import MIG, NvidiaNode, links_between
from tests.device_reporter.hosts import add_pci
from tests.device_reporter.recorded_nvml import NotSupportedError, NVMLError, RecordedNvml, a_gpu, linked


def node(root: Path, nvml: RecordedNvml) -> NvidiaNode:
    return NvidiaNode(root, lambda: nvml)


def test_recorded_h100_is_read_with_what_its_driver_does_not_support(tmp_path: Path) -> None:
    add_pci(tmp_path, "pci0000:00/0000:00:06.0", numa=-1)
    (gpu,) = node(tmp_path, RecordedNvml()).gpus().gpus
    assert gpu == Gpu(
        uuid="GPU-11111111-2222-3333-4444-555555555555",
        minor=0,
        model="NVIDIA H100 80GB HBM3",
        memory_bytes=85_520_809_984,
        place=Place("0000:00:06.0", -1, "pci0000:00"),
        module=2,
    )


def test_numa_node_is_that_of_the_slot(tmp_path: Path) -> None:
    add_pci(tmp_path, "pci0000:10/0000:10:01.0/0000:11:00.0", numa=1)
    nvml = RecordedNvml(a_gpu(1, nvmlDeviceGetNumaNodeId=7))
    assert node(tmp_path, nvml).gpus().gpus[0].place == Place("0000:11:00.0", 1, "pci0000:10")


def test_gpu_without_sysfs_or_memory_of_its_own_is_reported_without_them(tmp_path: Path) -> None:
    unsupported = {"error": "NVMLError_NotSupported", "value": 3, "text": "Not Supported"}
    gpu = node(tmp_path, RecordedNvml(a_gpu(3, nvmlDeviceGetMemoryInfo=unsupported))).gpus().gpus[0]
    assert (gpu.memory_bytes, gpu.place) == (0, Place("0000:13:00.0"))


def test_gpus_are_in_the_order_of_their_minors_and_an_instance_holder_has_a_problem(tmp_path: Path) -> None:
    found = node(tmp_path, RecordedNvml(a_gpu(2), a_gpu(0, nvmlDeviceGetMigMode=[1, 1]))).gpus()
    assert [(gpu.uuid, gpu.problem) for gpu in found.gpus] == [("GPU-0", MIG), ("GPU-2", "")]


def test_nvlinks_count_to_other_gpus_and_through_switches(tmp_path: Path) -> None:
    switch = "00000000:C1:00.0"
    found = node(
        tmp_path,
        RecordedNvml(
            a_gpu(0, **linked("00000000:11:00.0", "00000000:11:00.0", switch)),
            a_gpu(1, **linked("00000000:10:00.0", "00000000:10:00.0")),
            a_gpu(2, **linked(switch, switch)),
        ),
    ).gpus()
    assert found.links == {(0, 1): 2, (0, 2): 1}


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=2, max_size=4))
def test_gpus_at_the_same_switches_have_the_links_of_each_matched_one_to_one(ends: list[list[int]]) -> None:
    found = links_between(
        {minor: f"gpu{minor}" for minor in range(len(ends))},
        {minor: Counter(f"switch{end}" for end in of_one) for minor, of_one in enumerate(ends)},
    )
    for first in range(len(ends)):
        for second in range(first + 1, len(ends)):
            rest, matched = list(ends[second]), 0
            for end in ends[first]:
                if end in rest:
                    rest.remove(end)
                    matched += 1
            assert found.get((first, second), 0) == matched


def test_missing_package_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DriverError, match="nvidia-ml-py is not installed"):
        NvidiaNode(tmp_path).gpus()


def test_missing_driver_is_an_error_until_it_is_there(tmp_path: Path) -> None:
    nvml = RecordedNvml()
    nvml.absent = NVMLError("Driver Not Loaded")
    hardware = node(tmp_path, nvml)
    with pytest.raises(DriverError, match="Driver Not Loaded"):
        hardware.gpus()
    assert hardware.wait_for_xid(1.0) is None
    nvml.absent = None
    assert len(hardware.gpus().gpus) == 1


@pytest.mark.parametrize("counts", [False, True])
def test_driver_that_started_again_is_opened_anew_with_its_events(tmp_path: Path, *, counts: bool) -> None:
    nvml = RecordedNvml()
    nvml.counts = counts
    hardware = node(tmp_path, nvml)
    before = hardware.gpus()
    nvml.stale = True
    with pytest.raises(DriverError):
        hardware.wait_for_xid(1.0)
    assert hardware.gpus() == before
    assert (nvml.inits, nvml.registered) == (2, [0])


def test_gpu_that_the_driver_lost_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    nvml = RecordedNvml(a_gpu(0), a_gpu(1))
    nvml.lost = {0}
    found = node(tmp_path, nvml).gpus()
    assert ([gpu.uuid for gpu in found.gpus], found.lost) == (["GPU-1"], 1)


def test_xid_names_its_gpu_and_no_xid_is_none(tmp_path: Path) -> None:
    nvml = RecordedNvml(a_gpu(0), a_gpu(1))
    hardware = node(tmp_path, nvml)
    hardware.gpus()
    nvml.events.append((79, 1))
    assert hardware.wait_for_xid(1.0) == Xid(79, "GPU-1")
    nvml.lost = {1}
    nvml.events.append((79, 1))
    assert hardware.wait_for_xid(1.0) == Xid(79)
    assert hardware.wait_for_xid(1.0) is None


def test_gpu_without_events_is_read_all_the_same(tmp_path: Path) -> None:
    hardware = node(tmp_path, RecordedNvml(a_gpu(0, nvmlDeviceGetSupportedEventTypes=0)))
    assert isinstance(hardware.gpus(), Gpus)
    assert hardware.wait_for_xid(1.0) is None


def test_errors_of_the_recording_are_those_of_the_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    for error in (NotSupportedError, NVMLError):
        assert issubclass(error, NVMLError)
    assert pynvml.NVMLError(NotSupportedError.value).__class__ is pynvml.NVMLError_NotSupported
    assert pynvml.NVML_ERROR_TIMEOUT == RecordedNvml.NVML_ERROR_TIMEOUT
    names = [name for name in vars(RecordedNvml) if name.startswith(("nvml", "NVML"))]
    assert [name for name in names if not hasattr(pynvml, name)] == []
