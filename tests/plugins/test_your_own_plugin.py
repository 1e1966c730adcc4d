"""The example plugin of the documentation does what the documentation says."""

import re
from pathlib import Path

from aischeduler.engine.profile import Profile
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds, reports

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
SOON = {"example.com/maintenance": "soon"}


def documented_profile() -> Profile:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(compile(block, DOCUMENT.name, "exec"), names)
    profile = names["profile"]
    assert isinstance(profile, Profile)
    return profile


def test_gpu_pod_avoids_a_node_that_leaves_soon_and_names_the_reason() -> None:
    session = Session(a_node("leaving", gpu=8, labels=SOON), a_pod("training", gpu=1), profile=documented_profile())
    said = reports(session.decide())
    assert said["training"].startswith("0/1 nodes are available: 1 node(s) were about to leave for maintenance. ")


def test_gpu_pod_is_woken_when_the_node_no_longer_leaves() -> None:
    session = Session(a_node("leaving", gpu=8, labels=SOON), a_pod("training", gpu=1), profile=documented_profile())
    session.decide()
    session.see(a_node("leaving", gpu=8))
    assert binds(session.decide(seconds=10)) == {"training": "leaving"}


def test_other_pod_prefers_the_node_that_stays_and_takes_the_other_when_it_must() -> None:
    session = Session(
        a_node("a-leaving", cpu="8", labels=SOON),
        a_node("b-staying", cpu="2"),
        a_pod("first", cpu="1500m"),
        a_pod("second", cpu="1500m", created=1),
        profile=documented_profile(),
    )
    assert binds(session.decide()) == {"first": "b-staying", "second": "a-leaving"}


def test_without_the_rule_the_empty_node_is_preferred() -> None:
    session = Session(a_node("a-leaving", cpu="8", labels=SOON), a_node("b-staying", cpu="2"), a_pod("first"))
    assert binds(session.decide()) == {"first": "a-leaving"}
