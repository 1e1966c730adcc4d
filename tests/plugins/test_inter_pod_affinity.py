"""The filter of InterPodAffinity against cases of kube-scheduler; A1 to A13 are names of such cases."""

from dataclasses import dataclass, field

import pytest

from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.plugins.inter_pod_affinity import AFFINITY, ANTI_AFFINITY, EXISTING
from tests.affinity_terms import term
from tests.build import a_pod, on_row, replace
from tests.plugins.affinity_scene import Scene

LAND = {
    "n1": {"host": "n1", "rack": "r1", "zone": "z1"},
    "n2": {"host": "n2", "rack": "r2", "zone": "z1"},
    "n3": {"host": "n3", "rack": "r3", "zone": "z2"},
    "bare": {"disk": "ssd"},
}
"""Two nodes of one zone, one of another, and one without the labels."""
TEAMS = {"default": {}, "blue-1": {"team": "blue"}, "blue-2": {"team": "blue"}, "red-1": {"team": "red"}}
LETTERS = {"": ".", AFFINITY: "a", ANTI_AFFINITY: "x", EXISTING: "e"}
DB = {"app": "db"}
BOTH = {"app": "db", "tier": "store"}


def near(*terms: PodAffinityTerm, labels: dict[str, str] | None = None, namespace: str = "default") -> Pod:
    """Return a pod with required affinity."""
    return a_pod("asker", labels=labels or {}, namespace=namespace, pod_affinity=pod_affinity(required=terms))


def apart(*terms: PodAffinityTerm, labels: dict[str, str] | None = None, namespace: str = "default") -> Pod:
    """Return a pod with required anti-affinity."""
    return a_pod("asker", labels=labels or {}, namespace=namespace, pod_affinity=pod_affinity(anti_required=terms))


def torn(
    required: tuple[PodAffinityTerm, ...], anti: tuple[PodAffinityTerm, ...], labels: dict[str, str] | None = None
) -> Pod:
    """Return a pod with both."""
    return a_pod("asker", labels=labels or {}, pod_affinity=pod_affinity(required=required, anti_required=anti))


def plain(labels: dict[str, str] | None = None, namespace: str = "default") -> Pod:
    return a_pod("asker", labels=labels or {}, namespace=namespace)


@dataclass(frozen=True)
class Case:
    """Pods on nodes, a pod that asks, and the letter of each node: fits, or lacks affinity, or anti-affinity of whom.

    `on` has nodes and the pods there.
    """

    name: str
    asker: Pod
    expected: str
    on: list[tuple[str, Pod]] = field(default_factory=list)


CASES = [
    Case("pod without terms among pods without terms", plain(DB), "....", [("n1", plain(DB))]),
    # Affinity of the pod.
    Case("A1", near(term("zone", "app=db|cache")), "..aa", [("n1", plain(DB))]),
    Case("A1, not in other values", near(term("zone", "app!=cache|web")), "..aa", [("n1", plain(DB))]),
    Case("A1, no pod matches", near(term("zone", "app=cache")), "aaaa", [("n1", plain(DB))]),
    Case("A1, every node of the zone", near(term("zone", "app=db")), "..aa", [("n2", plain(DB))]),
    Case("A2, the pod is in another namespace", near(term("zone", "app=db")), "aaaa", [("n1", plain(DB, "blue-1"))]),
    Case("A2, the term names another", near(term("zone", "app=db", "blue-2")), "aaaa", [("n1", plain(DB, "blue-1"))]),
    Case("A2, named", near(term("zone", "app=db", "red-1", "blue-1")), "..aa", [("n1", plain(DB, "blue-1"))]),
    Case("A2, selected", near(term("zone", "app=db", among="team=blue")), "..aa", [("n1", plain(DB, "blue-2"))]),
    Case("A2, not selected", near(term("zone", "app=db", among="team=blue")), "aaaa", [("n1", plain(DB, "red-1"))]),
    Case("A2, own not selected", near(term("zone", "app=db", among="team=blue")), "aaaa", [("n1", plain(DB))]),
    Case("A2, all selected", near(term("zone", "app=db", among="")), "..aa", [("n1", plain(DB, "red-1"))]),
    Case(
        "A2, named or selected",
        near(term("zone", "app=db", "red-1", among="team=blue")),
        "..aa",
        [("n1", plain(DB, "red-1"))],
    ),
    Case("A3, not in its value", near(term("zone", "app!=db"), labels=DB), "aaaa", [("n1", plain(DB))]),
    Case("A3, one key exists and one does not", near(term("zone", "app,!old")), "..aa", [("n1", plain(DB))]),
    Case("A3, one false expression of a term", near(term("zone", "app,old")), "aaaa", [("n1", plain(DB))]),
    Case(
        "A3, both terms hold",
        near(term("zone", "app,!old"), term("zone", "app=db,app!=web")),
        "..aa",
        [("n1", plain(DB))],
    ),
    Case(
        "A3, one false expression of the second term",
        near(term("zone", "app,!old"), term("zone", "app=web,app!=db")),
        "aaaa",
        [("n1", plain(DB))],
    ),
    Case("A4, the first", near(term("zone", "app=db"), labels=DB), "...a"),
    Case("A4, the second", near(term("zone", "app=db"), labels=DB), "..aa", [("n1", plain(DB))]),
    Case("A4, no node has the key", near(term("row", "app=db"), labels=DB), "aaaa"),
    Case("A4, the pod is not one of those", near(term("zone", "app=db")), "aaaa"),
    Case(
        "A4, others match one of two terms",
        near(term("zone", "app=db"), term("zone", "tier=store"), labels=BOTH),
        "...a",
        [("n1", plain(DB))],
    ),
    Case(
        "A4, the pod matches one of two terms",
        near(term("zone", "app=db"), term("zone", "tier=store"), labels=DB),
        "aaaa",
    ),
    Case(
        "A4, one is on a node without the key", near(term("zone", "app=db"), labels=DB), "...a", [("bare", plain(DB))]
    ),
    Case(
        "A5",
        near(term("zone", "app"), term("zone", "tier")),
        "aaaa",
        [("n1", plain(DB)), ("n2", plain({"tier": "store"}))],
    ),
    Case("A5, one pod matches both", near(term("zone", "app"), term("zone", "tier")), "..aa", [("n1", plain(BOTH))]),
    Case(
        "A5, two keys",
        near(term("zone", "app"), term("rack", "tier")),
        ".aaa",
        [("n1", plain(BOTH)), ("n2", plain(DB))],
    ),
    # Anti-affinity of pods on nodes.
    Case("A6", plain(DB), "ee..", [("n1", apart(term("zone", "app=db|cache")))]),
    Case("A6, it does not select the pod", plain(DB), "....", [("n1", apart(term("zone", "app!=db")))]),
    Case("A6, its node lacks the key", plain(DB), "....", [("bare", apart(term("zone", "app")))]),
    Case("A6, no node has the key", plain(DB), "....", [("n1", apart(term("row", "app")))]),
    Case(
        "A6, two pods in two zones",
        plain(BOTH),
        "eee.",
        [
            ("n1", apart(term("zone", "app"), term("zone", "old"))),
            ("n3", apart(term("zone", "tier"), term("zone", "old"))),
        ],
    ),
    Case("A6, one of two keys", plain(BOTH), "e...", [("n1", apart(term("row", "app"), term("rack", "tier")))]),
    Case("A6, two keys", plain(BOTH), "ee..", [("n1", apart(term("zone", "app"), term("rack", "tier")))]),
    Case(
        "A6, keys of two pods",
        plain(BOTH),
        "ee..",
        [("n1", apart(term("zone", "app"))), ("n1", apart(term("rack", "tier")))],
    ),
    Case(
        "A6, of another namespace", plain(DB), "....", [("n1", apart(term("zone", "app", "red-1"), namespace="red-1"))]
    ),
    Case("A6, named", plain(DB, "blue-1"), "ee..", [("n1", apart(term("zone", "app", "blue-1")))]),
    Case("A6, selected", plain(DB, "blue-1"), "ee..", [("n1", apart(term("zone", "app", among="team!=red")))]),
    Case("A6, not selected", plain(DB, "red-1"), "....", [("n1", apart(term("zone", "app", among="team!=red")))]),
    # Anti-affinity of the pod.
    Case(
        "A7",
        torn((term("zone", "app=db"),), (term("host", "tier=store"),)),
        "x.aa",
        [("n1", plain(DB)), ("n1", plain({"tier": "store"}))],
    ),
    Case(
        "A8",
        apart(term("host", "app=db"), labels=DB),
        "xxx.",
        [(node, apart(term("host", "app=db"), labels=DB)) for node in ("n1", "n2", "n3")],
    ),
    Case("anti-affinity about a key that no node has", apart(term("row", "app")), "....", [("n1", plain(DB))]),
    Case("anti-affinity to a zone", apart(term("zone", "app=db")), "xx..", [("n1", plain(DB))]),
    Case("any term keeps away", apart(term("zone", "app=db"), term("host", "tier")), "xx..", [("n1", plain(BOTH))]),
    Case(
        "any term keeps away from another pod",
        apart(term("rack", "app"), term("zone", "tier")),
        "x.x.",
        [("n1", plain(DB)), ("n3", plain({"tier": "store"}))],
    ),
    Case(
        "terms of both",
        apart(term("host", "app=db"), namespace="default", labels={"tier": "web"}),
        "x.e.",
        [("n1", plain(DB)), ("n3", apart(term("host", "tier=web")))],
    ),
    Case(
        "anti-affinity to a selected namespace",
        apart(term("zone", "app", among="team=blue"), namespace="blue-1"),
        "xx..",
        [("n1", plain(DB, "blue-2"))],
    ),
    Case("anti-affinity to all namespaces", apart(term("zone", "app", among="")), "xx..", [("n1", plain(DB, "red-1"))]),
    Case(
        "anti-affinity to no such namespace",
        apart(term("zone", "app", among="team=blue")),
        "....",
        [("n1", plain(DB, "red-1"))],
    ),
    # The order of reasons: affinity, the pod's anti-affinity, that of pods on nodes.
    Case(
        "the pod's own anti-affinity before that of others",
        apart(term("zone", "app"), term("zone", "tier"), labels=DB),
        "xx..",
        [("n1", apart(term("zone", "tier"), term("zone", "app"), labels={"tier": "store"}))],
    ),
    Case(
        "that of others alone",
        apart(term("zone", "tier"), labels={"tier": "store"}),
        "ee..",
        [("n1", apart(term("zone", "app"), term("zone", "tier"), labels=DB))],
    ),
    Case(
        "affinity before both",
        torn((term("host", "app=db"),), (term("zone", "app=db"),), DB),
        "xaaa",
        [("n1", apart(term("zone", "app=db"), labels=DB))],
    ),
    Case(
        "affinity and anti-affinity contradict each other",
        torn((term("zone", "app=db"),), (term("zone", "app=db"),), DB),
        "xxaa",
        [("n1", plain(DB))],
    ),
    Case("which the first pod does not meet", torn((term("zone", "app=db"),), (term("zone", "app=db"),), DB), "...a"),
    # Selectors that select nothing, or all.
    Case("affinity to no pod at all", near(term("zone", None), labels=DB), "aaaa", [("n1", plain(DB))]),
    Case("anti-affinity to no pod at all", apart(term("zone", None)), "....", [("n1", plain(DB))]),
    Case("anti-affinity of a pod on a node to no pod at all", plain(DB), "....", [("n1", apart(term("zone", None)))]),
    Case("affinity to any pod", near(term("zone", "")), "..aa", [("n1", plain())]),
    Case("anti-affinity to any pod", apart(term("zone", "")), "xx..", [("n1", plain())]),
    # matchLabelKeys and mismatchLabelKeys, which the API server merges into the selector.
    Case(
        "A13",
        apart(term("host", "app=db,hash=new"), labels=DB | {"hash": "new"}),
        "....",
        [("n1", plain(DB | {"hash": "old"}))],
    ),
    Case(
        "A13, of its own hash",
        apart(term("host", "app=db,hash=new"), labels=DB | {"hash": "new"}),
        "x...",
        [("n1", plain(DB | {"hash": "new"}))],
    ),
    Case("A13, affinity", near(term("zone", "app=db,hash=new")), "aaaa", [("n1", plain(DB | {"hash": "old"}))]),
    Case(
        "A13, mismatch",
        apart(term("host", "app=db,hash!=new"), labels=DB | {"hash": "new"}),
        "x...",
        [("n1", plain(DB | {"hash": "old"})), ("n3", plain(DB | {"hash": "new"}))],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nodes_and_reasons_are_those_of_kube_scheduler(case: Case) -> None:
    scene = Scene(dict(LAND), namespaces=dict(TEAMS))
    for number, (node, pod) in enumerate(case.on):
        scene.place(replace(pod, uid=f"uid-{number}", name=f"p{number}"), node)
    found = scene.reasons(scene.know(case.asker))
    assert "".join(LETTERS[found[name]] for name in LAND) == case.expected


def test_pod_that_counts_by_one_of_two_keys_makes_the_next_none_of_the_first() -> None:
    scene = Scene({"n1": {"rack": "r1", "zone": "z1"}, "half": {"zone": "z1"}})
    both = near(term("zone", "app=db"), term("rack", "app=db"), labels=DB)
    assert list(scene.reasons(scene.know(both)).values()) == ["", AFFINITY]
    scene.place(plain(DB), "half")
    assert list(scene.reasons(scene.know(both)).values()) == [AFFINITY, AFFINITY]


def test_terminating_pods_count_until_they_are_gone() -> None:
    scene = Scene(dict(LAND))
    leaving = scene.place(replace(apart(term("host", "app=web"), labels=DB), uid="uid-leaving", terminating=True), "n1")
    asker = scene.know(apart(term("zone", "app=db")))
    other = scene.know(plain({"app": "web"}))
    assert [scene.reasons(one)["n1"] for one in (asker, other)] == [ANTI_AFFINITY, EXISTING]
    scene.table.remove(on_row(leaving, scene.table.rows["n1"]))
    assert {*scene.reasons(asker).values(), *scene.reasons(other).values()} == {""}


def test_namespace_without_known_labels_is_selected_by_anti_affinity_alone() -> None:
    scene = Scene(dict(LAND), namespaces={"default": {}})
    scene.place(replace(plain(DB, "new"), uid="uid-new"), "n1")
    among = term("zone", "app=db", among="team=blue")
    assert scene.reasons(scene.know(apart(among)))["n1"] == ANTI_AFFINITY
    assert scene.reasons(scene.know(near(among)))["n1"] == AFFINITY
    scene.counts.namespace_changed("new", None, {"team": "blue"})
    assert scene.reasons(scene.know(apart(among)))["n1"] == ANTI_AFFINITY
    assert scene.reasons(scene.know(near(among)))["n1"] == ""
    scene.counts.namespace_changed("new", {"team": "blue"}, {"team": "red"})
    assert scene.reasons(scene.know(apart(among)))["n1"] == ""
    assert scene.reasons(scene.know(near(among)))["n1"] == AFFINITY
