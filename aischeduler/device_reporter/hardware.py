"""What the device reporter asks of the hardware of its node, and what is found there.

Invariants:
- A GPU is identified by its UUID; its minor is that of the driver, which is not its index.
- Every call may block for as long as a driver does, and may be made by any thread, one at a time.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from aischeduler.model.device import UNKNOWN_NODE, Device


class DriverError(Exception):
    """The driver of the GPUs cannot be asked, or does not answer; the message says why."""

    reason = "DriverUnavailable"
    """The reason of the condition Healthy of each GPU."""


class DriverHangsError(DriverError):
    """The driver of the GPUs did not answer in time."""

    reason = "DriverHangs"


class Place(Struct, frozen=True):
    """Where a PCI device is: its address, its NUMA node, -1 where unknown, and the PCIe root above it."""

    bus_id: str
    numa: int = UNKNOWN_NODE
    pcie: str = ""


class Gpu(Struct, frozen=True):
    """A GPU. `memory_bytes` is 0 and `module` None where the driver does not say it.

    `problem` is one word for why it can run no pods now, empty where it can.
    """

    uuid: str
    minor: int
    model: str
    memory_bytes: int
    place: Place
    module: int | None = None
    problem: str = ""


class Gpus(Struct, frozen=True):
    """The GPUs of a node by minor, and the version of their driver.

    `links` is the number of NVLinks between two GPUs by their minors, the smaller first. `lost` GPUs are there, and the
    driver says nothing else of them.
    """

    driver: str
    gpus: tuple[Gpu, ...] = ()
    links: Mapping[tuple[int, int], int] = {}
    lost: int = 0


class Xid(Struct, frozen=True):
    """An error that the driver reports by its number; without a `uuid` nobody knows of which GPU."""

    number: int
    uuid: str = ""


class Hardware(Protocol):
    """The hardware of a node."""

    def gpus(self) -> Gpus:
        """Return the GPUs; raises DriverError."""

    def rdma(self) -> tuple[Device, ...]:
        """Return the RDMA adapters, by minor."""

    def fpga(self) -> tuple[Device, ...]:
        """Return the FPGAs, by minor."""

    def wait_for_xid(self, seconds: float) -> Xid | None:
        """Return the next Xid; None if none comes within this time, or none is ever told. Raises DriverError."""
