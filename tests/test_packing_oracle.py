"""The oracle of room, against cases that a person can count."""

import pytest

from tests.packing_oracle import count_that_fit, fits, less


def test_pods_that_fit_only_in_another_order_than_the_largest_first_fit() -> None:
    assert fits([(6,), (6,)], [(3,), (3,), (2,), (2,), (2,)])
    assert fits([(7,), (8,)], [(5,), (4,), (4,), (2,)])


def test_total_room_is_not_enough_where_it_is_in_pieces() -> None:
    assert not fits([(3,), (3,)], [(2,), (2,), (2,)])
    assert not fits([(4, 0), (0, 4)], [(1, 1)])


def test_every_resource_counts() -> None:
    assert fits([(4, 1), (1, 4)], [(3, 1), (1, 3)])
    assert not fits([(4, 1), (1, 4)], [(3, 1), (2, 3)])


def test_nothing_fits_everywhere_and_no_pod_fits_nowhere() -> None:
    assert fits([], [])
    assert not fits([], [(0,)])


def test_equal_pods_fit_as_often_as_the_scarcest_resource_allows() -> None:
    assert count_that_fit([(8, 2), (3, 9), (-1, 4)], (1, 1)) == 5
    assert count_that_fit([(8, 2), (3, 0)], (2, 0)) == 5
    assert less((4, 1), (1, 2)) == (3, -1)


def test_pods_that_ask_for_nothing_are_not_counted() -> None:
    with pytest.raises(ValueError, match="that ask for nothing fits"):
        count_that_fit([(1,)], (0,))
