"""The module pynvml with recorded answers: each function of a GPU answers what a real one answered."""

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RECORDED = json.loads((Path(__file__).parent / "recorded" / "nvml-h100.json").read_text())
Json = dict[str, Any]


class NVMLError(Exception):
    value = 999


class NotSupportedError(NVMLError):
    value = 3


class FunctionNotFoundError(NVMLError):
    value = 13


class InvalidArgumentError(NVMLError):
    value = 2


class TimeoutNVMLError(NVMLError):
    value = 10


class LostError(NVMLError):
    value = 15


ERRORS = {error.value: error for error in (NotSupportedError, FunctionNotFoundError, InvalidArgumentError)}


class RecordedNvml:
    """Answers as a driver with these GPUs does.

    `absent` is what every call raises while there is no driver. After a driver started again, calls are `stale` until
    `nvmlInit`: all of them, or where it `counts` all but the number of GPUs.
    """

    NVMLError = NVMLError
    NVMLError_NotSupported = NotSupportedError
    NVMLError_FunctionNotFound = FunctionNotFoundError
    NVMLError_InvalidArgument = InvalidArgumentError
    NVML_ERROR_TIMEOUT = TimeoutNVMLError.value
    NVML_NVLINK_MAX_LINKS = 18
    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, *devices: Json) -> None:
        self.devices = list(devices or RECORDED["devices"])
        self.lost: set[int] = set()
        self.absent: NVMLError | None = None
        self.stale = False
        self.counts = False
        self.events: deque[tuple[int, int]] = deque()
        """Xids to come, with the index of their GPU."""
        self.registered: list[int] = []
        self.inits = 0

    def nvmlInit(self) -> None:  # noqa: N802 - names of pynvml
        if self.absent is not None:
            raise self.absent
        self.inits += 1
        self.stale = False
        self.registered.clear()

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._check()

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        if not self.counts:
            self._check()
        return len(self.devices)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return str(RECORDED["system"]["nvmlSystemGetDriverVersion"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._check()
        if index in self.lost:
            raise LostError("GPU is lost")
        return index

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlEventSetFree(self, _events: object) -> None:  # noqa: N802
        self._check()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, _events: object) -> None:  # noqa: N802
        if not self.devices[handle]["nvmlDeviceGetSupportedEventTypes"] & kinds:
            raise NotSupportedError("Not Supported")
        self.registered.append(handle)

    def nvmlEventSetWait_v2(self, _events: object, _milliseconds: int) -> SimpleNamespace:  # noqa: N802
        self._check()
        if not self.events:
            raise TimeoutNVMLError("Timeout")
        xid, device = self.events.popleft()
        return SimpleNamespace(eventData=xid, device=device)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in RECORDED["devices"][0]:
            raise AttributeError(name)

        def ask(handle: int, *arguments: int) -> Any:
            if handle in self.lost:
                raise LostError("GPU is lost")
            answer = self.devices[handle][name]
            answer = answer[arguments[0]] if arguments and isinstance(answer, list) else answer
            if isinstance(answer, dict) and "error" in answer:
                raise ERRORS[answer["value"]](answer["text"])
            return SimpleNamespace(**answer) if isinstance(answer, dict) else answer

        return ask

    def _check(self) -> None:
        if self.absent is not None or self.stale:
            raise self.absent or NVMLError("Unknown Error")


def a_gpu(minor: int, **changed: Any) -> Json:
    """Return the answers of one GPU of several: as recorded, with a UUID and an address of its own."""
    own = {
        "nvmlDeviceGetUUID": f"GPU-{minor}",
        "nvmlDeviceGetMinorNumber": minor,
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:{minor + 16:02X}:00.0"},
    }
    return {**RECORDED["devices"][0], **own, **changed}


def linked(*remotes: str) -> Json:
    """Return the answers about NVLinks that end at these addresses; the other links are not active."""
    rest = 18 - len(remotes)
    return {
        "nvmlDeviceGetNvLinkState": [1] * len(remotes) + [0] * rest,
        "nvmlDeviceGetNvLinkRemotePciInfo": [{"busId": remote} for remote in remotes] + [{"busId": ""}] * rest,
    }
