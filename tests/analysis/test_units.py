"""What `explain` and `plan` say of pods that start together; the policy starts two pods of one name or none."""

from typing import Any

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, PodUnit, RemedyKind, Start, Verdict
from aischeduler.analysis.plan import UNIT, Plan, PlannedChange, PlannedUnit, UnitPlan, UnitVerdict, plan
from aischeduler.engine.self_check import digest
from aischeduler.model.names import CLUSTER
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import label_selector
from aischeduler.plugins.inter_pod_affinity import EXISTING
from tests.analysis.test_plan import NOW, event_of
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session
from tests.pairs import PAIR, SPARE, pair_profile

POD: Any = {"cpu": "2"}


def one_of(pair: str, name: str, **fields: Any) -> Pod:
    return a_pod(name, labels={PAIR: pair}, **{**POD, **fields})


def a_pair(**fields: Any) -> tuple[Pod, Pod]:
    return one_of("x", "x-0", **fields), one_of("x", "x-1", **fields)


def explained(name: str, *objects: Node | Pod | Pool) -> Explanation:
    """Return the explanation of a pod once the engine has decided, and check that it leaves the engine as it was."""
    session = Session(*objects, profile=pair_profile())
    session.decide()
    cluster = session.scheduler.cluster
    before = digest(cluster)
    found = explain(cluster, cluster.records[f"uid-{name}"], session.now)
    assert digest(cluster) == before
    assert cluster.units.stale == {}
    session.scheduler.look()
    return found


def both(*objects: Node | Pod | Pool) -> Explanation:
    """Return the explanation of the pod that does not lead its pair, and check that the other's says the same."""
    lead, found = explained("x-0", *objects), explained("x-1", *objects)
    assert (found.pod.name, lead.pod.name) == ("x-1", "x-0")
    for field in ("pool", "home", "verdict", "message", "ahead_pods", "total", "refused", "preemption", "leaving"):
        assert getattr(found, field) == getattr(lead, field), field
    assert (found.borrowing, found.unit) == (lead.borrowing, lead.unit)
    assert [(one.text, one.start.nodes) for one in found.remedies] == [
        (one.text, one.start.nodes) for one in lead.remedies
    ]
    return found


def texts(found: Explanation) -> list[str]:
    return [one.text for one in found.remedies]


def test_pair_that_waits_is_explained_by_its_first_pod_that_does_not_fit() -> None:
    found = both(a_node("n", cpu="3"), a_pod("ahead", cpu="9", priority=1), *a_pair())
    assert (found.verdict, found.ahead, found.ahead_pods) == (Verdict.WAITS, 1, ("default/ahead",))
    assert found.unit == PodUnit("default/x", ("default/x-0", "default/x-1"), 2, "default/x-1", fit=1)
    assert found.message.startswith("1 of the 2 pods that start together fit. The next, x-1: 0/1 nodes are available")
    (refused,) = found.refused
    assert refused.nearest is not None
    assert [(one.name, one.amount, one.asked) for one in refused.nearest.missing] == [("cpu", 1000, 2000)]


def test_single_pod_has_no_unit() -> None:
    assert explained("p", a_node("n"), a_pod("p")).unit is None


def test_pair_ahead_counts_once() -> None:
    found = explained("last", a_node("n", cpu="3"), *a_pair(created=1), a_pod("last", cpu="9", created=2))
    assert (found.ahead, found.ahead_pods) == (1, ("default/x-0",))


def test_pod_without_its_partner_is_gated_with_the_message_of_the_policy() -> None:
    found = explained("x-0", a_node("n"), one_of("x", "x-0"))
    assert (found.verdict, found.message) == (Verdict.GATED, "waits for 1 more pod of its pair")
    assert (found.unit, found.remedies) == (PodUnit("default/x", ("default/x-0",), 0), ())


def test_pair_that_claims_room_waits_for_the_pods_on_all_its_nodes() -> None:
    nodes = a_node("n1", cpu="2"), a_node("n2", cpu="2")
    old = [a_pod(f"old-{node.name}", cpu="2", node=node.name) for node in nodes]
    objects: tuple[Node | Pod, ...] = (*nodes, *old, *a_pair(priority=1))
    found = both(*objects)
    assert (found.verdict, found.leaving) == (Verdict.NOMINATED, ("default/old-n1", "default/old-n2"))
    assert found.preemption == "it waits for 2 pods to leave n1, n2"
    assert {explained(name, *objects).node for name in ("x-0", "x-1")} == {"n1", "n2"}


HOME = a_pool("home", labels={"of": "home"})


def lender(name: str, **fields: Any) -> Pool:
    return a_pool(name, labels={"of": name}, **fields)


def test_lenders_are_judged_by_the_requests_and_the_room_of_the_whole_pair() -> None:
    found = both(
        HOME,
        lender("closed", disable_sharing=True),
        lender("narrow", lending_limit={"cpu": 3000}),
        lender("small"),
        a_node("s", cpu="3", labels={"of": "small"}),
        a_node("n", cpu="4", labels={"of": "narrow"}),
        *a_pair(pool="home"),
    )
    assert {one.pool: one.reason for one in found.borrowing} == {
        "closed": "its disableSharing is true",
        "default": "it has no nodes",
        "narrow": "it lends 0 of at most 3 cpu; the pods that start together request 4",
        "small": "1 of the 2 pods fit; s lacks 1 of 2 cpu",
    }
    assert texts(found) == ["raise lendingLimit of the Pool narrow to 4 cpu"]
    assert found.remedies[0].start == Start("n", "narrow", (), (("default/x-0", "n"), ("default/x-1", "n")))


def seen_after_a_decision(name: str, objects: tuple[Node | Pod | Pool, ...], *later: Node | Pod | Pool) -> Explanation:
    """Return the explanation of a pod where the engine has seen `later` since it decided."""
    session = Session(*objects, profile=pair_profile())
    session.decide()
    session.see(*later)
    cluster = session.scheduler.cluster
    session.scheduler.decide(CLUSTER, session.now, 0)  # forms units, and tries no pod
    return explain(cluster, cluster.records[f"uid-{name}"], session.now)


def test_pair_that_fits_at_a_lender_is_said_to_start_there_whole() -> None:
    closed, pair = lender("l", disable_sharing=True), a_pair(pool="home")
    nodes = [a_node(f"l{i}", cpu="2", labels={"of": "l"}) for i in (1, 2)]
    found = seen_after_a_decision("x-1", (HOME, closed, *nodes, *pair), lender("l"))
    assert found.start is not None
    assert (found.start.pool, sorted(found.start.all_nodes)) == ("l", ["l1", "l2"])


def test_pair_that_would_evict_names_the_victims_on_all_nodes() -> None:
    nodes = a_node("n1", cpu="2"), a_node("n2", cpu="2")
    old = [a_pod(f"old-{node.name}", cpu="2", node=node.name) for node in nodes]
    found = seen_after_a_decision("x-1", (*nodes, *old), *a_pair(priority=1))
    assert found.start is not None
    assert set(found.start.victims) == {"uid-old-n1", "uid-old-n2"}
    assert dict(found.start.nodes)["default/x-1"] == found.start.node
    assert sorted(found.start.all_nodes) == ["n1", "n2"]
    assert found.preemption == "it would evict 2 pods on n1, n2"


def test_single_pod_that_would_evict_a_pair_names_the_nodes_of_both() -> None:
    running = one_of("x", "x-0", node="n1"), one_of("x", "x-1", node="n2")
    objects = (a_node("n1", cpu="2"), a_node("n2", cpu="2"), *running)
    found = seen_after_a_decision("high", objects, a_pod("high", cpu="2", priority=1))
    assert found.preemption == "it would evict 2 pods on n1, n2"


def test_pod_that_its_unit_does_not_need_has_no_node_where_only_the_others_fit() -> None:
    three = (*a_pair(), one_of("x", "x-2", created=9))
    cordoned = a_node("m", cpu="2", unschedulable=True)
    nodes = a_node("n", cpu="2"), a_node("small", cpu="1"), cordoned
    found = seen_after_a_decision("x-2", (*nodes, *three), a_node("m", cpu="2"))
    assert found.unit == PodUnit("default/x", ("default/x-0", "default/x-1", "default/x-2"), 2)
    assert found.start is not None
    assert (found.start.node, found.start.nodes) == ("", (("default/x-0", "m"), ("default/x-1", "n")))


def test_only_a_node_with_room_for_the_whole_pair_is_uncordoned() -> None:
    small = a_node("small", cpu="2", unschedulable=True)
    assert texts(both(a_node("n", cpu="1"), small, *a_pair())) == []
    large = a_node("large", cpu="4", unschedulable=True)
    assert texts(both(a_node("n", cpu="1"), small, large, *a_pair())) == ["uncordon the node large"]
    assert texts(both(a_node("n", cpu="2"), small, *a_pair()))[0] == "uncordon the node small"


def test_node_is_added_for_the_pod_that_does_not_fit() -> None:
    found = both(a_node("n", cpu="2"), *a_pair())
    assert texts(found) == ["add a node like n to the Pool default"]
    assert found.remedies[0].start.nodes == (("default/x-0", "n"), ("default/x-1", ""))
    assert texts(both(a_node("n", cpu="2"), a_pod("old", cpu="2", node="n", priority=9), *a_pair())) == []


def test_node_is_labelled_for_the_pod_that_does_not_fit() -> None:
    picky = one_of("x", "x-1", node_selector={"disk": "ssd"})
    assert texts(both(a_node("n", cpu="4"), one_of("x", "x-0"), picky)) == ["label the node n disk=ssd"]


def test_lower_requests_are_no_remedies_of_a_pair() -> None:
    old = a_pod("old", cpu="2", node="n", priority=9)
    node = a_node("n", cpu="4")
    alone = explained("p", node, old, a_pod("p", cpu="4"))
    assert RemedyKind.REQUEST in {one.kind for one in alone.remedies}
    assert {one.kind for one in both(node, old, *a_pair()).remedies} == {RemedyKind.NODE, RemedyKind.PODS_END}


def ends(cpus: tuple[int, ...], *nodes: str) -> list[str]:
    """Return which pods end for a pair of two CPUs a pod, where each node is full of pods of these CPUs."""
    full = [a_node(name, cpu=str(sum(cpus))) for name in nodes]
    old = [
        a_pod(f"{name}-{place}", cpu=str(cpu), node=name, priority=9)
        for name in nodes
        for place, cpu in enumerate(cpus)
    ]
    return [text for text in texts(both(*full, *old, *a_pair())) if text.startswith("end")]


def test_few_pods_end_for_a_pair_on_one_node_or_several_and_none_that_need_not() -> None:
    assert ends((2, 1, 1), "m", "n") == ["end these pods on m, n: default/m-0, default/n-0"]
    assert ends((2, 4), "m") == ["end the pod on m: default/m-1"]


def test_pair_of_which_a_pod_excludes_one_waits_and_says_why() -> None:
    term = PodAffinityTerm("kubernetes.io/hostname", label_selector("x", {PAIR: "x"}, ()), ("default",))
    blocker = a_pod("blocker", node="n", pod_affinity=pod_affinity(anti_required=(term,)))
    found = both(a_node("n", cpu="9", labels={"kubernetes.io/hostname": "n"}), blocker, *a_pair())
    assert found.verdict is Verdict.WAITS
    assert EXISTING in found.message


def test_running_pod_of_a_pair_names_the_pods_of_its_unit() -> None:
    found = explained("x-0", a_node("n1"), a_node("n2"), *(replace(pod, node_name="n1") for pod in a_pair()))
    assert (found.verdict, found.node) == (Verdict.BOUND, "n1")
    assert found.unit == PodUnit("default/x", ("default/x-0", "default/x-1"), 0)
    assert [name for name, _ in found.ranking] == ["n2", "n1"]


def test_pair_whose_end_is_tried_can_spare_as_many_pods_as_before() -> None:
    running = [a_pod(name, cpu="2", node="n", priority=9, labels={PAIR: "x", SPARE: "y"}) for name in ("x-0", "x-1")]
    session = Session(a_node("n", cpu="4"), *running, a_pod("p", cpu="4"), profile=pair_profile())
    session.decide()
    cluster = session.scheduler.cluster
    spare = dict(cluster.running.spare)
    found = explain(cluster, cluster.records["uid-p"], session.now)
    assert "end these pods on n: default/x-0, default/x-1" in texts(found)
    assert spare
    assert (cluster.running.spare, cluster.units.stale) == (spare, {})


def planned(objects: tuple[Node | Pod | Pool, ...], *pods: Pod, without: tuple[str, ...] = ()) -> Plan:
    """Return the plan of plain pods, and of drained nodes."""
    snapshot = ClusterSnapshot(NOW, tuple(event_of(one) for one in objects))
    units = tuple(PlannedUnit("Pod", pod.namespace, pod.name, (pod,)) for pod in pods)
    return plan(ClusterCopy(pair_profile(), snapshot), PlannedChange(units, without=without))


def only(made: Plan) -> UnitPlan:
    (found,) = made.units
    return found


def test_objects_whose_pods_form_a_pair_are_one_unit_of_the_plan() -> None:
    nodes = a_node("n1", cpu="2"), a_node("n2", cpu="2"), a_node("n3", cpu="1")
    made = planned(nodes, one_of("x", "x-0"), a_pod("single", cpu="1"), one_of("x", "x-1"))
    pair, single = made.units
    assert (pair.unit.kind, pair.unit.namespace, pair.unit.name) == (UNIT, "", "default/x")
    assert (pair.verdict, sorted(pair.nodes)) == (UnitVerdict.STARTS, ["default/x-0", "default/x-1"])
    assert sorted(pair.nodes.values()) == ["n1", "n2"]
    assert (single.unit.kind, single.nodes) == ("Pod", {"single": "n3"})


def test_pair_of_a_plan_has_one_list_of_victims() -> None:
    nodes = a_node("n1", cpu="2"), a_node("n2", cpu="2")
    old = [a_pod(f"old-{node.name}", cpu="2", node=node.name) for node in nodes]
    made = planned((*nodes, *old), *a_pair(priority=1))
    assert (only(made).verdict, sorted(only(made).evicts)) == (UnitVerdict.EVICTS, ["default/old-n1", "default/old-n2"])
    assert made.other_evictions == ()


def test_pair_of_a_plan_has_one_lender() -> None:
    node = a_node("l", cpu="4", labels={"of": "l"})
    made = only(planned((HOME, lender("l"), node), *a_pair(pool="home")))
    assert (made.verdict, set(made.lenders.values()), len(made.lenders)) == (UnitVerdict.BORROWS, {"l"}, 2)


def test_pair_of_a_plan_that_does_not_fit_waits_whole() -> None:
    made = only(planned((a_node("n", cpu="3"),), *a_pair()))
    assert (made.verdict, made.nodes, list(made.waits)) == (UnitVerdict.WAITS, {}, ["default/x-0", "default/x-1"])
    assert made.waits_for.startswith("1 of the 2 pods that start together fit.")


def test_pod_of_a_plan_without_its_partner_waits_for_it() -> None:
    made = only(planned((a_node("n"),), one_of("x", "x-0")))
    assert (made.unit.kind, made.unit.name) == ("Pod", "x-0")
    assert (made.verdict, made.waits_for) == (UnitVerdict.WAITS, "waits for 1 more pod of its pair")


def test_pod_of_a_plan_that_completes_a_pair_names_the_node_of_the_pod_that_waits_already() -> None:
    nodes = a_node("n1", cpu="2"), a_node("n2", cpu="2")
    old = [a_pod(f"old-{node.name}", cpu="2", node=node.name) for node in nodes]
    first, second = a_pair(priority=1)
    made = planned((*nodes, *old, first), second)
    (start,) = made.other_starts
    assert (start.pod.name, only(made).nodes) == ("x-0", {"x-1": "n1" if start.node == "n2" else "n2"})
    assert only(made).notes == (f"default/x-0 of its unit, which waits already, starts on {start.node}",)
    assert (only(made).verdict, sorted(only(made).evicts)) == (UnitVerdict.EVICTS, ["default/old-n1", "default/old-n2"])
    assert made.other_evictions == ()


def test_drained_nodes_of_a_pair_stay_two_units_whose_pods_start_together() -> None:
    running = one_of("x", "x-0", node="n1"), one_of("x", "x-1", node="n2")
    nodes = [a_node(name, cpu="2") for name in ("n1", "n2", "n3")]
    made = planned((*nodes, *running), without=("n1", "n2"))
    assert [(one.unit.name, one.verdict, one.nodes) for one in made.units] == [
        ("n1", UnitVerdict.WAITS, {}),
        ("n2", UnitVerdict.WAITS, {}),
    ]
    made = planned((*nodes, a_node("n4", cpu="2"), *running), without=("n1", "n2"))
    assert [sorted(one.nodes) for one in made.units] == [["default/x-0"], ["default/x-1"]]


def test_pod_that_waits_already_is_noted_once_for_several_pods_of_its_unit() -> None:
    first, second = a_pair()
    made = only(planned((a_node("n", cpu="6"), first), second, one_of("x", "x-2")))
    assert (made.unit.kind, made.nodes) == (UNIT, {"default/x-1": "n", "default/x-2": "n"})
    assert made.notes == ("default/x-0 of its unit, which waits already, starts on n",)
