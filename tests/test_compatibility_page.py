"""The page on compatibility names the features that the differential test compares."""

import re
from pathlib import Path

from tests.e2e.peer_features import EVERY

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "compatibility.md").read_text()


def test_page_names_every_feature_that_is_compared_and_no_other() -> None:
    (table,) = re.findall(r"^\| Compared \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    named = re.findall(r"`(\w+)`", table)
    assert sorted(named) == sorted(EVERY)
