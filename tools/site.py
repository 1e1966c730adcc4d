"""Hooks of mkdocs: a link to a file of the repository outside docs leads to a copy of the file in the site.

Invariants:
- The links in docs stay as they are: they also work where somebody reads the repository.
- The copies are files/PATH.txt: a browser shows them.
- A link to a folder becomes text; a link to nothing stays, and the strict build refuses it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
COPIES: Final = "files"
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
ROW: Final = re.compile(r"^\|.*$", re.MULTILINE)
CODE: Final = re.compile(r"`[^`]*`")
"""Code in a row of a table: mkdocs shows the backslash of an escaped bar, which a reader of the repository needs."""

_linked: set[Path] = set()
"""The files that pages of this build link to."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page with links to copies of files outside docs, and with tables as mkdocs reads them."""
    text = ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)
    return LINK.sub(lambda link: rewritten(link, DOCS / page.file.src_uri), text)


def rewritten(link: re.Match[str], page: Path) -> str:
    """Return what replaces a link of a page."""
    target = (page.parent / link[2]).resolve()
    if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
        return link[0]
    if target.is_dir():
        return link[1]
    _linked.add(target)
    copy = DOCS / COPIES / f"{target.relative_to(ROOT)}.txt"
    return f'<a href="{os.path.relpath(copy, page.parent)}">{link[1]}</a>'


def on_post_build(*, config: Mapping[str, Any], **_: Any) -> None:
    """Copy the files that pages link to."""
    for source in _linked:
        copy = Path(config["site_dir"]) / COPIES / f"{source.relative_to(ROOT)}.txt"
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
