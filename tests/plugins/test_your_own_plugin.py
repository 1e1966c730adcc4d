"""The example plugin of the documentation does what the documentation says."""

import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds, evictions, reports

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
SOON = {"example.com/maintenance": "soon"}


def documented() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(compile(block, DOCUMENT.name, "exec"), names)
    return names


def documented_profile() -> Profile:
    profile = documented()["profile"]
    assert isinstance(profile, Profile)
    return profile


def one_per_node() -> Profile:
    profile, rule = default_profile(), documented()["OnePerNode"]()
    plugins = profile.plugins
    return replace(profile, plugins=replace(plugins, cross_row=(*plugins.cross_row, rule), reads=rule.reads))


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


TIER = {"tier": "x"}


def test_rule_that_counts_other_pods_keeps_them_apart_and_names_the_reason() -> None:
    session = Session(a_node("a"), a_node("b"), profile=one_per_node())
    session.see(*(a_pod(name, cpu="1", created=at, labels=TIER) for at, name in enumerate(("p", "q", "r"))))
    session.see(a_pod("other", cpu="1", created=3))
    said = session.decide()
    assert binds(said).keys() == {"p", "q", "other"}
    assert {binds(said)["p"], binds(said)["q"]} == {"a", "b"}
    assert reports(said)["r"].startswith("0/2 nodes are available: 2 node(s) had a pod of the tier. ")


def test_pod_is_woken_when_what_is_counted_for_it_leaves() -> None:
    session = Session(a_node("a"), profile=one_per_node())
    session.see(a_pod("p", cpu="1", labels=TIER), a_pod("r", cpu="1", created=1, labels=TIER))
    assert binds(session.decide()) == {"p": "a"}
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide(seconds=10)) == {"r": "a"}


def test_victim_is_not_counted_in_the_trial_of_preemption() -> None:
    session = Session(a_node("a"), profile=one_per_node())
    session.see(a_pod("low", cpu="1", labels=TIER, node="a"), a_pod("other", cpu="1", node="a"))
    session.see(a_pod("high", cpu="1", priority=10, labels=TIER))
    assert evictions(session.decide()) == {"low": "Preempted"}
