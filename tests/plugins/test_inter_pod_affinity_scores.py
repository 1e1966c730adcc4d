"""The scores of InterPodAffinity against cases of kube-scheduler; A9 to A12 are names of such cases."""

from dataclasses import dataclass, field

import pytest

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from tests.affinity_terms import term
from tests.build import a_pod, replace
from tests.plugins.affinity_scene import Scene

LAND = {"e1": {"land": "east"}, "w1": {"land": "west"}, "az": {"az": "az1"}}
"""Two nodes in two lands, and one that has another label."""
EASTS = {
    "e1": {"land": "east"},
    "w1": {"land": "west"},
    "e2": {"land": "east"},
    "e3": {"land": "east"},
    "w2": {"land": "west"},
}
TEAMS = {
    "default": {},
    "blue-1": {"team": "blue"},
    "blue-2": {"team": "blue"},
    "red-1": {"team": "red"},
    "red-2": {"team": "red"},
}
ONE, TWO = {"set": "one"}, {"set": "two"}
PREFERS_ONE, PREFERS_TWO = (5, term("land", "set=one")), (6, term("land", "set=two"))
AVOIDS_ONE, AVOIDS_TWO = (-5, term("az", "set=one")), (-5, term("az", "set=two"))
BLUE = term("land", "set=one", "red-2", among="team=blue")


def soft(
    *preferred: tuple[int, PodAffinityTerm], labels: dict[str, str] | None = None, namespace: str = "default"
) -> Pod:
    """Return a pod with preferred terms; a weight below zero is that of an anti-affinity."""
    return a_pod("asker", labels=labels or {}, namespace=namespace, pod_affinity=pod_affinity(preferred=preferred))


def hard(*required: PodAffinityTerm, labels: dict[str, str] | None = None) -> Pod:
    return a_pod("asker", labels=labels or {}, pod_affinity=pod_affinity(required=required))


@dataclass(frozen=True)
class Case:
    """Pods on nodes, a pod that asks, and the score of each node."""

    name: str
    asker: Pod
    expected: list[int]
    on: list[tuple[str, Pod]] = field(default_factory=list)
    nodes: dict[str, dict[str, str]] = field(default_factory=lambda: LAND)
    rule: InterPodAffinity = field(default_factory=InterPodAffinity)


NAMED = [("e1", soft(labels=ONE, namespace="blue-1")), ("e1", soft(labels=ONE, namespace="blue-2"))]
STAYS, SHUNS = (8, term("land", "set=one")), (-5, term("az", "set=two"))
HARD = term("land", "set=one", "default", "red-2", among="team=blue")

CASES = [
    Case("no terms at all", soft(labels=ONE), [0, 0, 0]),
    Case(
        "the label and the pod decide",
        soft(PREFERS_ONE),
        [100, 0, 0],
        [("e1", soft(labels=ONE)), ("w1", soft(labels=TWO)), ("az", soft(labels=ONE))],
    ),
    Case("every node of the domain", soft(PREFERS_ONE), [100, 0, 100, 100, 0], [("e1", soft(labels=ONE))], EASTS),
    Case(
        "A9",
        soft(PREFERS_TWO, labels=ONE),
        [100, 0, 100, 100, 0],
        [(node, soft(labels=TWO)) for node in ("e1", "e1", "w1", "e2", "e3", "w2")],
        EASTS,
    ),
    Case(
        "expressions and weights",
        soft((8, term("land", "set!=one,set=two")), (2, term("land", "set,!old")), labels=ONE),
        [20, 100, 0],
        [("e1", soft(labels=ONE)), ("w1", soft(labels=TWO)), ("az", soft(labels=ONE))],
    ),
    Case(
        "fractions are cut off",
        soft(PREFERS_ONE),
        [100, 66, 33, 0],
        [("a", soft(labels=ONE))] * 3 + [("b", soft(labels=ONE))] * 2 + [("c", soft(labels=ONE))],
        {name: {"land": name} for name in "abcd"},
    ),
    Case(
        "a term that the pod has twice counts twice",
        soft((1, term("land", "set=one")), (1, term("land", "set=one")), (3, term("land", "set=two"))),
        [66, 100, 0],
        [("e1", soft(labels=ONE)), ("w1", soft(labels=TWO))],
    ),
    Case(
        "A10",
        soft(labels=TWO),
        [0, 100, 0],
        [("e1", soft(PREFERS_ONE, labels=ONE)), ("w1", soft(PREFERS_TWO, labels=TWO))],
    ),
    Case(
        "A10, selected namespaces",
        soft(labels=ONE, namespace="blue-1"),
        [100, 0, 0],
        [("e1", soft((5, BLUE))), ("w1", soft(PREFERS_TWO, labels=TWO))],
    ),
    Case(
        "A10, anti-affinity and selected namespaces",
        soft(labels=ONE, namespace="blue-1"),
        [0, 100, 100],
        [("e1", soft((-5, BLUE))), ("w1", soft(PREFERS_TWO, labels=TWO))],
    ),
    Case(
        "A10, beside the preference of the pod",
        soft((9, term("land", "set=two")), labels=TWO),
        [50, 100, 0],
        [("e1", soft(labels=TWO)), ("e1", soft((-6, term("land", "set=two")))), ("w1", soft(PREFERS_TWO))],
    ),
    Case(
        "A11",
        soft(labels=ONE),
        [100, 100, 0],
        [
            ("e1", hard(term("land", "set=one|x"), term("land", "set,!old"))),
            ("w1", hard(term("land", "set=one|x"), term("land", "set,!old"))),
        ],
    ),
    Case(
        "A11, terms of one pod count each",
        soft(labels=ONE),
        [100, 50, 0],
        [("e1", hard(term("land", "set=one"), term("land", "set"))), ("w1", hard(term("land", "set")))],
    ),
    Case(
        "A11, weight 0", soft(labels=ONE), [0, 0, 0], [("e1", hard(HARD)), ("w1", hard(HARD))], rule=InterPodAffinity(0)
    ),
    Case(
        "A11, weight 0 beside a preference",
        soft(labels=ONE),
        [0, 100, 0],
        [("e1", hard(HARD)), ("w1", soft((1, HARD)))],
        rule=InterPodAffinity(0),
    ),
    Case(
        "A11, weight 1 beside a preference",
        soft(labels=ONE),
        [2, 100, 0],
        [("e1", hard(HARD)), ("w1", soft((50, HARD)))],
    ),
    Case(
        "A11, weight 100 beside a preference",
        soft(labels=ONE),
        [100, 50, 0],
        [("e1", hard(HARD)), ("w1", soft((50, HARD)))],
        rule=InterPodAffinity(100),
    ),
    Case("A11, no namespace of it", soft(labels=ONE, namespace="red-1"), [0, 0, 0], [("e1", hard(HARD))]),
    Case("A11, a selected namespace", soft(labels=ONE, namespace="blue-1"), [100, 0, 0], [("e1", hard(HARD))]),
    Case("A11, a named namespace", soft(labels=ONE, namespace="red-2"), [100, 0, 0], [("e1", hard(HARD))]),
    Case(
        "A12",
        soft(labels=TWO),
        [0, 100, 100],
        [("a", soft(AVOIDS_TWO, labels=ONE)), ("b", soft(AVOIDS_ONE, labels=TWO))],
        {"a": {"az": "az1"}, "b": {"az": "az2"}, "c": {}},
    ),
    Case(
        "anti-affinity of the pod",
        soft(AVOIDS_ONE, labels=ONE),
        [0, 100],
        [("a", soft(labels=ONE)), ("b", soft(labels=TWO))],
        {"a": {"az": "az1"}, "b": {"az": "az2"}},
    ),
    Case(
        "anti-affinity where the node has no label",
        soft(AVOIDS_ONE, labels=ONE),
        [0, 100],
        [("a", soft(labels=ONE)), ("b", soft(labels=ONE))],
        {"a": {"az": "az1"}, "b": {"land": "east"}},
    ),
    Case(
        "anti-affinity to more pods",
        soft(AVOIDS_ONE),
        [0, 50, 100],
        [("a", soft(labels=ONE)), ("a", soft(labels=ONE)), ("b", soft(labels=ONE))],
        {"a": {"az": "az1"}, "b": {"az": "az2"}, "c": {}},
    ),
    Case(
        "both sides and both signs",
        soft(STAYS, SHUNS, labels=ONE),
        [100, 0, 100, 0],
        [("a", soft(labels=ONE)), ("b", soft(labels=TWO)), ("c", soft(STAYS, SHUNS)), ("d", soft(AVOIDS_ONE))],
        {"a": {"land": "east"}, "b": {"az": "az1"}, "c": {"land": "west"}, "d": {"az": "az2"}},
    ),
    Case(
        "together in a land and apart in a zone",
        soft(STAYS, (-5, term("az", "set=one")), labels=ONE),
        [37, 0, 100],
        [("a", soft(labels=ONE)), ("a", soft(labels=ONE)), ("b", soft(labels=ONE)), ("c", soft(labels=ONE))],
        {"a": {"land": "east", "az": "az1"}, "b": {"land": "west"}, "c": {"land": "east"}},
    ),
    Case(
        "pods of some nodes of a domain alone have terms",
        soft(labels=ONE),
        [0, 0],
        [("a", soft(labels=ONE)), ("b", soft(STAYS, SHUNS))],
        {"a": {"land": "east"}, "b": {"land": "east"}},
    ),
    Case(
        "selected namespaces",
        soft((5, BLUE), namespace="blue-1"),
        [100, 50, 0],
        [*NAMED, ("e1", soft(labels=ONE, namespace="red-1")), ("w1", soft(labels=ONE, namespace="blue-2"))],
    ),
    Case(
        "selected and named namespaces",
        soft((5, BLUE), namespace="blue-1"),
        [100, 66, 0],
        [
            *NAMED,
            ("e1", soft(labels=ONE, namespace="red-2")),
            ("w1", soft(labels=ONE, namespace="blue-2")),
            ("w1", soft(labels=ONE, namespace="red-2")),
        ],
    ),
    Case(
        "anti-affinity to selected namespaces",
        soft((-5, BLUE), namespace="blue-1"),
        [0, 50, 100],
        [*NAMED, ("w1", soft(labels=ONE, namespace="blue-2")), ("w1", soft(labels=ONE, namespace="red-1"))],
    ),
    Case(
        "preferences of others are ignored",
        soft(labels=TWO),
        [0, 0, 0],
        [("e1", soft(STAYS, SHUNS)), ("w1", soft(PREFERS_TWO)), ("w1", hard(term("land", "set=two")))],
        rule=InterPodAffinity(ignores_preferences=True),
    ),
    Case(
        "preferences of others are not ignored",
        soft(labels=TWO),
        [0, 100, 0],
        [("e1", soft(STAYS, SHUNS)), ("w1", soft(PREFERS_TWO))],
    ),
    Case(
        "preferences of others count for a pod with its own",
        soft(PREFERS_ONE, labels=TWO),
        [83, 100, 0],
        [("e1", soft(labels=ONE)), ("w1", soft(PREFERS_TWO))],
        rule=InterPodAffinity(ignores_preferences=True),
    ),
    Case(
        "anti-affinity that is required does not score",
        soft(labels=ONE),
        [0, 0, 0],
        [("e1", a_pod(pod_affinity=pod_affinity(anti_required=(term("land", "set=one"),))))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_scores_are_those_of_kube_scheduler(case: Case) -> None:
    scene = Scene(dict(case.nodes), case.rule, dict(TEAMS))
    for number, (node, pod) in enumerate(case.on):
        scene.place(replace(pod, uid=f"uid-{number}", name=f"p{number}"), node)
    assert scene.scores(scene.know(case.asker)) == case.expected


def test_score_is_normalised_over_the_nodes_that_fit_and_counts_twice() -> None:
    scene = Scene({name: {"land": name} for name in "abc"})
    for number, node in enumerate("aabc"):
        scene.place(a_pod(f"p{number}", labels=ONE), node)
    scene.place(a_pod("guard", pod_affinity=pod_affinity(anti_required=(term("land", "asks"),))), "a")
    asker = scene.know(soft((5, term("land", "set=one")), (1, term("land", "guarded")), labels={"asks": ""}))
    scene.place(a_pod("extra", labels={"guarded": ""}), "b")
    ask = PlacementRequest(asker.spec, PlacementStrategy.SPREAD)
    assert scene.runner.ranked(ask, scene.rows()) == [(scene.table.rows["b"], 200), (scene.table.rows["c"], 0)]
    assert scene.runner.best(ask, scene.rows()) == (scene.table.rows["b"], 2)


def test_namespace_that_gets_the_labels_of_a_preference_is_scored_by_it() -> None:
    scene = Scene(dict(LAND), namespaces={"default": {}})
    wish = (5, term("land", "set=one", among="team=blue"))
    scene.place(replace(soft(wish), uid="uid-wants", scheduler_name="other"), "e1")
    asker = scene.know(soft(labels=ONE, namespace="new"))
    assert scene.scores(asker) == [0, 0, 0]
    scene.counts.namespace_changed("new", None, {"team": "blue"})
    assert scene.scores(asker) == [100, 0, 0]
    scene.counts.namespace_changed("new", {"team": "blue"}, None)
    assert scene.scores(asker) == [0, 0, 0]
