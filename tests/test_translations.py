"""Each page in Chinese begins with the page that it translates, and the date of the text that it follows."""

import datetime as dt
import re
from pathlib import Path

import pytest

from tests.test_documents import DOCUMENTS, ROOT

CHINESE_PAGES = [page for page in DOCUMENTS if page.name.endswith(".zh.md")]
TRANSLATED_FROM = "译自"
HEAD_LINES = 6

each_page = pytest.mark.parametrize("page", CHINESE_PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_page_begins_with_its_original_and_a_date(page: Path) -> None:
    stamps = [line for line in page.read_text().splitlines()[:HEAD_LINES] if TRANSLATED_FROM in line]
    assert len(stamps) == 1, "one of the first lines is as 译自 2026-01-31 的 [index.md](index.md)"
    links, dates = re.findall(r"\]\(([^)]+)\)", stamps[0]), re.findall(r"\d{4}-\d{2}-\d{2}", stamps[0])
    assert links == [page.name.replace(".zh.md", ".md")]
    assert (page.parent / links[0]).is_file()
    assert [dt.date.fromisoformat(date) for date in dates] != []


@each_page
def test_chinese_sentences_have_chinese_punctuation(page: Path) -> None:
    assert re.findall(r"[\u4e00-\u9fff] ?[,;:?!(].*", page.read_text()) == []


@each_page
def test_no_line_breaks_between_two_chinese_characters(page: Path) -> None:
    """A line break is shown as a space."""
    assert re.findall(r".*[\u4e00-\u9fff]\n[\u4e00-\u9fff].*", page.read_text()) == []
