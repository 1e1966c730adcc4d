import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.quantity import (
    QuantityError,
    canonical,
    parse_milli,
    parse_nano,
    parse_units,
    quantity_text,
    readable,
)
from aischeduler.model.user_text import quoted
from tests.quantities import CANONICAL, REFUSED


@pytest.mark.parametrize(
    ("text", "milli", "units"),
    [
        ("1.5", 1500, 2),
        ("100m", 100, 1),
        ("1e3", 1_000_000, 1000),
        ("0.5Gi", 512 * 2**20 * 1000, 512 * 2**20),
        ("1E", 10**21, 10**18),
        ("1n", 1, 1),
        ("0", 0, 0),
        ("-1.5", -1500, -2),
        ("9223372036854775807Ei", 9223372036854775807 * 2**60 * 1000, 9223372036854775807 * 2**60),
    ],
)
def test_amounts_are_exact_and_rounded_up(text: str, milli: int, units: int) -> None:
    assert (parse_milli(text), parse_units(text)) == (milli, units)


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_not_a_quantity_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        parse_nano(text)
    assert quoted(text) in str(refused.value)


def test_an_enormous_exponent_is_refused_before_it_costs_memory() -> None:
    with pytest.raises(QuantityError, match="exponent"):
        parse_nano("1e400")


def test_a_quoted_text_is_escaped_and_cut() -> None:
    assert quoted("a\nb\x1b[31m") == r"'a\nb\x1b[31m'"
    assert len(quoted("x" * 250_000)) < 70


@pytest.mark.parametrize(("text", "stored"), CANONICAL.items())
def test_canonical_form_is_what_the_api_server_stores(text: str, stored: str) -> None:
    assert canonical(text) == stored


@given(st.integers(0, 10**9), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_form_keeps_the_amount(number: int, suffix: str) -> None:
    assert parse_nano(canonical(f"{number}{suffix}")) == parse_nano(f"{number}{suffix}")


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 0, "0"),
        ("memory", 5 * 2**30, "5Gi"),
        ("memory", 2**30 + 1024, "1048577Ki"),
        ("memory", 1000, "1000"),
        ("memory", -5 * 2**30, "-5Gi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 2048, "2048"),
    ],
)
def test_text_of_an_amount_is_read_as_the_same_amount(resource: str, amount: int, text: str) -> None:
    assert quantity_text(resource, amount) == text
    assert (parse_milli(text) if resource == "cpu" else parse_units(text)) == amount


def test_long_text_is_rounded_for_people() -> None:
    assert readable("memory", 12345678 * 1024) == "11.8Gi"
    assert readable("memory", -12345678 * 1024) == "-11.8Gi"
    assert readable("memory", 10 * 2**30) == "10Gi"
    assert readable("nvidia.com/gpu", 123_456_789_012) == "123456789012"
