"""Each page in Chinese has the headings, commands, tables and links of its page in English."""

import re
from pathlib import Path

import pytest

from tests.test_documents import DOCUMENTS, ROOT, anchors

CHINESE_PAGES = [page for page in DOCUMENTS if page.name.endswith(".zh.md")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) .*$", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
LINK = re.compile(r"\]\(([^)]+)\)")
CODE = re.compile(r"`([^`]+)`")
WORDS_IN_BLOCKS = {"sh": re.compile(r" +# .*$", re.MULTILINE), "mermaid": re.compile(r'"[^"]*"')}
NO_WORDS = re.compile(r"(?!)")

each_page = pytest.mark.parametrize("page", CHINESE_PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def english(page: Path) -> Path:
    """Return the English page of a Chinese one."""
    return page.with_name(page.name.replace(".zh.md", ".md"))


def prose(page: Path) -> str:
    """Return a page without its code blocks: a line of a block may begin with #."""
    return BLOCK.sub("", page.read_text())


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and content of each block, without comments and labels, which are translated."""
    return [
        (language, WORDS_IN_BLOCKS.get(language, NO_WORDS).sub("", content))
        for language, content in BLOCK.findall(page.read_text())
    ]


def code(text: str) -> list[str]:
    """Return the code spans of a text, sorted: a translated sentence may name them in another order."""
    return sorted(" ".join(span.split()) for span in CODE.findall(text))


def tables(page: Path) -> list[list[list[list[str]]]]:
    """Return the code spans of each cell of each row of each table."""
    return [
        [[code(cell) for cell in row.strip("|").split("|")] for row in table.splitlines()]
        for table in TABLE.findall(prose(page))
    ]


def translated(link: str, page: Path) -> str:
    """Return where a link of an English page leads in Chinese: to the Chinese page and heading, if there are any."""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    chinese = target.with_suffix(".zh.md")
    if not chinese.exists():
        return link
    if anchor:
        anchor = "#" + anchors(prose(chinese))[anchors(prose(target)).index(anchor)]
    return path.removesuffix(".md") + (".zh.md" if path else "") + anchor


@each_page
def test_headings_are_of_the_same_levels(page: Path) -> None:
    assert HEADING.findall(prose(page)) == HEADING.findall(prose(english(page)))


@each_page
def test_blocks_have_the_same_commands_and_outputs(page: Path) -> None:
    assert blocks(page) != []
    assert blocks(page) == blocks(english(page))


@each_page
def test_tables_have_the_same_rows_and_columns_and_name_the_same_code(page: Path) -> None:
    assert tables(page) == tables(english(page))


@each_page
def test_sections_name_the_same_code(page: Path) -> None:
    chinese, original = (HEADING.split(prose(one)) for one in (page, english(page)))
    assert [code(section) for section in chinese] == [code(section) for section in original]


@each_page
def test_first_link_of_a_page_leads_to_the_other_language(page: Path) -> None:
    assert LINK.findall(prose(page))[0] == english(page).name
    assert LINK.findall(prose(english(page)))[0] == page.name


@each_page
def test_links_lead_to_the_same_places_and_to_chinese_pages_where_they_exist(page: Path) -> None:
    _, *links = LINK.findall(prose(english(page)))
    assert LINK.findall(prose(page))[1:] == [translated(link, english(page)) for link in links]


@each_page
def test_chinese_sentences_have_chinese_punctuation(page: Path) -> None:
    assert re.findall(r"[\u4e00-\u9fff] ?[,;:?!(].*", page.read_text()) == []


@each_page
def test_no_line_breaks_between_two_chinese_characters(page: Path) -> None:
    """A line break is shown as a space."""
    assert re.findall(r".*[\u4e00-\u9fff]\n[\u4e00-\u9fff].*", page.read_text()) == []
