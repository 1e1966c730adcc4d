"""Each page in Chinese begins with the page that it translates, and the date of the text that it follows."""

import datetime as dt
import re
from pathlib import Path

import pytest

from tests.test_documents import DOCUMENTS, ROOT

CHINESE_PAGES = [page for page in DOCUMENTS if page.name.endswith(".zh.md")]
STAMP = re.compile(r"^译自 (\S+\.md)\uff08(\S+)\uff09。$", re.MULTILINE)
"""Translated from FILE (DATE)."""

each_page = pytest.mark.parametrize("page", CHINESE_PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_page_begins_with_its_original_and_a_date(page: Path) -> None:
    stamp = STAMP.search(page.read_text().partition("\n## ")[0])
    assert stamp is not None, "no line before the first section names the original and its date"
    original = ROOT / stamp[1]
    assert original == page.with_name(page.name.replace(".zh.md", ".md"))
    assert original.is_file()
    dt.date.fromisoformat(stamp[2])


@each_page
def test_chinese_sentences_have_chinese_punctuation(page: Path) -> None:
    assert re.findall(r"[\u4e00-\u9fff] ?[,;:?!(].*", page.read_text()) == []


@each_page
def test_no_line_breaks_between_two_chinese_characters(page: Path) -> None:
    """A line break is shown as a space."""
    assert re.findall(r".*[\u4e00-\u9fff]\n[\u4e00-\u9fff].*", page.read_text()) == []
