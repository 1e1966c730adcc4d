"""Which devices the kubelet gave to the pods of its node: from its socket, or where that fails from its own file.

Invariants:
- The answer of the socket names pods; who reads it joins them with their uids.
- What cannot be read raises KubeletError, so that nobody takes it for pods without devices.
- No answer is larger than a limit.

Source: podresources (`k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`), and the wire format of protobuf.
"""

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from aischeduler.kube.decode.checkpoint import SHARE_SEPARATOR, read_checkpoint

SOCKET: Final = "var/lib/kubelet/pod-resources/kubelet.sock"
CHECKPOINT: Final = "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
LIST: Final = "/v1.PodResourcesLister/List"
ANSWER_SECONDS: Final = 10.0
BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest answer and file; the kubelet answers with no more than this."""
PodKey = str | tuple[str, str]
"""The uid of a pod, or its namespace and name."""
KubeletDevices = Mapping[PodKey, Collection[tuple[str, str]]]
"""Pod -> the resources and ids of its devices."""


class KubeletError(Exception):
    """The kubelet does not say which devices it gave to pods."""


def list_devices(root: Path) -> KubeletDevices:
    """Return the devices of the pods; `root` is the root folder of the node. Raises KubeletError."""
    try:
        return read_answer(_ask(root / SOCKET))
    except KubeletError as error:
        problem = str(error)
    try:
        with (root / CHECKPOINT).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise KubeletError(f"{problem}; {CHECKPOINT}: {error.strerror}") from error
    if len(content) > BYTES_MAX:
        raise KubeletError(f"{problem}; {CHECKPOINT}: is larger than {BYTES_MAX} bytes")
    devices, fault = read_checkpoint(content.decode(errors="replace"))
    if fault and not devices:  # pods that a part leaves out count as holders of unknown devices
        raise KubeletError(f"{problem}; {CHECKPOINT}: {fault}")
    return {uid: devices[uid] for uid in devices}


def _ask(socket: Path) -> bytes:
    """Return the answer of the kubelet; raises KubeletError."""
    if not socket.exists():
        raise KubeletError(f"{SOCKET}: does not exist")
    try:
        grpc = import_module("grpc")
    except ImportError as error:
        raise KubeletError(f"the Python package grpcio is not installed ({error})") from error
    options = (("grpc.max_receive_message_length", BYTES_MAX),)
    with grpc.insecure_channel(f"unix://{socket.absolute()}", options=options) as channel:
        try:
            answer: bytes = channel.unary_unary(LIST)(b"", timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise KubeletError(f"{SOCKET}: {error.code().name}") from error
    return answer


def read_answer(answer: bytes) -> KubeletDevices:
    """Return the devices that a ListPodResourcesResponse says; raises KubeletError."""
    found: dict[PodKey, set[tuple[str, str]]] = {}
    for pod in _contents(answer, 1):
        of_pod = found.setdefault((_text(pod, 2), _text(pod, 1)), set())
        for container in _contents(pod, 3):
            for devices in _contents(container, 2):
                resource = _text(devices, 1)
                of_pod.update((resource, _decoded(one).partition(SHARE_SEPARATOR)[0]) for one in _contents(devices, 2))
    return {pod: devices for pod, devices in found.items() if devices}


def _text(message: bytes, number: int) -> str:
    """Return the last field of this number, which is the one that counts."""
    return _decoded([b"", *_contents(message, number)][-1])


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")


def _contents(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the contents of the fields of this number; raises KubeletError for what is no message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size = 0
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                size = 8
            case 2:
                size, at = _varint(message, at)
            case 5:
                size = 4
            case other:
                raise KubeletError(f"{SOCKET}: the answer has a field of the type {other}")
        if at + size > len(message):
            raise KubeletError(f"{SOCKET}: the answer ends within a field")
        if tag == number << 3 | 2:
            yield message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; raises KubeletError."""
    value = 0
    for shift, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise KubeletError(f"{SOCKET}: the answer ends within a number")
