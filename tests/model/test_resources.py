"""Rows R3-R12 of kube-scheduler's request rules."""

import pytest

from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import ContainerRequest, parse_resource_list, pod_request


def cpu(milli: int, *, sidecar: bool = False) -> ContainerRequest:
    return ContainerRequest({"cpu": milli}, sidecar)


def needed(containers: list[ContainerRequest], inits: list[ContainerRequest]) -> int:
    return pod_request(containers, inits, {}, {}).amounts["cpu"]


def test_plain_init_containers_count_by_their_largest() -> None:
    assert needed([cpu(1)], [cpu(3), cpu(2)]) == 3


def test_containers_count_by_their_sum() -> None:
    assert needed([cpu(1), cpu(2)], [cpu(2)]) == 3


def test_a_sidecar_runs_beside_the_inits_after_it_and_all_containers() -> None:
    assert needed([cpu(2)], [cpu(1, sidecar=True), cpu(5)]) == 6


def test_a_sidecar_does_not_run_beside_the_inits_before_it() -> None:
    assert needed([cpu(2)], [cpu(5), cpu(1, sidecar=True)]) == 5


def test_pod_level_amounts_replace_the_sum_and_overhead_comes_on_top() -> None:
    request = pod_request([ContainerRequest({"cpu": 1000, "memory": 7}), cpu(1000)], [], {"cpu": 3000}, {"cpu": 500})
    assert request.amounts == {"cpu": 3500, "memory": 7}


def test_zero_amounts_are_left_out() -> None:
    assert pod_request([cpu(0)], [], {}, {}).amounts == {}


def test_scores_assume_requests_of_a_container_without_requests() -> None:
    request = pod_request([ContainerRequest({}), ContainerRequest({"cpu": 250, "memory": 1000})], [], {}, {})
    assert (request.score_cpu_milli, request.score_memory_bytes) == (350, 200 * 2**20 + 1000)


def test_a_malformed_amount_names_field_and_resource() -> None:
    with pytest.raises(QuantityError, match=r"requests\.memory: '1\.5\.3' is not a quantity"):
        parse_resource_list("requests", {"cpu": "1", "memory": "1.5.3"})


def test_an_amount_below_zero_is_refused() -> None:
    with pytest.raises(QuantityError, match="below zero"):
        parse_resource_list("requests", {"cpu": "-1"})
