"""The loop of the device reporter: it looks at its node, and writes what the API server does not say yet.

Invariants:
- It holds no state but the Xids since its start: what is true is read anew for every report.
- Only differences are written. What is lost of the status of the node, as when its Node object is made anew, is written
  again by the next report.
- No error ends the loop: a program that starts again would forget which GPUs had an Xid.
- It writes no files, and a log line only when something changes or fails.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import msgspec
from msgspec import Raw, Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.device_reporter.hardware import DriverError, Gpus, Hardware
from aischeduler.device_reporter.health import Calls, Health
from aischeduler.device_reporter.kubelet import KubeletDevices, KubeletError, PodKey, list_devices
from aischeduler.device_reporter.report import (
    DEVICE_VERSION,
    Facts,
    Json,
    capacity,
    device_object,
    difference,
    labels,
    status_change,
    unhealthy,
    without_nulls,
)
from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing
from aischeduler.kube.http.client import LIST_SECONDS, Client
from aischeduler.kube.http.errors import ApiError, MalformedAnswerError, RefusedError
from aischeduler.kube.http.paths import collection_path, object_path
from aischeduler.model.device import HolderSource, PodDevices
from aischeduler.model.times import time_text

MERGE_PATCH: Final = "application/merge-patch+json"
DRIVER_SECONDS: Final = 60.0
"""How long the driver may take for an answer; without persistence mode it initialises each GPU first."""
BACKOFF_SECONDS_MAX: Final = 60.0
SPREAD: Final = 0.1
"""By how much of the interval the agents of many nodes may report earlier, so that they do not report all at once."""
NOT_INSTALLED: Final = "the definition of devices.scheduling.koordinator.sh is not installed"
T = TypeVar("T")


class _Pods(Struct):
    """A list of pods."""

    items: list[Raw] | None = None


class Report(Struct, frozen=True):
    """What a node is to say, and what is to be written for it: merge patches, of which an empty one is none.

    `device` is None where there is nothing to say; with `is_new` it does not exist yet.
    """

    device: Json | None = None
    labels: Mapping[str, str | None] = {}
    capacity: Mapping[str, int] = {}
    is_new: bool = False
    device_change: Json = {}
    node_change: Json = {}
    status_change: Json = {}


class Agent:
    """The agent of the node `node`, whose root folder is `root`. It reports every `interval_seconds`."""

    def __init__(
        self,
        client: Client,
        hardware: Hardware,
        node: str,
        *,
        root: Path,
        interval_seconds: float,
        timing: Timing,
        log: FilteringBoundLogger,
        driver_seconds: float = DRIVER_SECONDS,
    ) -> None:
        self._client = client
        self._hardware = hardware
        self._node = node
        self._root = root
        self._interval_seconds = interval_seconds
        self._timing = timing
        self._log = log.bind(node=node)
        self._driver_seconds = driver_seconds
        self._calls = Calls()
        self._health = Health()
        self._uuids: tuple[str, ...] = ()
        self._told: dict[str, str] = {}
        """What was told last, by subject."""
        self._written: tuple[Json, str] = ({}, "")
        """The change of the Device object that was written last, and the version that came of it."""
        self._device_path = object_path(DEVICE_VERSION, "devices", node)
        self._node_path = object_path("v1", "nodes", node)

    async def run(self) -> NoReturn:
        """Report until cancelled."""
        backoff = ExponentialBackoff(self._timing, seconds_max=BACKOFF_SECONDS_MAX)
        while True:
            seconds = self._interval_seconds * (1 - SPREAD * self._timing.jitter.random())
            try:
                await self.write(await self.look())
            except ApiError as error:
                asked = error.retry_after_seconds if isinstance(error, RefusedError) else None
                seconds = max(backoff.next_seconds(), asked or 0)
                self._log.warning("report failed", reason=_reason(error), again_in_seconds=round(seconds, 1))
            except Exception as error:  # noqa: BLE001 - see the invariants
                seconds = backoff.next_seconds()
                self._log.error("report ended by a bug", again_in_seconds=round(seconds, 1), exc_info=error)
            await self._wait(seconds)

    async def look(self) -> Report:
        """Return what is to be written now; raises ApiError."""
        gpus = await self._gpus()
        others = await asyncio.to_thread(lambda: self._hardware.rdma() + self._hardware.fpga())
        node = await self._get(self._node_path)
        existing = await self._device()
        held, own = await self._held()
        facts = Facts(
            node=self._node,
            uid=node["metadata"]["uid"],
            now=time_text(self._timing.clock()),
            gpus=gpus,
            others=others,
            problems=dict(self._health.problems),
            held=held,
            own=own,
        )
        device = device_object(facts, existing)
        if device is None:
            return Report()
        change = difference(existing or {}, device)
        if existing is not None and (change, existing["metadata"].get("resourceVersion")) == self._written:
            change = {}  # the definition of Device does not keep it
        wanted, amounts = labels(gpus), capacity(device)
        complete = isinstance(gpus, Gpus) and not gpus.lost
        return Report(
            device,
            labels=wanted,
            capacity=amounts,
            is_new=existing is None,
            device_change=change,
            node_change=difference(node, {"metadata": {"labels": wanted}}),
            status_change=status_change(node, amounts, complete=complete),
        )

    async def write(self, report: Report) -> None:
        """Write the differences; raises ApiError."""
        device = report.device
        if device is not None and report.is_new:
            await self._client.post(
                collection_path(DEVICE_VERSION, "devices"), msgspec.json.encode(without_nulls(device))
            )
        elif report.device_change:
            answer = await self._patch(self._device_path, report.device_change)
            self._written = report.device_change, answer["metadata"].get("resourceVersion", "")
        if device is not None and report.device_change:
            kinds = [info["type"] for info in device["spec"]["devices"]]
            count = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
            self._log.info("devices reported", devices=_words(count), unhealthy=_words(unhealthy(device)))
        if report.node_change:
            await self._patch(self._node_path, report.node_change)
        if report.status_change:
            await self._patch(f"{self._node_path}/status", report.status_change)
            self._log.info("capacity of the node written", capacity=_words(report.capacity))

    async def _gpus(self) -> Gpus | DriverError:
        try:
            found = await self._calls.call(self._hardware.gpus, self._driver_seconds)
        except DriverError as error:
            if self._is_news("gpus", str(error)):
                self._log.warning("GPUs not read", reason=str(error))
            return error
        self._uuids = tuple(gpu.uuid for gpu in found.gpus)
        if self._is_news("gpus", f"{found.driver} {len(found.gpus)} {found.lost}"):
            self._log.info("GPUs read", gpus=len(found.gpus), lost=found.lost, driver=found.driver)
        return found

    async def _held(self) -> tuple[PodDevices | None, frozenset[str]]:
        """Return what the kubelet says of pods, by their uids, and the pods that say it themselves; raises ApiError."""
        try:
            found = await asyncio.to_thread(list_devices, self._root)
        except KubeletError as error:
            if self._is_news("kubelet", str(error)):
                self._log.warning("devices of pods not read", reason=str(error))
            return None, frozenset()
        self._is_news("kubelet", "")
        if not found:
            return {}, frozenset()
        return await self._joined(found)

    async def _joined(self, found: KubeletDevices) -> tuple[PodDevices, frozenset[str]]:
        query = {"fieldSelector": f"spec.nodeName={self._node}", "resourceVersion": "0"}  # from the cache of the server
        listed = _decoded(await self._client.get(collection_path("v1", "pods"), query, LIST_SECONDS), _Pods)
        specs, own, uids = SpecCache(), set[str](), dict[PodKey, str]()
        for raw in listed.items or ():
            try:
                pod = read_pod(msgspec.json.decode(raw, type=PodDocument), specs)
            except UNREADABLE:
                continue
            uids[pod.namespace, pod.name] = pod.uid
            if pod.devices is not None and pod.devices.source is HolderSource.ALLOCATED:
                own.add(pod.uid)
        by_uid = {key if isinstance(key, str) else uids.get(key, ""): devices for key, devices in found.items()}
        return {uid: tuple(sorted(devices)) for uid, devices in by_uid.items() if uid}, frozenset(own)

    async def _wait(self, seconds: float) -> None:
        """Return after this time, or once a GPU becomes unhealthy."""
        until = self._timing.clock() + seconds
        while (rest := until - self._timing.clock()) > 0:
            ask = partial(self._hardware.wait_for_xid, rest)
            try:
                xid = await self._calls.call(ask, rest + self._driver_seconds)
            except DriverError:  # the next report says why
                xid = None
            if xid is None:
                await self._timing.sleep(max(0.0, until - self._timing.clock()))
                return
            struck = self._health.record(xid, self._uuids)
            if struck:
                self._log.warning("GPU unhealthy", xid=xid.number, gpus=", ".join(struck))
                return
            self._log.info("Xid ignored", xid=xid.number, gpus=xid.uuid)

    def _is_news(self, subject: str, text: str) -> bool:
        """Return whether something else was told of this subject before."""
        told, self._told[subject] = self._told.get(subject, ""), text
        return told != text

    async def _device(self) -> Json | None:
        try:
            return await self._get(self._device_path)
        except RefusedError as error:
            if error.no_such_object:
                return None
            raise

    async def _get(self, path: str) -> Json:
        return _decoded(await self._client.get(path), Json)

    async def _patch(self, path: str, change: Json) -> Json:
        return _decoded(await self._client.patch(path, msgspec.json.encode(change), MERGE_PATCH), Json)


def _decoded(answer: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"the answer cannot be read: {error}") from error


def _reason(error: ApiError) -> str:
    """Return an error of the API server, with what to do about a Device object that it does not serve."""
    unserved = isinstance(error, RefusedError) and error.status == 404 and DEVICE_VERSION in error.request
    return f"{NOT_INSTALLED}: {error}" if unserved else str(error)


def _words(values: Mapping[str, object]) -> str:
    """Return names with values for a line of the log."""
    return ", ".join(f"{name} {values[name]}" for name in sorted(values))
