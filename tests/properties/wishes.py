"""What random days draw: shapes of pods and nodes, specs of pools, and the affinity of pods."""

from collections.abc import Mapping
from typing import Any, TypedDict

from hypothesis import strategies as st

from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import HostPort
from aischeduler.model.pod_affinity import PodAffinityTerm
from aischeduler.model.pool import MakeRoomOrder, PlacementStrategy, ReclaimPolicy
from tests.affinity_terms import term
from tests.build import SpecFields, tolerates

Wishes = dict[str, Any]


class ShapeFields(SpecFields, total=False):
    cpu: str
    memory: str
    gpu: int
    extended: Mapping[str, str]


class SizeFields(TypedDict, total=False):
    cpu: str
    gpu: int
    extended: Mapping[str, str]
    pods: int


class AffinityFields(TypedDict, total=False):
    required: tuple[PodAffinityTerm, ...]
    anti_required: tuple[PodAffinityTerm, ...]
    preferred: tuple[tuple[int, PodAffinityTerm], ...]


NODES, POOLS, NAMESPACES = [f"n{i}" for i in range(5)], ["a", "b", "c"], ["default", "team"]
NUMBER = st.integers(0, 30)
PODS_MAX = 16
"""The most pods at one time; a new pod ends the oldest one."""
SECONDS_OF_CALM = 330.0

SHAPES: list[ShapeFields] = [
    {"cpu": "500m", "memory": "1Gi"},
    {"cpu": "1", "memory": "1Gi"},
    {"cpu": "2", "memory": "1Gi"},
    {"cpu": "2", "memory": "1Gi"},
    {"cpu": "1", "memory": "1Gi", "gpu": 1},
    {"cpu": "1", "memory": "1Gi", "gpu": 2},
    {"cpu": "1", "memory": "1Gi", "host_ports": (HostPort("TCP", 80),)},
    {"cpu": "1", "memory": "1Gi", "tolerations": (tolerates("t"),)},
    {"cpu": "1", "memory": "1Gi", "node_selector": {"disk": "ssd"}},
    {"cpu": "4", "memory": "4Gi"},
    {"cpu": "1", "memory": "1Gi", "extended": {"example.com/card": "1"}},
    {"cpu": "1", "memory": str(2**63 - 1), "extended": {"example.com/made-up": "1"}},
]
HOST = "kubernetes.io/hostname"
X, Y = term(HOST, "app=x"), term(HOST, "app=y")
X_ZONE, Y_ZONE = term("zone", "app=x"), term("zone", "app=y")
TEAMS = term("zone", "app=x", among="team=yes")
TERMS: list[AffinityFields] = [
    {"anti_required": (X,)},
    {"anti_required": (X, Y_ZONE)},
    {"required": (X_ZONE,)},
    {"required": (Y,), "anti_required": (X,)},
    {"required": (X_ZONE, X)},
    {"anti_required": (TEAMS,)},
    {"required": (TEAMS,), "preferred": ((5, Y),)},
    {"preferred": ((50, X_ZONE), (-10, X))},
]
"""The affinity of some pods; terms without namespaces are about the pod's own."""
NODE_LABELS = ("pool=a zone=x", "pool=b zone=x", "pool=c", "zone=y", "pool=a pool2=b zone=y", "pool=a zone=y disk=ssd")
LABELS = [dict(pair.split("=") for pair in labels.split()) for labels in NODE_LABELS]
SIZES: list[SizeFields] = [
    {"cpu": "1"},
    {"cpu": "2"},
    {"cpu": "4"},
    {"cpu": "4", "gpu": 2},
    {"cpu": "4", "gpu": 1, "pods": 2},
    {"cpu": "4", "extended": {"example.com/card": "2"}},
]
LIMITS = [None, None, None, {"cpu": 1000}, {"cpu": 2000, "memory": 2**31}, {"pods": 1}, {"nvidia.com/gpu": 1}]

PODS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(range(len(SHAPES))),
        "pool": st.sampled_from([*POOLS, *POOLS, "", "nowhere"]),
        "priority": st.sampled_from([0, 0, 0, 5, 10]),
        "copies": st.integers(1, 3),
        "preempts": st.sampled_from([True, True, True, False]),
        "gates": st.sampled_from([(), (), (), ("wait",)]),
        "namespace": st.sampled_from(NAMESPACES),
        "app": st.sampled_from(["x", "y"]),
        "terms": st.sampled_from([*[None] * 3 * len(TERMS), *range(len(TERMS))]),
        "spread_over": st.sampled_from([(), (), (), (), (), ("zone",), ("zone", "disk")]),
    }
)
SPECS = st.fixed_dictionaries(
    {
        "second": st.sampled_from([False, False, False, True]),
        "disable_preemption": st.sampled_from([False, False, False, True]),
        "disable_borrowing": st.sampled_from([False, False, False, True]),
        "disable_sharing": st.sampled_from([False, False, False, True]),
        "borrowing_pools": st.sampled_from([None, None, None, ("a",), ("b", DEFAULT_POOL), ()]),
        "lending_limit": st.sampled_from(LIMITS),
        "borrowing_limit": st.sampled_from(LIMITS),
        "make_room": st.sampled_from([None, *MakeRoomOrder]),
        "reclaim_policy": st.sampled_from(ReclaimPolicy),
        "allowed_namespaces": st.sampled_from([None, None, None, {"team": "yes"}]),
        "placement": st.sampled_from([None, *PlacementStrategy]),
        "invalid": st.sampled_from(["", "", "", "", "", "spec: broken"]),
    }
)
