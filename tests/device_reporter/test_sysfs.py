"""The adapters that the files of a kernel show, with their virtual functions and their place."""

from pathlib import Path

from aischeduler.device_reporter.hardware import Place
from aischeduler.device_reporter.sysfs import adapters, place_of
from aischeduler.model.device import FPGA, RDMA, Device, VirtualFunction
from tests.device_reporter.hosts import add_entry, add_pci, add_rdma


def test_rdma_adapter_has_its_functions_by_number_and_they_are_no_adapters(tmp_path: Path) -> None:
    add_rdma(tmp_path, "0000:5e:00.0")
    add_rdma(tmp_path, "0000:18:00.0", functions=3)
    first, second = adapters(tmp_path, RDMA)
    assert first == Device(
        type="rdma",
        minor=0,
        id="0000:18:00.0",
        totals=(("rdma", 100),),
        healthy=True,
        numa=1,
        pcie="pci0000:18",
        bus_id="0000:18:00.0",
        functions=tuple(VirtualFunction(number, f"0000:18:00.{number + 1}") for number in range(3)),
    )
    assert (second.minor, second.id, second.functions) == (1, "0000:5e:00.0", ())


def test_adapter_with_two_entries_is_one(tmp_path: Path) -> None:
    pci = add_rdma(tmp_path)
    add_entry(tmp_path, "infiniband", "bond0", pci)
    assert len(adapters(tmp_path, RDMA)) == 1


def test_adapter_is_healthy_while_one_of_its_ports_is_active(tmp_path: Path) -> None:
    pci = add_rdma(tmp_path, "0000:18:00.0", state="1: DOWN")
    add_rdma(tmp_path, "0000:5e:00.0", state="1: DOWN")
    add_entry(tmp_path, "infiniband", "other", add_pci(tmp_path, "pci0000:70/0000:70:00.0"), ["1: DOWN", "4: ACTIVE"])
    assert [adapter.healthy for adapter in adapters(tmp_path, RDMA)] == [False, False, True]
    (pci / "infiniband/mlx5_18/ports/1/state").write_text("4: ACTIVE\n")
    assert [adapter.healthy for adapter in adapters(tmp_path, RDMA)] == [True, False, True]


def test_fpga_with_several_regions_is_one(tmp_path: Path) -> None:
    pci = add_pci(tmp_path, "pci0000:3b/0000:3b:00.0", numa=0)
    for name in ("region0", "region1"):
        add_entry(tmp_path, "fpga_region", name, pci)
    (found,) = adapters(tmp_path, FPGA)
    assert (found.type, found.id, found.totals, found.numa) == ("fpga", "0000:3b:00.0", (("fpga", 100),), 0)


def test_what_is_absent_or_no_number_is_unknown(tmp_path: Path) -> None:
    assert (adapters(tmp_path, RDMA), adapters(tmp_path, FPGA)) == ((), ())
    assert place_of(tmp_path, "0000:01:00.0") == Place("0000:01:00.0")
    folder = add_pci(tmp_path, "pci0001:00/0001:01:00.0", numa=None)
    (folder / "numa_node").write_bytes(b"\xff")
    assert place_of(tmp_path, "0001:01:00.0") == Place("0001:01:00.0", -1, "pci0001:00")
    add_entry(tmp_path, "infiniband", "of_no_pci_device", tmp_path / "sys/devices/virtual")
    assert adapters(tmp_path, RDMA) == ()
