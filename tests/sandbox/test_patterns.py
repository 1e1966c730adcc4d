"""Patterns of Go, which schemas and rules are written in, asked in Python."""

import re

import pytest

from aischeduler.sandbox.patterns import go_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        (r"^a\z", "a\n", False),
        ("b", "abc", True),
        (r"^\d$", "٣", False),
        (r"^\w$", "é", False),
        ("^[$]$", "$", True),
        (r"^\$$", "$", True),
        ("^[[&|~]+$", "[&&||~~", True),
        ("^[]a]+$", "]a", True),
        ("^[^]a]$", "b", True),
        (r"^[\]\[]+$", "][", True),
        ("(?i)^a$", "A", True),
        (r"^\\1$", "\\1", True),
        ("^(?P<x>a)$", "a", True),
    ],
)
def test_pattern_means_what_it_means_in_go(pattern: str, text: str, found: bool) -> None:
    assert (go_pattern(pattern).search(text) is not None) is found


@pytest.mark.parametrize(
    "pattern", ["[", "(", "*", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?P=x)", "[[:alpha:]]", r"\Z"]
)
def test_what_is_no_pattern_in_go_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        go_pattern(pattern)
