from aischeduler.model.times import time_text, unix_seconds


def test_time_is_written_in_utc_with_the_precision_that_the_field_has() -> None:
    assert time_text(1_767_323_045.25) == "2026-01-02T03:04:05Z"
    assert time_text(1_767_323_045.25, "microseconds") == "2026-01-02T03:04:05.250000Z"


def test_text_of_a_time_is_read_back() -> None:
    assert unix_seconds(time_text(1_000.25, "microseconds")) == 1_000.25
