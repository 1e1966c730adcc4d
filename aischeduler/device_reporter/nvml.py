"""The hardware of a node with NVIDIA GPUs, by the NVIDIA Management Library.

Invariants:
- The library is loaded when the GPUs are read, not when this module is imported.
- After an error the library is opened anew, so that a driver that starts again is used as before.
- What the driver does not support is unknown. A GPU that it counts and of which it says nothing else is lost.
- The NUMA node is that of sysfs, as for adapters: the library's is that of the memory of the GPU.

Source: NVML of the drivers 535 to 580; GPUs with NVLink to a switch reach each other through it by all their links.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from aischeduler.device_reporter.hardware import DriverError, Gpu, Gpus, Xid
from aischeduler.device_reporter.sysfs import adapters, place_of
from aischeduler.model.device import FPGA, RDMA, Device

PACKAGE: Final = "nvidia-ml-py"
MIG: Final = "MigEnabled"
"""The problem of a GPU that is split into instances: pods get these, and not the GPU."""
Remotes = dict[int, Counter[str]]
"""The minor of a GPU -> the number of its NVLinks by the PCI address at the other end."""


def load_nvml() -> Any:
    """Return the module pynvml; raises DriverError."""
    try:
        return import_module("pynvml")
    except ImportError as error:
        raise DriverError(f"the Python package {PACKAGE} is not installed ({error})") from error


class NvidiaNode:
    """The hardware of a node whose root folder is `root`; `load` returns the module pynvml."""

    def __init__(self, root: Path, load: Callable[[], Any] = load_nvml) -> None:
        self._root = root
        self._load = load
        self._is_open = False
        self._events: Any = None
        """The set of events in which every GPU is registered that can be."""

    def rdma(self) -> tuple[Device, ...]:
        """Return the RDMA adapters."""
        return adapters(self._root, RDMA)

    def fpga(self) -> tuple[Device, ...]:
        """Return the FPGAs."""
        return adapters(self._root, FPGA)

    def gpus(self) -> Gpus:
        """Return the GPUs; raises DriverError."""
        nvml = self._load()
        try:
            found = self._read(nvml)
            if not found.lost:
                return found
        except nvml.NVMLError:
            pass
        self._close(nvml)  # what was opened before a driver started again answers no more
        try:
            return self._read(nvml)
        except nvml.NVMLError as error:
            self._close(nvml)
            raise DriverError(str(error)) from error

    def wait_for_xid(self, seconds: float) -> Xid | None:
        """Return the next Xid; raises DriverError."""
        if self._events is None:
            return None
        nvml = self._load()
        try:
            event = nvml.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_TIMEOUT:
                return None
            raise DriverError(str(error)) from error
        try:
            return Xid(event.eventData, nvml.nvmlDeviceGetUUID(event.device))
        except nvml.NVMLError:
            return Xid(event.eventData)

    def _read(self, nvml: Any) -> Gpus:
        if not self._is_open:
            nvml.nvmlInit()
            self._is_open = True
        gpus: list[Gpu] = []
        remotes, lost = Remotes(), 0
        handles = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                gpu = self._gpu(nvml, handle)
                remotes[gpu.minor] = Counter(_remotes(nvml, handle))
            except nvml.NVMLError:
                lost += 1
                continue
            gpus.append(gpu)
            handles.append(handle)
        if self._events is None:
            self._events = _events(nvml, handles)
        gpus.sort(key=lambda gpu: gpu.minor)
        links = links_between({gpu.minor: gpu.place.bus_id for gpu in gpus}, remotes)
        return Gpus(nvml.nvmlSystemGetDriverVersion(), tuple(gpus), links, lost)

    def _gpu(self, nvml: Any, handle: Any) -> Gpu:
        memory, mig = (
            _known(nvml, nvml.nvmlDeviceGetMemoryInfo, handle),
            _known(nvml, nvml.nvmlDeviceGetMigMode, handle),
        )
        return Gpu(
            uuid=nvml.nvmlDeviceGetUUID(handle),
            minor=nvml.nvmlDeviceGetMinorNumber(handle),
            model=nvml.nvmlDeviceGetName(handle),
            memory_bytes=memory.total if memory is not None else 0,
            place=place_of(self._root, _address(nvml.nvmlDeviceGetPciInfo(handle).busId)),
            module=_known(nvml, nvml.nvmlDeviceGetModuleId, handle),
            problem=MIG if mig is not None and mig[0] else "",
        )

    def _close(self, nvml: Any) -> None:
        """Forget what is open, even where the library can no longer close it."""
        with suppress(nvml.NVMLError):
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
        with suppress(nvml.NVMLError):
            if self._is_open:
                nvml.nvmlShutdown()
        self._events, self._is_open = None, False


def links_between(addresses: Mapping[int, str], remotes: Mapping[int, Counter[str]]) -> dict[tuple[int, int], int]:
    """Return the number of NVLinks between each two GPUs, without the pairs that have none.

    A link ends at the other GPU, or at a switch; two GPUs at one switch have as many as the one with fewer.
    """
    minors, found = sorted(addresses), dict[tuple[int, int], int]()
    for index, first in enumerate(minors):
        for second in minors[index + 1 :]:
            near, far = remotes[first], remotes[second]
            switches = sorted((near.keys() & far.keys()) - set(addresses.values()))
            count = near[addresses[second]] + sum(min(near[switch], far[switch]) for switch in switches)
            if count:
                found[first, second] = count
    return found


def _remotes(nvml: Any, handle: Any) -> Iterator[str]:
    """Yield the PCI address at the other end of each active NVLink."""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        if _known(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link):
            remote = _known(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            if remote is not None:
                yield _address(remote.busId)


def _events(nvml: Any, handles: list[Any]) -> Any:
    """Return a set in which the Xids of these GPUs are events; None where no GPU supports it."""
    events, registered = nvml.nvmlEventSetCreate(), 0
    for handle in handles:
        try:
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            registered += 1
        except nvml.NVMLError:
            continue
    if registered:
        return events
    nvml.nvmlEventSetFree(events)
    return None


def _known(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """Return an answer of the driver; None where this driver or GPU has none."""
    try:
        return ask(*arguments)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_InvalidArgument):
        return None


def _address(text: str) -> str:
    """Return a PCI address as sysfs has it: NVML writes the domain with eight digits, in capitals."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"
