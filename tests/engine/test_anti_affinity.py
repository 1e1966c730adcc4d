"""Required anti-affinity of pods on nodes: the waiting pods that it holds, their message, and their wake-ups."""

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.model.events import NamespaceSeen, PodGone
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import LabelSelector, Operator, Requirement, label_selector
from aischeduler.model.unsupported_constraints import (
    REQUIRED_ANTI_AFFINITY,
    Constraint,
    ConstraintKind,
    PodAffinityTerm,
)
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, nominations, reports

HOST = "kubernetes.io/hostname"
DB = {"app": "db"}


def selector(**labels: str) -> LabelSelector:
    return label_selector("labelSelector", labels, ())


def apart(
    *namespaces: str, matching: LabelSelector | None = None, among: LabelSelector | None = None
) -> PodAffinityTerm:
    return PodAffinityTerm(HOST, matching or selector(app="db"), namespaces, among)


def guard(name: str, *terms: PodAffinityTerm, namespace: str = "default", scheduler_name: str = "other") -> Pod:
    """Return a pod on the node `far` with these anti-affinity terms."""
    constraint = Constraint(ConstraintKind.POD_ANTI_AFFINITY, REQUIRED_ANTI_AFFINITY)
    return a_pod(
        name,
        namespace=namespace,
        node="far",
        scheduler_name=scheduler_name,
        unsupported_constraints=(constraint,),
        anti_affinity=terms,
    )


def nodes() -> Session:
    return Session(a_node("far", cpu="1"), a_node("near", cpu="1"))


@pytest.mark.parametrize("scheduler_name", ["other", "ai-scheduler"])
def test_pod_that_a_pod_on_a_node_excludes_waits_and_names_pod_and_field(scheduler_name: str) -> None:
    session = nodes()
    session.see(guard("db-0", apart(), scheduler_name=scheduler_name), a_pod("p", labels=DB))
    said = session.decide()
    why = f"The pod default/db-0 is on a node and excludes this pod by its {REQUIRED_ANTI_AFFINITY}"
    how = f'with the topologyKey "{HOST}", which is not supported by ai-scheduler; the pod is held.'
    assert (binds(said), reports(said)) == ({}, {"p": f"{why} {how}"})
    assert session.scheduler.held() == {("default", ConstraintKind.ANTI_AFFINITY_OF_OTHERS): 1}
    session.tell(PodGone("uid-db-0"))
    assert list(binds(session.decide())) == ["p"]
    assert session.scheduler.held() == {}


@pytest.mark.parametrize(
    ("term", "waits"),
    [
        (apart(), True),
        (apart(matching=selector(app="web")), False),
        (apart(matching=selector()), True),
        (apart(matching=LabelSelector((Requirement("app", Operator.EXISTS),))), True),
        (apart(matching=LabelSelector((Requirement("app", Operator.IN, ("db", "web")),))), True),
        (apart(matching=LabelSelector((Requirement("app", Operator.NOT_IN, ("db",)),))), False),
        (apart("other"), False),
        (apart("other", "default"), True),
        (apart(among=selector()), True),
        (apart(among=selector(team="a")), True),
        (apart(among=selector(team="b")), False),
        (apart("default", among=selector(team="b")), True),
        (PodAffinityTerm(HOST, None), False),
    ],
)
def test_terms_hold_the_pods_that_their_selectors_and_namespaces_match(term: PodAffinityTerm, waits: bool) -> None:
    session = nodes()
    session.tell(NamespaceSeen("default", {"team": "a"}))
    session.see(guard("db-0", term), a_pod("p", labels=DB))
    assert (binds(session.decide()) == {}) == waits


def test_term_without_namespaces_applies_to_the_namespace_of_its_pod() -> None:
    session = nodes()
    session.see(guard("db-0", apart(), namespace="elsewhere"), a_pod("p", labels=DB))
    assert list(binds(session.decide())) == ["p"]


def test_term_of_two_pods_holds_until_both_are_gone_and_names_the_remaining_pod() -> None:
    session = nodes()
    session.see(guard("db-0", apart()), guard("db-1", apart()), a_pod("p", labels=DB))
    session.decide()
    session.tell(PodGone("uid-db-0"))
    assert "The pod default/db-1 is on a node" in reports(session.decide())["p"]
    session.tell(PodGone("uid-db-1"))
    assert list(binds(session.decide())) == ["p"]


def test_held_pod_whose_labels_change_is_tried_again() -> None:
    session = nodes()
    session.see(guard("db-0", apart()), a_pod("p", labels=DB))
    session.decide()
    session.see(a_pod("p", labels={"app": "web"}))
    assert list(binds(session.decide())) == ["p"]


def test_namespace_with_unknown_or_changed_labels_holds_and_releases_its_pods() -> None:
    session = nodes()
    session.see(guard("db-0", apart(among=selector(team="b"))), a_pod("p", labels=DB))
    assert list(reports(session.decide())) == ["p"]
    session.tell(NamespaceSeen("default", {"team": "b"}))
    assert binds(session.decide()) == {}
    session.tell(NamespaceSeen("default", {"team": "a"}))
    assert list(binds(session.decide())) == ["p"]


def test_nominated_pod_loses_its_claim_once_a_pod_on_a_node_excludes_it() -> None:
    session = Session(a_node("n", cpu="1"), a_node("far", cpu="0"), a_pod("low", node="n"))
    session.see(a_pod("high", priority=10, labels=DB))
    assert nominations(session.decide()) == {"high": "n"}
    session.see(guard("db-0", apart()))
    said = session.decide()
    assert (nominations(said), list(reports(said))) == ({"high": ""}, ["high"])


def test_excluded_pod_blocks_no_loan() -> None:
    lender = a_pool("lender", labels={"team": "lender"}, disable_preemption=True)
    session = Session(lender, a_pool("home"), a_node("n", cpu="1", labels={"team": "lender"}))
    session.see(guard("db-0", apart()), a_pod("own", pool="lender", labels=DB), a_pod("guest", pool="home"))
    assert binds(session.decide()) == {"guest": "n"}


def test_borrower_that_is_excluded_on_its_trip_waits_at_home() -> None:
    session = Session(a_pool("home"), a_pool("lender", labels={"team": "x"}), a_node("n", labels={"team": "x"}))
    session.see(a_pod("p", pool="home", labels=DB))
    session.scheduler.decide("home", session.now, 1)
    session.see(guard("db-0", apart()))
    assert binds(session.decide()) == {}
    assert session.scheduler.waiting()["home"] == {"held": 1}


def test_term_of_ten_thousand_pods_is_matched_once() -> None:
    session = Session(a_node("far", pods=20_000), a_node("near"))
    session.scheduler.often = False
    session.scheduler.closely = False
    session.see(*(guard(f"db-{number}", apart()) for number in range(10_000)))
    index = session.scheduler._cluster.anti_affinity
    assert len(index.terms) == 1
    session.see(a_pod("p", labels=DB), a_pod("q"))
    assert list(binds(session.decide())) == ["q"]
    session.tell(*(PodGone(f"uid-db-{number}") for number in range(10_000)))
    assert (index.terms, index._index._found) == ({}, {})
    assert list(binds(session.decide())) == ["p"]


def test_with_ignore_no_pod_is_excluded() -> None:
    profile = replace(default_profile(), hold_unsupported=False)
    session = Session(a_node("far", cpu="0"), a_node("near"), guard("db-0", apart()), profile=profile)
    session.see(a_pod("p", labels=DB))
    assert binds(session.decide()) == {"p": "near"}
