from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.lines import LineSplitter


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.integers(1, 7))
def test_lines_come_out_whole_however_they_are_cut(lines: list[bytes], size: int) -> None:
    text = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    found = [line for i in range(0, len(text), size) for line in splitter.feed(text[i : i + size])]
    assert found == lines
    assert not splitter.unfinished


def test_a_line_that_has_begun_is_unfinished() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == [b"one"]
    assert splitter.unfinished
    assert splitter.feed(b"o\n") == [b"two"]
