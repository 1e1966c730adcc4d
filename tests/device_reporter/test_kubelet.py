"""What the kubelet says of the devices of pods: the answers of its socket, and both forms of its file."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.device_reporter.kubelet import (
    BYTES_MAX,
    CHECKPOINT,
    LIST,
    SOCKET,
    KubeletError,
    list_devices,
    read_answer,
)
from tests.device_reporter.hosts import entry, write_checkpoint

Devices = dict[tuple[str, str], list[list[tuple[str, list[str]]]]]
"""Namespace and name of a pod -> for each container the resources with their ids."""

NAMES = st.text(max_size=4)
DEVICES = st.dictionaries(
    st.tuples(NAMES, NAMES),
    st.lists(st.lists(st.tuples(NAMES, st.lists(st.text("ab-0", max_size=3), max_size=3)), max_size=2), max_size=2),
    max_size=3,
)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def content(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def skipped() -> bytes:
    """Return fields of other types and numbers, as a newer kubelet may send."""
    return (
        varint(9 << 3)
        + varint(300)
        + varint(10 << 3 | 1)
        + bytes(8)
        + varint(11 << 3 | 5)
        + bytes(4)
        + content(12, "x")
    )


def answer(devices: Devices, extra: bytes = b"") -> bytes:
    def of_container(resources: list[tuple[str, list[str]]]) -> bytes:
        listed = (content(1, name) + b"".join(content(2, one) for one in ids) + extra for name, ids in resources)
        return content(1, "main") + extra + b"".join(content(2, one) for one in listed)

    def of_pod(namespace: str, name: str) -> bytes:
        containers = b"".join(content(3, of_container(one)) for one in devices[namespace, name])
        return content(1, name) + content(2, namespace) + containers + extra

    return b"".join(content(1, of_pod(*key)) for key in devices) + extra


@given(DEVICES)
def test_answer_is_read_whatever_a_newer_kubelet_adds(devices: Devices) -> None:
    expected = {
        pod: {(resource, one) for container in containers for resource, ids in container for one in ids}
        for pod, containers in devices.items()
    }
    assert read_answer(answer(devices, skipped())) == {pod: held for pod, held in expected.items() if held}


@given(st.binary(max_size=40))
def test_any_bytes_are_an_answer_or_an_error(raw: bytes) -> None:
    try:
        assert isinstance(read_answer(raw), dict)
    except KubeletError as error:
        assert SOCKET in str(error)  # noqa: PT017 - either is right


def test_answer_that_is_cut_is_an_error() -> None:
    whole = answer({("team", "train"): [[("nvidia.com/gpu", ["GPU-0"])]]})
    assert read_answer(whole) == {("team", "train"): {("nvidia.com/gpu", "GPU-0")}}
    with pytest.raises(KubeletError, match="ends within a field"):
        read_answer(whole[:-1])


def test_shares_of_a_gpu_are_the_gpu() -> None:
    shares = answer({("team", "train"): [[("nvidia.com/gpu", ["GPU-0::1", "GPU-0::2"])]]})
    assert read_answer(shares) == {("team", "train"): {("nvidia.com/gpu", "GPU-0")}}


@pytest.mark.parametrize("ids", [["GPU-1", "GPU-0"], {"0": ["GPU-0"], "-1": ["GPU-1"]}], ids=["list", "by NUMA node"])
def test_file_is_read_in_both_forms_where_there_is_no_socket(tmp_path: Path, ids: object) -> None:
    write_checkpoint(tmp_path, [entry("u1", ids)])
    assert list_devices(tmp_path) == {"u1": (("nvidia.com/gpu", "GPU-0"), ("nvidia.com/gpu", "GPU-1"))}


def test_neither_socket_nor_file_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(KubeletError, match=rf"{SOCKET}: does not exist; {CHECKPOINT}: No such file"):
        list_devices(tmp_path)


@pytest.mark.parametrize("text", ['{"Data":', "[]x", "{}"])
def test_file_that_cannot_be_read_is_not_one_without_pods(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path, [])
    assert list_devices(tmp_path) == {}
    (tmp_path / CHECKPOINT).write_text(text)
    with pytest.raises(KubeletError, match=CHECKPOINT):
        list_devices(tmp_path)


def test_file_of_any_size_costs_no_more_than_the_limit(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, [])
    with (tmp_path / CHECKPOINT).open("ab") as file:
        file.truncate(BYTES_MAX + 1)
    with pytest.raises(KubeletError, match="is larger than"):
        list_devices(tmp_path)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[list[bytes]]:
    """Serve podresources as a kubelet does; the list has the next answer, and without one it refuses."""
    grpc: Any = pytest.importorskip("grpc", reason="grpcio is not installed")
    answers: list[bytes] = []

    def listed(request: bytes, context: Any) -> bytes:
        assert request == b""
        return answers.pop() if answers else context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")

    service, _, method = LIST.strip("/").partition("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.unary_unary_rpc_method_handler(listed)})
    server = grpc.server(ThreadPoolExecutor(1), handlers=(handler,))
    (tmp_path / SOCKET).parent.mkdir(parents=True)
    server.add_insecure_port(f"unix://{tmp_path / SOCKET}")
    server.start()
    yield answers
    server.stop(None).wait()


def test_socket_is_asked_before_the_file_and_the_file_where_it_fails(tmp_path: Path, kubelet: list[bytes]) -> None:
    write_checkpoint(tmp_path, [entry("u1", ["GPU-1"])])
    kubelet.append(answer({("team", "train"): [[("nvidia.com/gpu", ["GPU-0"])]]}))
    assert list_devices(tmp_path) == {("team", "train"): {("nvidia.com/gpu", "GPU-0")}}
    assert list_devices(tmp_path) == {"u1": (("nvidia.com/gpu", "GPU-1"),)}
