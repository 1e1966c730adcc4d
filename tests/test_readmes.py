"""The README in two languages: one does not say what the other leaves out."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = (ROOT / "README.md").read_text()
CHINESE = (ROOT / "README.zh.md").read_text()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) ", re.MULTILINE)
LINK = re.compile(r"\]\(([^)]+)\)")
COMMENT = re.compile(r" +# .*$", re.MULTILINE)


def prose(text: str) -> str:
    """Return what stands outside of blocks, where a line that begins with # is a heading."""
    return BLOCK.sub("", text)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return language and content of each block; comments may be in either language."""
    return [(language, COMMENT.sub("", content)) for language, content in BLOCK.findall(text)]


def code(text: str) -> list[str]:
    """Return the words that stand as code in prose, in the order of the alphabet: a sentence may turn them around."""
    return sorted(re.findall(r"`([^`]+)`", prose(text)))


def test_headings_are_of_the_same_ranks() -> None:
    assert HEADING.findall(prose(CHINESE)) == HEADING.findall(prose(ENGLISH))


def test_blocks_have_the_same_commands_and_outputs() -> None:
    assert len(blocks(ENGLISH)) > 4
    assert blocks(CHINESE) == blocks(ENGLISH)


def test_both_lead_to_the_same_places_and_to_each_other() -> None:
    others = {"README.zh.md": "README.md"}
    assert LINK.findall(prose(CHINESE)) == [others.get(link, link) for link in LINK.findall(prose(ENGLISH))]
    assert LINK.findall(ENGLISH)[0] == "README.zh.md"


def test_prose_names_the_same_commands_and_files() -> None:
    assert code(CHINESE) == code(ENGLISH)


def test_chinese_sentences_have_chinese_punctuation() -> None:
    assert re.findall(r"[\u4e00-\u9fff] ?[,;:?!].*", CHINESE) == []
