"""The kubelet's record of devices as it is read: from its file, and from the annotation of an agent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.checkpoint import ENTRIES_MAX, read_checkpoint

GPU = "nvidia.com/gpu"


def entry(uid: str = "a", ids: Any = ("GPU-1",), resource: str = GPU) -> dict[str, Any]:
    return {"podUID": uid, "containerName": "c", "resourceName": resource, "deviceIDs": ids}


def in_file(*entries: dict[str, Any]) -> str:
    """Return the file with these entries, as the kubelet writes it."""
    capital = [
        {**{key[0].upper() + key[1:]: value for key, value in one.items()}, "AllocResp": "CkYK"} for one in entries
    ]
    data = {"PodDeviceEntries": capital, "RegisteredDevices": {GPU: ["GPU-1"]}}
    return json.dumps({"Data": data, "Checksum": 1234})


@pytest.mark.parametrize("ids", [["GPU-2", "GPU-1"], {"0": ["GPU-1"], "1": ["GPU-2"], "-1": None}])
def test_annotation_and_file_give_the_same_with_ids_in_a_list_or_by_numa_node(ids: Any) -> None:
    expected = {"a": ((GPU, "GPU-1"), (GPU, "GPU-2")), "b": (("rdma/hca", "mlx5_0"),)}
    entries = entry("b", ["mlx5_0"], "rdma/hca"), entry("a", ids)
    for text in (json.dumps(entries), in_file(*entries)):
        assert read_checkpoint(text) == (expected, "")


def test_containers_of_a_pod_count_together_and_shares_of_a_device_are_one() -> None:
    entries = [
        entry(ids=["GPU-1::0", "GPU-1::3"]),
        entry(ids=["GPU-1::1"]),
        entry(ids=["MIG-7"], resource="nvidia.com/mig-1g.5gb"),
    ]
    assert read_checkpoint(json.dumps(entries)) == ({"a": ((GPU, "GPU-1"), ("nvidia.com/mig-1g.5gb", "MIG-7"))}, "")


@pytest.mark.parametrize("text", ["[]", '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}'])
def test_record_of_no_pods_is_no_fault(text: str) -> None:
    assert read_checkpoint(text) == ({}, "")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Input data was truncated"),
        (json.dumps([entry()])[:-2], "Input data was truncated"),
        (in_file(entry())[:60], "Input data was truncated"),
        ("5", "must be a list, not a whole number"),
        ("null", "must be a list, not empty"),
        ("{}", "Data: is missing"),
        ('{"Data":[]}', "Data: must be a mapping, not a list"),
    ],
)
def test_record_that_is_cut_off_or_of_another_form_is_a_fault(text: str, fault: str) -> None:
    assert read_checkpoint(text) == ({}, fault)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (5, "[1]: must be a mapping, not a whole number"),
        ({}, "[1].podUID: is missing"),
        ({"podUID": "b"}, "[1].resourceName: is missing"),
        (entry("b", "GPU-2"), "[1].deviceIDs: must be a mapping or a list, not a string"),
        (entry("b", {"0": "GPU-2"}), "[1].deviceIDs[...]: must be a list, not a string"),
    ],
)
def test_wrong_entry_is_named_and_leaves_the_others(wrong: Any, fault: str) -> None:
    found, said = read_checkpoint(json.dumps([entry(), wrong, entry("c")]))
    assert (list(found), said) == (["a", "c"], fault)


def test_entries_beyond_the_limit_are_left_out() -> None:
    found, fault = read_checkpoint(json.dumps([entry(f"{number:05}") for number in range(ENTRIES_MAX + 1)]))
    assert (len(found), fault) == (ENTRIES_MAX, f"has {ENTRIES_MAX + 1} entries, of which {ENTRIES_MAX} count")


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(("podUID", "PodUID", "resourceName", "ResourceName", "deviceIDs", "DeviceIDs"))
LISTS = st.lists(st.dictionaries(KEYS, ANYTHING), max_size=4)
FILES = LISTS.map(lambda entries: {"Data": {"PodDeviceEntries": entries}})


@given(st.text() | (ANYTHING | LISTS | FILES).map(json.dumps))
def test_reading_never_raises_and_gives_sorted_devices(text: str) -> None:
    found, _ = read_checkpoint(text)
    assert list(found) == sorted(found)
    assert all(list(held) == sorted(set(held)) for held in found.values())
