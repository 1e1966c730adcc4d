"""The documents lead where they say: every link to a file, and to a heading in it, has a target."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_site import SITE, pages_of

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


def test_every_document_can_be_reached_from_the_readme_or_the_navigation_of_the_site() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md", *pages_of(SITE["nav"])]
    while ahead:
        document = ahead.pop()
        reached.add(document)
        targets = {(document.parent / path).resolve() for path, _ in LINK.findall(document.read_text()) if path}
        ahead += [target for target in targets if target.suffix == ".md" and target not in reached]
    assert sorted(set(DOCUMENTS) - reached) == []


HOPS_MAX = 40
NAMED = re.compile(r"`(\w+(?:/\w+)+\.py)` `([\w.]+)`")


def the_way_of_a_pod() -> str:
    page = (ROOT / "docs" / "architecture.md").read_text()
    return page[page.index("## The way of a pod") : page.index("## An attempt that finds no node")]


def functions(module: Path) -> set[str]:
    """Return the functions of a module, and the methods of its classes as Class.method."""
    found = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            defined = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in defined}
    return found


def test_way_of_a_pod_has_at_most_40_hops_that_each_name_a_module_and_a_function() -> None:
    hops = re.findall(r"^(\d+)\. (.*)$", the_way_of_a_pod(), re.MULTILINE)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert 0 < len(hops) <= HOPS_MAX
    assert [text for _, text in hops if not NAMED.match(text)] == []


@pytest.mark.parametrize(("module", "function"), dict.fromkeys(NAMED.findall(the_way_of_a_pod())))
def test_hop_is_a_function_of_its_module(module: str, function: str) -> None:
    path = ROOT / "aischeduler" / module
    assert path.exists()
    assert function in functions(path)
