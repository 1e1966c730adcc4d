"""What pods ask of devices, what they get, and what is said of what cannot be: the tables of the tests of devices."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.device_stage import Amounts, Held, gpu, other, resources, share
from tests.objects import Json

KOORDINATOR: Final = "scheduling.koordinator.sh/"
ALL_OF_ONE: Final = {"kubernetes.io/gpu": "100"}
ONE: Final = {"nvidia.com/gpu": "1"}


def hint(**of_types: Json) -> Mapping[str, str]:
    return {f"{KOORDINATOR}device-allocate-hint": json.dumps(of_types)}


def joint(*kinds: str) -> Mapping[str, str]:
    wish = {"deviceTypes": list(kinds), "requiredScope": "SamePCIe"}
    return {f"{KOORDINATOR}device-joint-allocate": json.dumps(wish)}


SWITCHED: Final = [
    *(
        gpu(minor, topology={"nodeID": minor // 2, "pcieID": f"switch-{minor}"}, labels={"lot": f"{minor}"})
        for minor in range(4)
    ),
    *(other("rdma", minor, topology={"nodeID": 1, "pcieID": f"switch-{minor + 2}"}) for minor in range(2)),
    *(other("fpga", minor) for minor in range(2)),
    other("xpu", 0, total=8),
]
"""What each node has: of the GPUs, the last two have an RDMA adapter beside them."""
TABLE: Final = {"2": [{"minors": [1, 2], "ringBusBandwidth": "400Gi", "allocationScore": 1}]}
WHOLE: Final = share(100, gib=80, ratio=100)


@dataclass(frozen=True, slots=True)
class Form:
    """What a pod requests, its annotations, and what it gets on a node of its own."""

    requests: Mapping[str, str]
    gets: Held
    annotations: Mapping[str, str] = field(default_factory=dict)


HALF: Final = Form({"kubernetes.io/gpu": "50"}, {("gpu", 0): share(50, gib=40, ratio=50)})
BYTES: Final = Form(
    {"kubernetes.io/gpu-core": "30", "kubernetes.io/gpu-memory": "20Gi"}, {("gpu", 0): share(30, gib=20, ratio=25)}
)
TWO: Final = Form({"kubernetes.io/gpu": "200"}, {("gpu", 0): WHOLE, ("gpu", 1): WHOLE})
RDMA: Final = Form({"kubernetes.io/rdma": "25"}, {("rdma", 0): Counter(rdma=25)})
FORMS: Final = {
    "half": HALF,
    "two": TWO,
    "bytes": BYTES,
    "bytes-of-one": Form({"kubernetes.io/gpu-memory": "80Gi"}, {("gpu", 0): share(gib=80, ratio=100)}),
    "ratio": Form({"kubernetes.io/gpu-memory-ratio": "25"}, {("gpu", 0): share(gib=20, ratio=25)}),
    "koordinator": Form({"koordinator.sh/gpu": "50"}, HALF.gets),
    "both": Form(
        {"koordinator.sh/gpu-core": "10", "kubernetes.io/gpu-memory-ratio": "30"},
        {("gpu", 0): share(10, gib=24, ratio=30)},
    ),
    "shared": Form(
        {"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory": "20Gi"},
        {("gpu", minor): share(gib=10, ratio=13) for minor in range(2)},
    ),
    "rdma": RDMA,
    "fpga": Form({"koordinator.sh/fpga": "200"}, {("fpga", minor): Counter(fpga=100) for minor in range(2)}),
    "further": Form({"kubernetes.io/xpu": "3"}, {("xpu", 0): Counter(xpu=3)}),
    "joint": Form(
        {"kubernetes.io/gpu": "100", "kubernetes.io/rdma": "50"},
        {("gpu", 2): WHOLE, ("rdma", 0): Counter(rdma=50)},
        joint("gpu", "rdma"),
    ),
    "hint": Form(ALL_OF_ONE, {("gpu", 3): WHOLE}, hint(gpu={"selector": {"matchLabels": {"lot": "3"}}})),
    "every": Form(
        {"kubernetes.io/rdma": "10"},
        {("rdma", minor): Counter(rdma=10) for minor in range(2)},
        hint(rdma={"allocateStrategy": "ApplyForAll"}),
    ),
    "partition": Form(
        TWO.requests,
        {("gpu", 1): WHOLE, ("gpu", 2): WHOLE},
        {f"{KOORDINATOR}gpu-partition-spec": '{"allocatePolicy": "Restricted", "ringBusBandwidth": "400Gi"}'},
    ),
    "counted": Form(ONE, {("gpu", 0): WHOLE}),
}


INVALID: Final[dict[str, tuple[Json, str, str]]] = {
    "above-one": (
        {"requests": {"kubernetes.io/gpu": "150"}},
        "invalid resource unit kubernetes.io/gpu: 150",
        "requests[kubernetes.io/gpu]",
    ),
    "core-alone": (
        {"requests": {"kubernetes.io/gpu-core": "50"}},
        "invalid resource device requests: [kubernetes.io/gpu-core]",
        "requests[kubernetes.io/gpu-core]",
    ),
    "bytes-and-ratio": (
        {"requests": {"kubernetes.io/gpu-memory": "1Gi", "kubernetes.io/gpu-memory-ratio": "10"}},
        "invalid resource device requests: [kubernetes.io/gpu-memory kubernetes.io/gpu-memory-ratio]",
        "requests[kubernetes.io/gpu-memory-ratio]",
    ),
    "decimal": (
        {"requests": {"kubernetes.io/gpu": "50.5"}},
        "invalid resource unit kubernetes.io/gpu: 50500m",
        "requests[kubernetes.io/gpu]",
    ),
    "milli": (
        {"requests": {"kubernetes.io/gpu": "500m"}},
        "invalid resource unit kubernetes.io/gpu: 500m",
        "requests[kubernetes.io/gpu]",
    ),
    "burst": (
        {"requests": {"kubernetes.io/gpu": "50"}, "limits": {"kubernetes.io/gpu": "100"}},
        "invalid resource unit kubernetes.io/gpu: 100",
        "requests[kubernetes.io/gpu]",
    ),
    "twice": (
        resources({"kubernetes.io/gpu": "50", "koordinator.sh/gpu": "50"}),
        "invalid resource device requests: [koordinator.sh/gpu kubernetes.io/gpu]",
        "requests[koordinator.sh/gpu]",
    ),
    "rdma": (
        {"requests": {"kubernetes.io/rdma": "150"}},
        "invalid resource unit kubernetes.io/rdma: 150",
        "requests[kubernetes.io/rdma]",
    ),
}
"""The resources of a container, and what is said of them and of the field."""


BAD: Final[dict[str, tuple[list[Json], str, str, list[int]]]] = {
    "twins": ([gpu(0), gpu(0)], "spec.devices[1].minor: another gpu before it has the minor 0", "100", [0]),
    "unit": ([gpu(0, memory="32GB"), gpu(1)], "spec.devices[0].resources[koordinator.sh/gpu-memory]", "100", [1]),
    "negative": ([gpu(0, memory="-1"), gpu(1)], "spec.devices[0].resources[koordinator.sh/gpu-memory]", "100", [1]),
    "many": ([gpu(n) for n in range(70)], "spec.devices: 6 of type gpu are too many", "6400", [*range(64)]),
    "type": ([gpu(0, type="gpu/x"), gpu(1)], "spec.devices[0].type", "100", [1]),
    "no-type": ([{"minor": 0, "health": True}, gpu(1)], "spec.devices[0].type: is missing", "100", [1]),
    "minor": ([gpu(-1), gpu(1)], "spec.devices[0].minor: must be from 0", "100", [1]),
}
"""The devices of a node, what is said of them, and a request with the minors that it gets."""


BY_COUNT: Final = "node(s) gave whole GPUs by count only"
BY_NAME: Final = "node(s) gave no GPUs by count"
BY_VARIABLE: Final = "node(s) showed GPUs by a variable that the pod's containers lack"
MISSPELT: Final = "node(s) had an unknown value of the label resource.aibee.cn/gpu-delivery"
DELIVERED: Final[dict[str, tuple[str, Mapping[str, str], bool, str]]] = {
    "env-half": ("env", HALF.requests, True, ""),
    "env-blind": ("env", HALF.requests, False, BY_VARIABLE),
    "env-one": ("env", ONE, False, BY_NAME),
    "koordlet-half": ("koordlet", HALF.requests, False, ""),
    "koordlet-one": ("koordlet", ONE, False, ""),
    "plugin-half": ("device-plugin", HALF.requests, True, BY_COUNT),
    "plugin-whole": ("device-plugin", ALL_OF_ONE, True, BY_COUNT),
    "plugin-one": ("device-plugin", ONE, False, ""),
    "plugin-visible": ("device-plugin", ONE, True, BY_COUNT),
    "plugin-rdma": ("device-plugin", RDMA.requests, False, ""),
    "hami-half": ("hami", HALF.requests, True, BY_COUNT),
    "hami-one": ("hami", ONE, False, BY_NAME),
    "odd-half": ("odd", HALF.requests, True, MISSPELT),
    "odd-one": ("odd", ONE, False, MISSPELT),
}
"""The mode of the node, the request, whether the variable is there, and why the pod waits; empty if it does not."""


MIX: Final[list[tuple[Mapping[str, str], Amounts]]] = [
    ({"kubernetes.io/gpu": "25"}, share(25, gib=20, ratio=25)),
    ({"kubernetes.io/gpu-core": "40", "kubernetes.io/gpu-memory": "10Gi"}, share(40, gib=10, ratio=13)),
    ({"koordinator.sh/gpu": "50"}, share(50, gib=40, ratio=50)),
    ({"kubernetes.io/gpu-memory-ratio": "20"}, share(gib=16, ratio=20)),
    ({"koordinator.sh/gpu-core": "10", "kubernetes.io/gpu-memory-ratio": "30"}, share(10, gib=24, ratio=30)),
]
"""Requests under many names, so that the sums of no name alone keep devices from being given twice."""
