"""The independent calculation of requests, on the cases that Kubernetes documents."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests.independent_requests import amount, amounts, requests
from tests.quantities import REFUSED

NO_NUMBER = sorted({*REFUSED} - {"\uff11", " 1", "1 Gi", "1\n"})
"""The refused texts without those that a server never returns: other digits, and blanks around a number."""


def container(cpu: str = "", memory: str = "", *, always: bool = False) -> dict[str, Any]:
    asked = {name: quantity for name, quantity in (("cpu", cpu), ("memory", memory)) if quantity}
    return {"resources": {"requests": asked}} | ({"restartPolicy": "Always"} if always else {})


def spec(*containers: Mapping[str, Any], init: tuple[Mapping[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    return {"containers": list(containers), "initContainers": list(init), **more}


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("1", Fraction(1)),
        ("100m", Fraction(1, 10)),
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("+1", Fraction(1)),
        ("1e3", Fraction(1000)),
        ("12E2", Fraction(1200)),
        ("1E", Fraction(10**18)),
        ("1Ei", Fraction(2**60)),
        ("1.5Gi", Fraction(1536 * 2**20)),
        ("128974848", Fraction(128974848)),
        ("129e6", Fraction(129 * 10**6)),
        ("129M", Fraction(129 * 10**6)),
        ("128974848000m", Fraction(128974848)),
        ("123Mi", Fraction(128974848)),
        ("1500n", Fraction(3, 2 * 10**6)),
        ("0.5u", Fraction(1, 2 * 10**6)),
    ],
)
def test_quantity_is_an_exact_number(quantity: str, number: Fraction) -> None:
    assert amount(quantity) == number


@pytest.mark.parametrize("text", NO_NUMBER)
def test_text_that_is_not_a_quantity_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no quantity|Invalid literal"):
        amount(text)


def test_cpu_is_counted_in_thousandths_and_the_rest_in_ones_rounded_up() -> None:
    found = amounts({"cpu": "1.0001", "memory": "1500m", "nvidia.com/gpu": "2", "ephemeral-storage": "1Ki"})
    assert found == {"cpu": 1001, "memory": 2, "nvidia.com/gpu": 2, "ephemeral-storage": 1024}


@pytest.mark.parametrize(
    ("asked", "cpu_milli"),
    [
        (spec(container("1"), container("500m")), 1500),
        (spec(container("1"), init=(container("3"),)), 3000),
        (spec(container("1"), init=(container("3"), container("2"))), 3000),
        (spec(container("2"), init=(container("1"),)), 2000),
        (spec(container("2"), init=(container("1", always=True), container("5"))), 6000),
        (spec(container("2"), init=(container("5"), container("1", always=True))), 5000),
        (spec(container("2"), init=(container("1", always=True),)), 3000),
        (spec(container("1"), container("1"), resources={"requests": {"cpu": "3"}}, overhead={"cpu": "500m"}), 3500),
        (spec(container("1"), container("1"), resources={"requests": {"cpu": "1"}}), 1000),
        (spec(container("1"), resources={"requests": {"memory": "1"}}), 1000),
        (spec(container("1"), overhead={"cpu": "250m"}), 1250),
        (spec(container("1"), init=(container("3"),), overhead={"cpu": "250m"}), 3250),
        (spec(), 0),
    ],
    ids=str,
)
def test_pod_requests_the_sum_of_containers_that_run_at_the_same_time(asked: dict[str, Any], cpu_milli: int) -> None:
    assert requests(asked)["cpu"] == cpu_milli
    assert requests(asked)["pods"] == 1


def test_resources_are_compared_one_by_one() -> None:
    asked = requests(spec(container("2", "1Gi"), init=(container("1", "3Gi"),)))
    assert (asked["cpu"], asked["memory"]) == (2000, 3 * 2**30)


def test_null_field_requests_nothing() -> None:
    nothing = {"containers": [{"resources": {"requests": None}}], "initContainers": None, "overhead": None}
    assert requests(nothing) == {"pods": 1}
