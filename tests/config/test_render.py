"""The configuration as it is printed."""

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.config.load import as_yaml, parse_config
from aischeduler.config.schema import Config, Http, Logging, LogLevel


def test_defaults_are_printed_without_remarks() -> None:
    text = as_yaml(Config())
    assert "#" not in text
    assert "gpuResources: [nvidia.com/gpu]\n" in text
    assert "logging:\n  format: json\n  level: info\n" in text


def test_value_that_is_not_the_default_has_the_default_beside_it() -> None:
    text = as_yaml(
        Config(bind_in_flight=3, gpu_resources=("a.com/x", "b.com/y"), logging=Logging(level=LogLevel.DEBUG))
    )
    assert "bindInFlight: 3  # default: 128\n" in text
    assert "gpuResources: [a.com/x, b.com/y]  # default: [nvidia.com/gpu]\n" in text
    assert "  level: debug  # default: info\n" in text
    assert text.count("#") == 3


@given(
    st.from_regex(r"\A[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?\Z"),
    st.sampled_from(["none", ":0", "[::1]:80", "127.0.0.1:9"]),
    st.lists(st.from_regex(r"\A[a-z]{1,3}/[A-Za-z0-9]{1,3}\Z"), min_size=1, max_size=16),
)
def test_what_is_printed_reads_back_as_the_same(name: str, address: str, gpus: list[str]) -> None:
    config = Config(scheduler_name=name, http=Http(address=address), gpu_resources=tuple(gpus))
    assert parse_config("printed", as_yaml(config).encode()) == config
