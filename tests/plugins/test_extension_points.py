"""Every extension point as an author uses it: a tiny plugin for each, installed, and what an exception in it does."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from aischeduler.config.profiles import ProfileConfig, with_names
from aischeduler.engine.internal_errors import PLUGIN_ERROR
from aischeduler.engine.profile import Profile, default_profile, with_profiles
from aischeduler.model.actions import ReportInternalError
from aischeduler.model.events import BindRefusal, BindRefused, gone
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod
from tests.distributions import install
from tests.engine.session import Session, binds, reports

CODE = '''
from collections import Counter

import numpy as np

from aischeduler.framework.plugin import Delayed, Vetoed, Formed

fails = Counter()
"""Method -> how many of its next calls raise."""
bad = set()
"""Methods that raise for pods of the tier bad."""
told = []


def maybe(method, pod=None):
    tier = "" if pod is None else pod.mark("tier") if hasattr(pod, "mark") else pod.labels.get("tier", "")
    if fails[method] > 0 or (method in bad and tier == "bad"):
        fails[method] -= 1
        raise ZeroDivisionError(f"{method} of a plugin")


class Base:
    reads = ("tier",)
    def __init__(self, args):
        self.name = type(self).__name__


class PreEnqueue(Base):
    def holds(self, pod):
        maybe("holds", pod)
        return "closed" if pod.labels.get("tier") == "closed" else ""


class QueueSort(Base):
    def rank(self, pod):
        maybe("rank", pod)
        return int(pod.labels.get("rank", "0"))


class Filter(Base):
    static = False
    def filter(self, spec, at):
        maybe("filter", spec)
        if not spec.mark("tier"):
            return None
        left = np.array(["left" in at.nodes.names[row] for row in at.rows.tolist()], dtype=np.bool_)
        return ~left if spec.mark("tier") == "right" else np.ones(len(at), dtype=np.bool_)
    def reasons(self, spec, at):
        maybe("reasons", spec)
        return Counter({"node(s) were left": len(at)})
    def helps(self, spec, node):
        maybe("helps", spec)
        return True


class PlainFilter(Base):
    def filter_node(self, pod, node):
        maybe("filter_node", pod)
        return "node(s) were left" if pod.mark("tier") == "right" and "left" in node.node.name else None


class Counting:
    def __init__(self, nodes): self.nodes = nodes
    def filter(self, at):
        maybe("state.filter")
        return np.ones(len(at), dtype=np.bool_)
    def resolvable(self, at):
        maybe("resolvable")
        return np.ones(len(at), dtype=np.bool_)
    def reasons(self, at):
        return Counter()


class PreFilter(Base):
    def applies(self, spec, nodes):
        maybe("applies", spec)
        return True
    def counts(self, spec):
        maybe("counts", spec)
        return ()
    def prefilter(self, spec, nodes, before):
        maybe("prefilter", spec)
        return Counting(nodes)


class PostFilter(Base):
    def post_filter(self, pod, pool):
        maybe("post_filter", pod)
        return "call 112"


class Score(Base):
    static, weight, normalize, reverse = False, 1, False, False
    def score(self, ask, at):
        maybe("score", ask.spec)
        return np.array([100 * ("left" in at.nodes.names[row]) for row in at.rows.tolist()], dtype=np.int64)


class PlainScore(Base):
    def score_node(self, pod, node):
        maybe("score_node", pod)
        return 100 if "left" in node.node.name else 0


class Preferring:
    def __init__(self, nodes): self.nodes = nodes
    def score(self, at):
        maybe("state.score")
        return np.array([100 * ("left" in self.nodes.names[row]) for row in at.rows.tolist()], dtype=np.int64)


class PreScore(Base):
    weight = 1
    def prefers(self, spec, nodes):
        maybe("prefers", spec)
        return True
    def scored(self, spec):
        maybe("scored", spec)
        return ()
    def prescore(self, ask, nodes, before):
        maybe("prescore", ask.spec)
        return Preferring(nodes)


class Reserve(Base):
    def reserve(self, pod, node):
        maybe("reserve", pod)
        told.append(f"reserve {pod.name} on {node}")
    def release(self, pod, node):
        maybe("release", pod)
        told.append(f"release {pod.name} on {node}")


class Permit(Base):
    def permit(self, pod, node, waited_seconds):
        maybe("permit", pod)
        if pod.labels.get("tier") == "vetoed":
            return Vetoed("no")
        return Delayed(2.0) if pod.labels.get("tier") == "delayed" and waited_seconds < 5.0 else None


class PreBind(Base):
    async def pre_bind(self, pod, node): pass


class Bind(Base):
    async def bind(self, pod, node, request): return False


class PostBind(Base):
    def post_bind(self, pod, node): pass


class Units(Base):
    def unit_of(self, pod):
        maybe("unit_of", pod)
        return pod.labels.get("unit", "")
    def gang_of(self, pods, gangs):
        maybe("gang_of")
        return None
    def form(self, members):
        maybe("form")
        return Formed(members.waiting, len(members.waiting))
    def spare(self, members):
        maybe("spare")
        return None
'''
POINTS = {
    "PreEnqueue": ("holds",),
    "QueueSort": ("rank",),
    "Filter": ("filter", "reasons", "helps"),
    "PlainFilter": ("filter_node",),
    "PreFilter": ("applies", "counts", "prefilter", "state.filter"),
    "PostFilter": ("post_filter",),
    "Score": ("score",),
    "PlainScore": ("score_node",),
    "PreScore": ("prefers", "scored", "prescore", "state.score"),
    "Reserve": ("reserve", "release"),
    "Permit": ("permit",),
    "Units": ("unit_of", "form"),
}
"""Plugin -> its methods that the scheduler calls in its loop."""
REFUSING = ("Filter", "PlainFilter")
"""The plugins that keep the pod `large` off the node `left`."""
OF_EVENTS = ("unit_of", "release", "counts", "scored")
"""The methods with which the handling of an event ends where they raise."""
LATER = ("reasons", "helps", "state.filter", "state.score", "post_filter", "release", "form", "unit_of")
"""The methods that are not called for a pod alone, or not before its attempt."""
OTHERS = ("PreBind", "Bind", "PostBind")
METHODS = [(name, method) for name, methods in POINTS.items() for method in methods]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install the plugins as a distribution; return their module."""
    name = install(tmp_path, monkeypatch, "points", CODE, {one: one for one in (*POINTS, *OTHERS)})
    yield import_module(name)
    sys.modules.pop(name, None)


def profile_with(name: str) -> Profile:
    plugins: dict[str, Any] = {"multiPoint": {"enabled": [{"name": name}]}}
    if name == "QueueSort":
        plugins["queueSort"] = {"disabled": [{"name": "PrioritySort"}]}
    if name == "Units":
        plugins["multiPoint"]["disabled"] = [{"name": "Gangs"}]
    found = msgspec.convert([{"plugins": plugins}], tuple[ProfileConfig, ...])
    return with_profiles(default_profile(), with_names(found, SCHEDULER_NAME))


def errors(session: Session) -> list[str]:
    """Return the plugin of each reported exception."""
    return [one.plugin for one in session.said if isinstance(one, ReportInternalError)]


def play(session: Session, tell: Any, cpu: str = "4") -> dict[str, str]:
    """Let pods come, fit nowhere, be refused, fit a new node, and go; return pod -> its last node.

    The node `left` has so much `cpu`.
    """
    found: dict[str, str] = {}

    def decide(seconds: float = 0.0) -> None:
        found.update(binds(session.decide(seconds)))

    tell(lambda: session.see(a_node("left", cpu=cpu), a_node("right", cpu="4")))
    tell(lambda: session.see(a_pod("small", cpu="1", labels={"tier": "x"})))
    tell(lambda: session.see(a_pod("large", cpu="8", labels={"tier": "right"}, preempts=False)))
    tell(lambda: session.see(a_pod("u1", cpu="1", labels={"unit": "u"}), a_pod("u2", cpu="1", labels={"unit": "u"})))
    decide()
    decide(15.0)
    refused = BindRefused("uid-small", found.get("small", ""), BindRefusal.UNAVAILABLE, "no")
    tell(lambda: session.tell(refused))
    decide(15.0)
    tell(lambda: session.see(a_node("new-right", cpu="16")))
    for _ in range(4):
        decide(15.0)
    tell(lambda: session.tell(gone(Pod, "uid-small")))
    decide(15.0)
    decide(400.0)
    return found


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_exception_costs_an_attempt_names_the_plugin_and_every_pod_is_bound(
    module: Any, name: str, method: str
) -> None:
    session = Session(profile=profile_with(name))
    module.fails[method] = 1

    def tell(step: Any) -> None:
        try:
            step()
        except ZeroDivisionError:  # of an event: the daemon logs it and goes on
            assert method in OF_EVENTS, "it costs an attempt"

    found = play(session, tell, "16" if name in REFUSING else "4")
    assert module.fails[method] == 0, "the method was called"
    assert session.scheduler.counters.plugin_errors == {name: 1}
    assert found.keys() == {"small", "large", "u1", "u2"}
    assert found["large"] == "new-right"
    assert errors(session) == ([] if method in OF_EVENTS else [name])


@pytest.mark.parametrize(("name", "method"), [one for one in METHODS if one[1] not in LATER])
def test_pod_for_which_a_plugin_always_raises_waits_and_the_others_are_bound(
    module: Any, name: str, method: str
) -> None:
    session = Session(profile=profile_with(name))
    module.bad.add(method)

    def tell(step: Any) -> None:
        with suppress(ZeroDivisionError):
            step()

    tell(lambda: session.see(a_node("left", cpu="4"), a_node("right", cpu="4")))
    tell(lambda: session.see(a_pod("bad", cpu="1", labels={"tier": "bad"})))
    tell(lambda: session.see(a_pod("good", cpu="1", labels={"tier": "x"}), a_pod("plain", cpu="1")))
    found = binds(session.decide())
    for _ in range(4):
        found |= binds(session.decide(15.0))
    assert found.keys() == {"good", "plain"}
    assert session.scheduler.counters.plugin_errors[name] >= 2
    assert session.scheduler.why("uid-bad") == PLUGIN_ERROR.format(name)


def test_exception_of_one_plugin_that_releases_does_not_keep_the_others_from_releasing() -> None:
    log: list[str] = []

    class Keeper:
        def __init__(self, name: str) -> None:
            self.name = name

        def reserve(self, pod: Pod, node: str) -> None:
            log.append(f"{self.name} reserves {pod.name}")

        def release(self, pod: Pod, node: str) -> None:
            log.append(f"{self.name} releases {pod.name}")
            if self.name == "b":
                raise ZeroDivisionError("a bug in a plugin")

    profile = default_profile()
    keepers = (Keeper("a"), Keeper("b"), Keeper("c"))
    session = Session(profile=replace(profile, plugins=replace(profile.plugins, reserves=keepers)))
    session.see(a_node("n"), a_pod("p"))
    session.decide()
    log.clear()
    with pytest.raises(ZeroDivisionError):
        session.tell(gone(Pod, "uid-p"))
    assert log == ["c releases p", "b releases p", "a releases p"]
    assert session.scheduler.counters.plugin_errors == {"b": 1}


def test_gate_holds_a_pod_until_the_pod_changes(module: Any) -> None:
    session = Session(a_node("n"), a_pod("p", labels={"tier": "closed"}), profile=profile_with("PreEnqueue"))
    assert (binds(session.decide()), session.scheduler.why("uid-p")) == ({}, "closed")
    session.see(a_pod("p"))
    assert binds(session.decide()) == {"p": "n"}


def test_rank_sorts_the_queue(module: Any) -> None:
    session = Session(a_node("n", cpu="1"), profile=profile_with("QueueSort"))
    session.see(a_pod("older", cpu="1", labels={"rank": "2"}, preempts=False))
    session.see(a_pod("first", cpu="1", created=1, labels={"rank": "1"}, preempts=False))
    assert binds(session.decide()) == {"first": "n"}


@pytest.mark.parametrize("name", ["Filter", "PlainFilter"])
def test_filter_keeps_a_pod_off_a_node_and_its_text_is_in_the_reason(module: Any, name: str) -> None:
    session = Session(a_node("left"), a_pod("p", labels={"tier": "right"}), profile=profile_with(name))
    assert "1 node(s) were left" in reports(session.decide())["p"]


def test_text_of_post_filter_is_in_the_reason_of_a_pod_that_fits_nowhere(module: Any) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", cpu="2"), profile=profile_with("PostFilter"))
    assert "PostFilter: call 112." in reports(session.decide())["p"]


@pytest.mark.parametrize("name", ["Score", "PlainScore", "PreScore"])
def test_score_decides_between_nodes(module: Any, name: str) -> None:
    nodes = (a_node("a"), a_node("left"), a_node("z"))
    assert binds(Session(*nodes, a_pod("p"), profile=profile_with(name)).decide()) == {"p": "left"}
    assert binds(Session(*nodes, a_pod("p")).decide()) == {"p": "a"}


def test_reserve_is_called_when_a_pod_is_placed_and_release_when_it_is_not_bound_or_leaves(module: Any) -> None:
    session = Session(a_node("n"), a_pod("p"), profile=profile_with("Reserve"))
    session.decide()
    session.tell(BindRefused("uid-p", "n", BindRefusal.UNAVAILABLE, "no"))
    session.decide(15.0)
    session.tell(gone(Pod, "uid-p"))
    assert module.told == ["reserve p on n", "release p on n"] * 2


def test_permit_delays_a_binding_and_refuses_one(module: Any) -> None:
    session = Session(a_node("n"), profile=profile_with("Permit"))
    session.see(a_pod("p", labels={"tier": "delayed"}), a_pod("q", labels={"tier": "vetoed"}))
    actions = session.decide()
    assert (binds(actions), reports(actions)) == ({}, {"q": "Permit does not permit the node n: no"})
    assert binds(session.decide(3.0)) == {}
    assert binds(session.decide(3.0)) == {"p": "n"}


@pytest.mark.parametrize(("name", "field"), [("PreBind", "pre_binds"), ("Bind", "binds"), ("PostBind", "post_binds")])
def test_plugin_around_a_binding_is_in_the_profile(module: Any, name: str, field: str) -> None:
    assert [one.name for one in getattr(profile_with(name).plugins, field)] == [name]
