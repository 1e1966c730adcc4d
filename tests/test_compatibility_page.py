"""The page on compatibility names the features that the differential test compares, and those that it does not."""

import re
from pathlib import Path

from tests.real.peer_features import COMPARED, Feature

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "compatibility.md").read_text()
NOT_YET = "not compared yet"


def named(text: str) -> set[str]:
    return {str(one) for one in Feature} & set(re.findall(r"`(\w+)`", text))


def test_page_names_every_feature_that_is_compared() -> None:
    table = "".join(line for line in PAGE[: PAGE.index("## Run it")].splitlines(keepends=True) if line.startswith("|"))
    assert named(table) == COMPARED


def test_page_names_every_feature_that_is_not_compared_yet() -> None:
    after = PAGE.partition(NOT_YET)[2].partition("\n\n")[0]
    assert named(after) == set(Feature) - COMPARED
