"""docs/troubleshoot.md explains every reason for which a pod waits, by the words that the user sees."""

import re
from pathlib import Path

import pytest

from aischeduler.engine.volume_claims import UNBOUND
from aischeduler.model import proposal
from aischeduler.policies import preemption, unit_placement

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "troubleshoot.md").read_text()
OF_PLUGINS = re.compile(r'"(node\(s\) (?:[^"{]*(?=\{)|[^"]*))[",{]')
"""A reason of a plugin, up to what the code fills in."""


def reasons_of_plugins() -> set[str]:
    texts = [path.read_text() for path in sorted((ROOT / "aischeduler" / "plugins").glob("*.py"))]
    return {found.rstrip() for text in texts for found in OF_PLUGINS.findall(text)}


def test_reasons_of_plugins_are_found() -> None:
    assert {"node(s) were unschedulable", "node(s) didn't match the GPU type"} <= reasons_of_plugins()


@pytest.mark.parametrize(
    "text",
    [
        *sorted(set(proposal._TEXTS.values())),
        preemption.NO_VICTIMS,
        preemption.NOT_HELPFUL,
        unit_placement.APART,
        UNBOUND,
        *sorted(reasons_of_plugins()),
    ],
)
def test_every_reason_to_wait_is_explained_by_its_text(text: str) -> None:
    assert text in PAGE


@pytest.mark.parametrize("home", ["NotAccepted", "NotBorrowing", "BorrowingLimit"])
def test_every_reason_not_to_borrow_at_all_is_explained_by_its_text(home: str) -> None:
    assert f"`{proposal.NoLender((), proposal.LenderRefusal(home), 'R').message}`" in PAGE
