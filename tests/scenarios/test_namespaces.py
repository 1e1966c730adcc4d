"""The namespaces that may use a pool."""

from tests.scenarios.stage import Stage

VISION = {"matchLabels": {"team": "vision"}}
SAID = "The pool a takes no pods from the namespace speech"


def a_stranger_waits(stage: Stage) -> None:
    """Let `p` of the namespace speech wait in pool a, which has room, but takes only pods of team vision."""
    stage.namespace("speech", team="speech")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("p", pool="a", namespace="speech")
    stage.waits("p", SAID)


def test_pod_from_a_namespace_that_its_pool_does_not_allow_waits_with_a_reason(stage: Stage) -> None:
    stage.node("b1", pool="b")
    stage.pools("b")
    a_stranger_waits(stage)


def test_pod_from_a_namespace_that_its_pool_allows_is_bound(stage: Stage) -> None:
    stage.namespace("vision", team="vision")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pod("p", pool="a", namespace="vision")
    stage.goes(p="a1")


def test_pods_of_a_namespace_that_gets_the_label_are_bound(stage: Stage) -> None:
    a_stranger_waits(stage)
    stage.patch("Namespace", "speech", {"metadata": {"labels": {"team": "vision"}}})
    stage.goes(p="a1")


def test_pods_are_bound_when_their_pool_allows_more_namespaces(stage: Stage) -> None:
    a_stranger_waits(stage)
    stage.set_pool("a", allowedNamespaces=None)
    stage.goes(p="a1")


def test_pod_that_its_pool_does_not_allow_blocks_no_loan_and_evicts_no_pod(stage: Stage) -> None:
    stage.namespace("speech", team="speech")
    stage.node("a1", pool="a")
    stage.pools("a", allowedNamespaces=VISION)
    stage.pools("b")
    stage.pod("stranger", pool="a", namespace="speech", cpu="4", priority=1000)
    stage.waits("stranger", SAID)
    stage.pod("borrower", pool="b", cpu="4")
    stage.goes(borrower="a1")
    stage.stays(lambda: stage.victims() == [])
