"""Inter-pod affinity in the engine: what pods exclude and attract, classes of pods, wake-ups, and making room."""

import pytest

from aischeduler.model.events import Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.pool import Namespace
from aischeduler.model.selectors import LabelSelector, Operator, Requirement, label_selector
from aischeduler.plugins.inter_pod_affinity import EXISTING
from tests.affinity_terms import chosen
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, nominations, reports
from tests.gangs import a_gang, member

HOST = "kubernetes.io/hostname"
DB = {"app": "db"}


def selector(**labels: str) -> LabelSelector:
    return label_selector("labelSelector", labels, ())


def term(
    *namespaces: str, key: str = HOST, matching: LabelSelector | None = None, among: LabelSelector | None = None
) -> PodAffinityTerm:
    named = namespaces if namespaces or among is not None else ("default",)
    return PodAffinityTerm(key, matching or selector(app="db"), named, among)


def guard(name: str, one: PodAffinityTerm, node: str = "far", scheduler_name: str = "other") -> Pod:
    """Return a pod on a node that keeps the pods of this term away."""
    return a_pod(name, node=node, scheduler_name=scheduler_name, pod_affinity=pod_affinity(anti_required=(one,)))


def hosts(*names: str, cpu: str = "9", zone: str = "a") -> Session:
    return Session(*(a_node(name, cpu=cpu, labels={HOST: name, "zone": zone}) for name in names))


@pytest.mark.parametrize(
    ("one", "waits"),
    [
        (term(), True),
        (term(matching=selector(app="web")), False),
        (term(matching=selector()), True),
        (term(matching=LabelSelector((Requirement("app", Operator.EXISTS),))), True),
        (term(matching=LabelSelector((Requirement("app", Operator.IN, ("db", "web")),))), True),
        (term(matching=LabelSelector((Requirement("app", Operator.NOT_IN, ("db",)),))), False),
        (term("other"), False),
        (term("other", "default"), True),
        (term(among=selector()), True),
        (term(among=selector(team="a")), True),
        (term(among=selector(team="b")), False),
        (term("default", among=selector(team="b")), True),
        (term(key="no-such-label"), False),
        (PodAffinityTerm(HOST, None, ("default",)), False),
    ],
)
def test_terms_exclude_the_pods_that_their_selectors_and_namespaces_match(one: PodAffinityTerm, waits: bool) -> None:
    session = hosts("far")
    session.tell(Seen(Namespace("default", {"team": "a"})))
    session.see(guard("db-0", one), a_pod("p", labels=DB))
    assert (binds(session.decide()) == {}) == waits


def test_term_of_two_pods_excludes_until_both_are_gone() -> None:
    session = hosts("far")
    session.see(guard("db-0", term()), guard("db-1", term()), a_pod("p", labels=DB))
    session.decide()
    session.tell(gone(Pod, "uid-db-0"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-db-1"))
    assert list(binds(session.decide())) == ["p"]


def test_pod_of_a_namespace_with_unknown_labels_keeps_away_until_they_are_known() -> None:
    session = hosts("far")
    session.see(guard("db-0", term(among=selector(team="b"))), a_pod("p", labels=DB))
    assert list(reports(session.decide())) == ["p"]
    session.tell(Seen(Namespace("default", {"team": "b"})))
    assert binds(session.decide()) == {}
    session.tell(Seen(Namespace("default", {"team": "a"})))
    assert list(binds(session.decide())) == ["p"]


def test_pods_of_one_spec_that_a_new_term_tells_apart_do_not_wait_for_each_other() -> None:
    session = hosts("far", cpu="1")
    session.see(a_pod("old", cpu="1", node="far", priority=9), a_pod("one", labels=DB), a_pod("two"))
    assert binds(session.decide()) == {}
    session.see(guard("db-0", term(), scheduler_name="other"))
    session.see(a_node("far", cpu="2", labels={HOST: "far"}))
    session.tell(gone(Pod, "uid-old"))
    assert binds(session.decide(10)) == {"two": "far"}


def jobs(session: Session, count: int, namespace: str = "default", first: int = 0) -> set[bytes]:
    """Let a waiting pod of each of some Jobs come; return their classes."""
    names = [f"{namespace}-j{first + number}" for number in range(count)]
    session.see(*(a_pod(name, namespace=namespace, cpu="99", labels={"job-name": name}) for name in names))
    records = session.scheduler.cluster.records
    return {records[f"uid-{name}"].pod.spec.key for name in names}


def test_a_term_on_the_name_of_a_job_divides_no_other_jobs_and_nothing_once_its_pod_is_gone() -> None:
    session = hosts("far")
    session.see(guard("g", term(matching=selector(**{"job-name": "default-j7"}))))
    assert len(jobs(session, 50)) == 2, "the Job that the term names, and the others"
    assert len(jobs(session, 50, "team")) == 1, "it selects no pods of this namespace"
    session.tell(gone(Pod, "uid-g"))
    assert len(jobs(session, 50, first=100)) == 1
    assert jobs(session, 1, first=200) == jobs(session, 1, "team", first=200)


def test_a_waiting_pod_of_another_scheduler_divides_no_class() -> None:
    session = hosts("far")
    session.see(guard("g", term(matching=selector(**{"job-name": "default-j7"})), node=""))
    assert len(jobs(session, 50)) == 1


def test_parked_pods_of_classes_that_became_one_are_all_tried() -> None:
    session = hosts("far", cpu="1")
    session.see(guard("g", term(matching=chosen("job-name"))), a_pod("full", node="far", priority=9))
    session.see(*(a_pod(f"p{number}", labels={"app": "x"}, created=1 + number) for number in range(3)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-g"))
    session.see(a_pod("q", labels={"app": "x"}, created=9), a_node("far", cpu="99", labels={HOST: "far"}))
    assert sorted(binds(session.decide())) == ["p0", "p1", "p2", "q"]


def test_surplus_pod_of_a_gang_keeps_off_the_node_of_a_pod_that_excludes_it_and_came_after_it() -> None:
    session = hosts("far", "near", cpu="2")
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(*(member(a_pod(f"g-{turn}", cpu="1", labels=DB), gang) for turn in range(3)))
    session.see(guard("db-0", term()))
    said = session.decide()
    assert binds(said) == {"g-0": "near", "g-1": "near"}
    assert EXISTING in reports(said)["g-2"]


def test_all_pods_of_a_waiting_gang_change_their_classes_with_a_new_term() -> None:
    session = hosts("far", cpu="2")
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(a_pod("old", cpu="2", node="far", priority=9))
    session.see(*(member(a_pod(f"g-{turn}", cpu="1", labels=DB if turn else {}), gang) for turn in range(3)))
    session.decide()
    session.see(guard("db-0", term()))
    session.decide()
    records = session.scheduler.cluster.records
    assert session.scheduler.cluster.deferred.look_at("default").dividing == {}
    labels = [records[f"uid-g-{turn}"].pod.spec.labels for turn in range(3)]
    assert labels == [(), (("app", "db"),), (("app", "db"),)]


def test_pods_come_together_where_the_first_of_them_is() -> None:
    near = pod_affinity(required=(term(key="zone"),))
    session = Session(
        *(a_node(name, cpu="2", labels={"zone": zone}) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))),
        a_node("bare", cpu="9"),
    )
    session.see(*(a_pod(f"p-{number}", labels=DB, pod_affinity=near) for number in range(5)))
    placed = binds(session.decide())
    zones = {node[0] for node in placed.values()}
    assert (len(placed), zones) == ((4, {"a"}) if "a" in zones else (2, {"b"}))


def test_pod_is_evicted_for_a_pod_that_keeps_away_from_it() -> None:
    session = Session(a_node("n", cpu="9", labels={HOST: "n"}))
    session.see(a_pod("low", node="n"), a_pod("db-0", node="n", labels=DB))
    session.see(a_pod("high", priority=10, pod_affinity=pod_affinity(anti_required=(term(),))))
    assert set(evictions(session.decide())) == {"db-0"}


def test_excluded_pod_blocks_no_loan() -> None:
    lender = a_pool("lender", labels={"team": "lender"})
    session = Session(lender, a_pool("home"), a_node("n", cpu="1", labels={"team": "lender", HOST: "n"}))
    session.see(a_node("far", cpu="1", labels={HOST: "n"}))
    session.see(guard("db-0", term()), a_pod("own", pool="lender", labels=DB), a_pod("guest", pool="home"))
    assert binds(session.decide()) == {"guest": "n"}


def test_pods_on_nodes_of_other_pools_count() -> None:
    session = Session(a_pool("one", labels={"team": "x"}), a_pool("two", labels={"team": "y"}, disable_sharing=True))
    session.see(a_node("x1", labels={"team": "x", "zone": "a"}), a_node("x2", labels={"team": "x", "zone": "b"}))
    session.see(a_node("y1", labels={"team": "y", "zone": "a"}), guard("db-0", term(key="zone"), node="y1"))
    session.see(a_pod("p", pool="one", labels=DB))
    assert binds(session.decide()) == {"p": "x2"}


def test_term_of_ten_thousand_pods_is_counted_once() -> None:
    session = Session(a_node("far", pods=20_000, labels={HOST: "far"}), a_node("near", cpu="0", labels={HOST: "near"}))
    session.scheduler.often = False
    session.scheduler.closely = False
    session.see(*(guard(f"db-{number}", term()) for number in range(10_000)))
    counts = session.scheduler.cluster.nodes.pod_counts
    assert len(counts.all()) == 1
    session.see(a_pod("p", cpu="0", labels=DB), a_pod("q", cpu="0"))
    placed = binds(session.decide())
    assert placed["p"] == "near"
    session.tell(*(gone(Pod, f"uid-db-{number}") for number in range(10_000)))
    assert (counts.all(), counts._index._found, counts.terms._index._found) == ((), {}, {})


def test_preferred_terms_of_both_sides_choose_the_domain() -> None:
    near, away = pod_affinity(preferred=((50, term()),)), pod_affinity(preferred=((-50, term()),))
    for terms, node in ((near, "far"), (away, "near")):
        session = hosts("far", "near", cpu="64")
        session.see(a_pod("db-0", cpu="10m", memory="1Mi", labels=DB, node="far"))
        session.see(a_pod("p", cpu="10m", memory="1Mi", pod_affinity=terms))
        assert binds(session.decide()) == {"p": node}
        session = hosts("far", "near", cpu="64")
        session.see(a_pod("wants", cpu="10m", memory="1Mi", node="far", pod_affinity=terms))
        session.see(a_pod("p", cpu="10m", memory="1Mi", labels=DB))
        assert binds(session.decide()) == {"p": node}


def test_claim_follows_its_owner_into_another_class() -> None:
    session = Session(a_node("n", cpu="2", labels={HOST: "n"}))
    session.see(a_pod("low", cpu="2", node="n"), a_pod("high", cpu="2", priority=10, labels=DB))
    assert nominations(session.decide()) == {"high": "n"}
    session.see(guard("db-0", term(), node="elsewhere"))
    cluster = session.scheduler.cluster
    cluster.queues[DEFAULT_POOL].wake_at_once(cluster.records["uid-high"], session.now)
    session.decide()
    session.tell(gone(Pod, "uid-low"))
    assert binds(session.decide()) == {"high": "n"}


def two_pools(*, disable_preemption: bool = False) -> Session:
    """Return a lender with the node n, and a pool without nodes that decides first."""
    lender = a_pool("lender", labels={"team": "lender"}, disable_preemption=disable_preemption)
    session = Session(lender, a_pool("home"))
    session.see(a_node("n", cpu="4", labels={"team": "lender", HOST: "n"}))
    return session


def test_pod_borrows_once_the_pods_of_the_lender_that_came_with_its_companion_are_placed() -> None:
    session = two_pools()
    session.see(a_pod("guest", pool="home", pod_affinity=pod_affinity(required=(term(),))))
    assert binds(session.decide()) == {}
    session.see(a_pod("db-0", node="n", labels=DB, scheduler_name="other"), a_pod("own", pool="lender"))
    assert binds(session.decide()) == {"guest": "n", "own": "n"}


def test_pod_borrows_once_the_pod_that_kept_the_room_lacks_its_companion() -> None:
    session = two_pools(disable_preemption=True)
    session.see(a_pod("db-0", node="n", labels=DB, scheduler_name="other"))
    session.see(a_pod("own", cpu="4", pool="lender", pod_affinity=pod_affinity(required=(term(),))))
    session.see(a_pod("guest", pool="home"))
    assert binds(session.decide()) == {}
    session.see(a_pod("db-0", node="n", labels={"app": "web"}, scheduler_name="other"))
    assert binds(session.decide()) == {"guest": "n"}


def test_pod_preempts_once_the_namespace_of_the_pod_that_it_needs_has_the_labels() -> None:
    near = pod_affinity(required=(term(key="zone", among=selector(team="a")),))
    session = Session(a_node("n", cpu="1", labels={"zone": "z"}), a_node("m", cpu="1", labels={"zone": "z"}))
    session.see(a_pod("db-0", node="m", labels=DB), a_pod("low", node="n"))
    session.see(a_pod("high", priority=10, pod_affinity=near))
    session.tell(Seen(Namespace("default", {})))
    assert evictions(session.decide()) == {}
    session.tell(Seen(Namespace("default", {"team": "a"})))
    assert list(evictions(session.decide())) == ["low"]


def test_nominated_pods_that_belong_together_take_room_elsewhere_although_they_claim_room() -> None:
    near = pod_affinity(required=(term(),))
    session = Session(*(a_node(name, cpu="2", labels={HOST: name}) for name in ("n", "m")))
    session.see(a_pod("low", cpu="2", node="n"), a_pod("other", cpu="2", node="m", priority=20))
    session.see(*(a_pod(f"p-{number}", priority=10, labels=DB, pod_affinity=near) for number in range(2)))
    assert nominations(session.decide()) == {"p-0": "n", "p-1": "n"}
    session.tell(gone(Pod, "uid-other"))
    assert binds(session.decide()) == {"p-0": "m", "p-1": "m"}


def test_pods_of_a_class_all_start_although_the_first_leaves_it_because_the_term_that_divided_it_is_gone() -> None:
    session = Session(a_pool("b", labels={"pool": "b"}, disable_sharing=True))
    session.see(a_node("far", labels={"zone": "a", "pool": "b"}), a_node("near", cpu="9", labels={"zone": "a"}))
    session.see(guard("db-0", term(key="zone")), *(a_pod(f"p{number}", labels=DB) for number in range(3)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-db-0"))
    found = binds(session.decide())
    for _ in range(3):
        found |= binds(session.decide(seconds=10))
    assert sorted(found) == ["p0", "p1", "p2"]


def test_pod_that_brings_a_companion_and_a_term_of_its_own_wakes_the_class_that_it_divides() -> None:
    session, web = hosts("far", cpu="2"), {"app": "web"}
    session.see(a_pod("old", cpu="2", node="far", phase="Running"))
    beside = pod_affinity(required=(term(),))
    session.see(*(a_pod(f"p{number}", cpu="1", priority=9, labels=web, pod_affinity=beside) for number in range(2)))
    assert evictions(session.decide()) == {}
    away = pod_affinity(anti_required=(term(key="rack", matching=selector(**web)),))
    session.see(a_pod("db", cpu="100m", node="far", labels=DB, pod_affinity=away, scheduler_name="other"))
    assert evictions(session.decide()) == {"old": "Preempted"}
