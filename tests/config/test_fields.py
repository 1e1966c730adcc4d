"""What a running scheduler takes over of a changed configuration."""

from aischeduler.config.schema import (
    Config,
    EventsConfig,
    EvictionWay,
    Http,
    Logging,
    LogLevel,
    differing,
    fields,
    taken_over,
    values,
)


def test_parts_come_before_what_is_in_them_and_hold_no_value() -> None:
    paths = [field.path for field in fields()]
    assert paths.index("logging") + 1 == paths.index("logging.format")
    assert [field.path for field in fields() if field.section] == [
        "elastic", "defaultPool", "backoff", "events", "leaderElection", "logging", "http",
    ]  # fmt: skip
    assert "logging" not in [field.path for field in values()]


def test_only_marked_fields_are_taken_over() -> None:
    read = Config(
        bind_in_flight=3, eviction=EvictionWay.EVICT, events=EventsConfig(burst=9),
        logging=Logging(level=LogLevel.DEBUG), http=Http(address=":1"),
    )  # fmt: skip
    assert taken_over(Config(), read) == Config(
        bind_in_flight=3, events=EventsConfig(burst=9), logging=Logging(level=LogLevel.DEBUG)
    )


def test_taking_over_keeps_what_runs_where_it_differs_from_the_default() -> None:
    running = Config(scheduler_name="night", http=Http(address=":1"))
    assert taken_over(running, Config(bind_in_flight=7)) == Config(
        scheduler_name="night", http=Http(address=":1"), bind_in_flight=7
    )


def test_differences_are_named_by_their_paths() -> None:
    read = Config(scheduler_name="night", logging=Logging(value_length_max=300))
    assert [field.path for field in differing(Config(), read)] == ["schedulerName", "logging.valueLengthMax"]
