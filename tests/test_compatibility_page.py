"""The page on compatibility names the features that the differential test compares."""

import re
from pathlib import Path

from tests.e2e.peer_features import EVERY

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "compatibility.md").read_text()


def test_page_names_every_feature_that_is_compared() -> None:
    table = "".join(line for line in PAGE[: PAGE.index("## Run it")].splitlines(keepends=True) if line.startswith("|"))
    assert EVERY & set(re.findall(r"`(\w+)`", table)) == EVERY
