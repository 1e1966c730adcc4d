import pytest

from aischeduler.model.user_text import KNOWN_MAX, nearest

POOLS = ("cpu", "default", "gpu", "gpu-a100")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("cpu ", "cpu"), ("CPU", "cpu"), ("defualt", "default"), ("gpu-a10", "gpu-a100"), ("research", ""), ("", "")],
)
def test_misspelt_name_is_recognised_and_another_is_not(name: str, meant: str) -> None:
    assert nearest(name, POOLS) == meant


def test_pool_that_was_deleted_is_not_taken_for_its_neighbour() -> None:
    assert nearest("cpu", ("default", "gpu", "masters")) == ""


def test_name_of_250_kilobytes_is_compared_with_nothing() -> None:
    assert nearest("cpu" + " " * 250_000, POOLS) == ""


def test_no_more_names_are_compared_than_the_limit() -> None:
    many = [f"pool-{number:04}" for number in range(KNOWN_MAX + 1)]
    assert nearest(many[KNOWN_MAX - 1], many) == many[KNOWN_MAX - 1]
    assert nearest("wanted", [*many[:KNOWN_MAX], "wanted"]) == ""
