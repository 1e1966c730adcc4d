import pytest

from aischeduler.sandbox.protobuf import MEDIA_TYPE, ProtobufError, decode
from tests.sandbox.cluster import Cluster


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    head = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, head) + field(2, raw)


METADATA = field(1, b"high") + field(11, field(1, b"team") + field(2, b"a")) + field(8, b"")
PRIORITY_CLASS = field(1, METADATA) + field(2, -5) + field(3, 0) + field(5, b"Never")


def test_message_becomes_an_object() -> None:
    assert decode(envelope("scheduling.k8s.io/v1", "PriorityClass", PRIORITY_CLASS)) == {
        "kind": "PriorityClass",
        "apiVersion": "scheduling.k8s.io/v1",
        "metadata": {"name": "high", "labels": {"team": "a"}},
        "value": -5,
        "globalDefault": False,
        "preemptionPolicy": "Never",
    }


def test_number_or_text_is_told_apart() -> None:
    numbers = field(1, 0) + field(2, 3) + field(3, b"")
    texts = field(1, 1) + field(2, 0) + field(3, b"50%")
    raw = field(2, field(1, numbers) + field(3, texts))
    assert decode(envelope("policy/v1", "PodDisruptionBudget", raw))["spec"] == {
        "minAvailable": 3,
        "maxUnavailable": "50%",
    }


def test_object_is_created_from_protobuf() -> None:
    cluster = Cluster()
    body = envelope("scheduling.k8s.io/v1", "PriorityClass", PRIORITY_CLASS)
    created = cluster.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body, MEDIA_TYPE)
    assert (created["value"], "globalDefault" in created) == (-5, False)


@pytest.mark.parametrize(
    "body", [b"", b"k8s", b"k8s\x00\xff", envelope("v1", "Nothing", b""), envelope("v1", "Pod", b"\x0a\x7f")]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ProtobufError):
        decode(body)
    status = Cluster().refused("POST", "/api/v1/namespaces/default/pods", body or b"\x00", MEDIA_TYPE)
    assert status["code"] == 400
