"""Amounts as texts."""

import pytest

from aischeduler.analysis.quantities import quantity, readable
from aischeduler.model.quantity import parse_milli, parse_units


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 0, "0"),
        ("memory", 5 * 2**30, "5Gi"),
        ("memory", 2**30 + 1024, "1048577Ki"),
        ("memory", 1000, "1000"),
        ("nvidia.com/gpu", 2048, "2048"),
    ],
)
def test_quantity_is_read_as_the_same_amount(resource: str, amount: int, text: str) -> None:
    assert quantity(resource, amount) == text
    assert (parse_milli(text) if resource == "cpu" else parse_units(text)) == amount


def test_long_text_is_rounded_for_people() -> None:
    assert readable("memory", 12345678 * 1024) == "11.8Gi"
    assert readable("memory", 10 * 2**30) == "10Gi"
    assert readable("nvidia.com/gpu", 123_456_789_012) == "123456789012"
