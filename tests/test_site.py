"""The site of mkdocs.yml has every page of docs, and takes nothing from another host.

mkdocs itself is not installed here: `make docs` builds the site, and fails where a link leads nowhere.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tools import site

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml; a Python object is its name."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, name, _node: name)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def pages_of(entry: Any) -> Iterator[Path]:
    match entry:
        case str():
            yield DOCS / entry
        case dict():
            yield from (page for inner in entry.values() for page in pages_of(inner))
        case list():
            yield from (page for inner in entry for page in pages_of(inner))


NAVIGATION = list(pages_of(SITE["nav"]))


def test_navigation_names_every_page_once_and_no_other() -> None:
    notes = set((DOCS / "decisions").glob("0*.md"))
    assert sorted(NAVIGATION) == sorted(set(DOCS.rglob("*.md")) - notes)


def test_site_takes_no_font_and_no_script_from_another_host() -> None:
    assert SITE["theme"]["font"] is False
    assert re.findall(r"https?://", (ROOT / "mkdocs.yml").read_text()) == []
    assert [page.name for page in DOCS.rglob("*.md") if "```mermaid" in page.read_text()] == []


def rewritten(text: str) -> str:
    return site.LINK.sub(lambda link: site.rewritten(link, DOCS / "reference" / "cli.md"), text)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[Pools](../../examples/pools.yaml)", '<a href="../files/examples/pools.yaml.txt">Pools</a>'),
        ("[folder](../../examples)", "folder"),
        ("[page](../cli.md)", "[page](../cli.md)"),
        ("[nothing](../../nothing.md)", "[nothing](../../nothing.md)"),
    ],
)
def test_link_to_a_file_outside_docs_leads_to_its_copy(link: str, shown: str) -> None:
    assert rewritten(link) == shown


def test_code_in_a_table_shows_a_bar_without_its_backslash() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="cli.md"))
    assert site.on_page_markdown("| `a\\|b` | c\\|d |\n`e\\|f`", page=page) == "| `a|b` | c\\|d |\n`e\\|f`"


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").iterdir()), ids=lambda path: path.name)
def test_picture_is_small_and_takes_nothing_from_another_host(picture: Path) -> None:
    text = picture.read_text()
    assert len(text) < 200_000
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
