"""The table of units: who belongs to which, and which are to be formed again."""

from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.units import Units
from tests.build import a_pod


def a_record(name: str) -> PodRecord:
    return PodRecord(a_pod(name), 1, PodState.NEW)


def test_pods_of_one_name_are_members_of_one_unit_with_a_number_of_its_own() -> None:
    units, first, second, other = Units(), a_record("a"), a_record("b"), a_record("c")
    units.join(first, "x")
    units.join(second, "x")
    units.join(other, "y")
    assert first.unit is second.unit is units.by_name["x"]
    assert [unit.number for unit in units.by_name.values()] == [1, 2]
    assert list(units.by_name["x"].members) == ["uid-a", "uid-b"]


def test_pod_without_a_name_has_no_unit() -> None:
    units, record = Units(), a_record("a")
    units.join(record, "")
    units.touch(record)
    units.leave(record)
    assert record.unit is None
    assert not units.by_name
    assert not units.stale


def test_unit_is_stale_after_each_change_and_gone_with_its_last_pod() -> None:
    units, first, second = Units(), a_record("a"), a_record("b")
    units.join(first, "x")
    units.join(second, "x")
    units.stale.clear()
    units.touch(first)
    assert list(units.stale) == ["x"]
    units.stale.clear()
    units.leave(first)
    assert list(units.stale) == ["x"]
    units.leave(second)
    assert not units.by_name
    assert not units.stale


def test_number_of_a_unit_is_not_used_again() -> None:
    units, first, second = Units(), a_record("a"), a_record("b")
    units.join(first, "x")
    units.leave(first)
    units.join(second, "x")
    assert units.by_name["x"].number == 2
