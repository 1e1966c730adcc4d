"""What a BatchProcess may say, and how a refusal names the field."""

import copy
from typing import Any

import pytest

from aischeduler.operator.batch_process import read_batch_process
from aischeduler.operator.objects import pod_name
from aischeduler.operator.owner import Json, Settings, SpecError, dns_label
from tests.operator.documents import batch_process, brainpp_example, role

DEFAULT_IMAGE = Settings(default_image="base:1")


def read(document: Json, settings: Settings = DEFAULT_IMAGE) -> Any:
    named = copy.deepcopy(document)
    named["metadata"]["uid"] = "u1"
    return read_batch_process(named, settings)


def test_example_of_brainpp_is_accepted_with_a_default_image() -> None:
    found = read(brainpp_example())
    assert (found.replicas, found.min_available, found.timeout_seconds, found.backoff_limit) == (4, 2, 10, 6)
    assert [(one.name, one.replicas, one.min_available) for one in found.roles] == [
        ("process-0", 2, 1),
        ("process-1", 2, 1),
    ]
    assert [one.first_rank for one in found.roles] == [0, 2]
    assert found.roles[0].container == {
        "image": "base:1",
        "command": ["bash", "-c", "tail -f /etc/hosts"],
        "resources": {"limits": {"cpu": "2", "memory": "2048Mi"}},
    }


def test_missing_image_without_a_default_is_refused_by_its_field() -> None:
    with pytest.raises(SpecError, match=r"^spec\.simpleProcesses\[0\]\.image is missing"):
        read(brainpp_example(), Settings())


@pytest.mark.parametrize(
    ("said", "meant"),
    [(2048, "2048Mi"), ("2048", "2048Mi"), (0.5, "0.5Mi"), ("2Gi", "2Gi"), ("1e9", "1e9"), ("100M", "100M")],
)
def test_memory_without_a_unit_is_in_mebibytes(said: Any, meant: str) -> None:
    found = read(batch_process(role(1, None, resources={"requests": {"memory": said, "cpu": 2, "example.com/x": 3}})))
    assert found.roles[0].container["resources"] == {
        "requests": {"memory": meant, "cpu": "2", "example.com/x": "3"},
    }


def test_minimum_is_all_pods_where_none_is_said() -> None:
    assert read(batch_process(role(3, None), role(2, 1, name="b"))).min_available == 5


def test_minimum_of_the_whole_is_at_least_the_sum_of_the_roles() -> None:
    assert read(batch_process(role(3, 2), role(2, 2, name="b"), minimum=1)).min_available == 4


WRONG: list[tuple[Json, str]] = [
    ({"podGroup": {"replicas": 5}}, r"spec\.podGroup\.replicas is 5, but the replicas of .* are 4 in all"),
    ({"podGroup": {"minAvailable": 5}}, r"spec\.podGroup\.minAvailable is 5, more than the 4 replicas"),
    ({"podGroup": {"minAvailable": 0}}, r"spec\.podGroup\.minAvailable must be a whole number from 1 to 5000"),
    ({"podGroup": {"minAvailable": -1}}, r"spec\.podGroup\.minAvailable must be"),
    ({"podGroup": {"minAvailable": True}}, r"spec\.podGroup\.minAvailable must be"),
    ({"podGroup": {"timeoutSeconds": "10s"}}, r"spec\.podGroup\.timeoutSeconds must be"),
    ({"podGroup": "all"}, r"spec\.podGroup must be an object"),
    ({"backoffLimit": -1}, r"spec\.backoffLimit must be"),
    ({"simpleProcesses": []}, r"spec\.simpleProcesses must be a list of 1 to 64"),
    ({"simpleProcesses": {"a": 1}}, r"spec\.simpleProcesses must be a list"),
    ({"simpleProcesses": ["a"]}, r"spec\.simpleProcesses\[0\] must be an object"),
    ({"simpleProcesses": [role(2, 3)]}, r"spec\.simpleProcesses\[0\]\.minAvailable is 3, more than its 2 replicas"),
    ({"simpleProcesses": [role(2, 0)]}, r"spec\.simpleProcesses\[0\]\.minAvailable must be"),
    ({"simpleProcesses": [role(0, None)]}, r"spec\.simpleProcesses\[0\]\.replicas must be"),
    ({"simpleProcesses": [role(3_000, None), role(3_000, None, name="b")]}, r"is 6000, more than 5000"),
    ({"simpleProcesses": [role(1, None, name="A_b")]}, r"spec\.simpleProcesses\[0\]\.name must be a DNS label"),
    (
        {"simpleProcesses": [role(1, None, name="process-1"), role(1, None)]},
        r"spec\.simpleProcesses\[1\]\.name is process-1, as the name of a process before it",
    ),
    ({"simpleProcesses": [role(1, None, command="bash")]}, r"spec\.simpleProcesses\[0\]\.command must be a list"),
    ({"simpleProcesses": [role(1, None, env=["A"])]}, r"\[0\]\.env\[0\] must be a variable with a name"),
    (
        {"simpleProcesses": [role(1, None, resources={"limits": {"cpu": "two"}})]},
        r"spec\.simpleProcesses\[0\]\.resources\.limits\.cpu: .*is not a quantity",
    ),
    (
        {"simpleProcesses": [role(1, None, resources={"limits": {"cpu": "-1"}})]},
        r"spec\.simpleProcesses\[0\]\.resources\.limits\.cpu is '-1', below zero",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_field_that_cannot_be_carried_out_is_named(changes: Json, sentence: str) -> None:
    document = batch_process(role(2, 1), role(2, 1, name="b"))
    document["spec"] |= changes
    with pytest.raises(SpecError, match=sentence):
        read(document)


def test_pods_get_our_annotations_the_pool_of_the_label_and_no_other() -> None:
    annotations = {"resource.aibee.cn/gang-span": "true", "resource.aibee.cn/record": "{}", "example.com/x": "y"}
    found = read(
        batch_process(role(1, None), annotations=annotations, labels={"resource.aibee.cn/pool": "gpu"}, timeout=30)
    )
    assert found.annotations == {
        "resource.aibee.cn/gang-span": "true",
        "resource.aibee.cn/pool": "gpu",
        "resource.aibee.cn/gang-timeout-seconds": "30",
    }


def test_annotation_of_the_pool_goes_before_the_label() -> None:
    key = "resource.aibee.cn/pool"
    found = read(batch_process(role(1, None), annotations={key: "a"}, labels={key: "b"}))
    assert found.annotations == {key: "a"}


@pytest.mark.parametrize("name", ["a", "train-7", "7-days", "a.b.c", "x" * 63, "x" * 253])
def test_every_name_of_an_object_gives_dns_labels_of_its_own(name: str) -> None:
    names = [dns_label(name), pod_name(name, "worker", 4_999), dns_label(f"{name}.x"), dns_label(f"{name}-x")]
    assert len(set(names)) == 4
    for found in names:
        assert len(found) <= 63
        assert found[0].isalpha()
        assert found == dns_label(found)
