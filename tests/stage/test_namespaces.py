"""Which namespaces may use a pool."""

from tests.stage.stage import Stage

VISION = {"matchLabels": {"team": "vision"}}
SAID = "The pool a takes no pods from the namespace speech"


def a_stranger_waits(stage: Stage) -> None:
    """`p` of the namespace speech waits at pool a, which has room, and takes pods of team vision only."""
    stage.namespace("speech", team="speech")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("p", pool="a", namespace="speech")
    stage.waits("p", SAID)


def test_pod_from_a_namespace_that_its_pool_does_not_allow_waits_and_says_so(stage: Stage) -> None:
    stage.node("b1", pool="b")
    stage.pools("b")
    a_stranger_waits(stage)


def test_pod_from_a_namespace_that_its_pool_allows_goes(stage: Stage) -> None:
    stage.namespace("vision", team="vision")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("p", pool="a", namespace="vision")
    stage.goes(p="a1")


def test_namespace_that_gets_the_label_lets_its_pods_go(stage: Stage) -> None:
    a_stranger_waits(stage)
    stage.patch("Namespace", "speech", {"metadata": {"labels": {"team": "vision"}}})
    stage.goes(p="a1")


def test_pool_that_allows_more_namespaces_lets_their_pods_go(stage: Stage) -> None:
    a_stranger_waits(stage)
    stage.set_pool("a", allowedNamespaces=None)
    stage.goes(p="a1")


def test_pod_that_its_pool_does_not_allow_stops_no_loan_and_evicts_nobody(stage: Stage) -> None:
    stage.namespace("speech", team="speech")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pools("b")
    stage.pod("stranger", pool="a", namespace="speech", cpu="4", priority=1000)
    stage.waits("stranger", SAID)
    stage.pod("borrower", pool="b", cpu="4")
    stage.goes(borrower="a1")
    stage.stays(lambda: stage.victims() == [])
