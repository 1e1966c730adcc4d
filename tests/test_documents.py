"""The documents lead where they say: every link to a file, and to a heading in it, has a target."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(text: str) -> list[str]:
    """Return the anchors that headings get, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(document: Path) -> None:
    text = document.read_text()
    broken = []
    for path, anchor in LINK.findall(text):
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        document = ahead.pop()
        reached.add(document)
        targets = {(document.parent / path).resolve() for path, _ in LINK.findall(document.read_text()) if path}
        ahead += [target for target in targets if target.suffix == ".md" and target not in reached]
    assert sorted(set(DOCUMENTS) - reached) == []
