"""The remedies of single cases; random clusters, and that remedies have nothing to spare, are in test_truth."""

from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, Remedy, RemedyKind
from aischeduler.engine.self_check import digest
from aischeduler.model.names import MACHINE_GROUP_KEY
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.pod_affinity import PodAffinityTerm, pod_affinity
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, a_pool, a_taint
from tests.engine.session import Session


def explained(name: str, *objects: Node | Pod | Pool) -> Explanation:
    """Return the explanation of a pod once the engine has decided, and check that it leaves the engine as it was."""
    session = Session(*objects)
    session.decide()
    cluster = session.scheduler.cluster
    before = digest(cluster)
    found = explain(cluster, cluster.records[f"uid-{name}"], session.now)
    assert digest(cluster) == before
    session.scheduler.look()
    return found


def texts(explanation: Explanation, kind: RemedyKind | None = None) -> list[str]:
    return [one.text for one in explanation.remedies if kind in (None, one.kind)]


def only(explanation: Explanation, kind: RemedyKind) -> Remedy:
    (remedy,) = [one for one in explanation.remedies if one.kind is kind]
    return remedy


def test_request_is_lowered_to_what_one_node_has() -> None:
    found = explained("p", a_node("a", cpu="64", gpu=4), a_node("b", cpu="64", gpu=6), a_pod("p", gpu=8))
    assert texts(found) == ["request 6 instead of 8 nvidia.com/gpu"]
    assert found.remedies[0].start.node == "b"


def test_request_that_needs_evictions_comes_beside_the_one_that_needs_none() -> None:
    found = explained(
        "p",
        a_node("a", cpu="64", gpu=8),
        a_pod("idle", gpu=2, node="a", priority=1),
        a_pod("kept", gpu=4, node="a", priority=9),
        a_pod("p", gpu=8, priority=5),
    )
    kinds = [(one.text, len(one.start.victims)) for one in found.remedies if one.kind is RemedyKind.REQUEST]
    assert kinds == [
        ("request 2 instead of 8 nvidia.com/gpu", 0),
        ("request 4 instead of 8 nvidia.com/gpu", 1),
    ]


def test_request_of_a_pod_that_two_resources_keep_waiting_is_not_lowered() -> None:
    found = explained("p", a_node("a", cpu="4", gpu=4), a_pod("p", cpu="8", gpu=8))
    assert texts(found) == []


def test_cordoned_node_is_uncordoned_with_its_taint() -> None:
    taint = a_taint("node.kubernetes.io/unschedulable")
    found = explained("p", a_node("n", unschedulable=True, taints=(taint,)), a_pod("p", cpu="1"))
    assert "uncordon the node n" in texts(found, RemedyKind.NODE)


def test_node_with_the_fewest_missing_labels_is_labelled() -> None:
    found = explained(
        "p",
        a_node("a", labels={}),
        a_node("b", labels={"zone": "x"}),
        a_pod("p", node_selector={"disk": "ssd", "zone": "x"}),
    )
    assert texts(found) == ["label the node b disk=ssd"]


def test_label_that_a_node_has_is_not_changed() -> None:
    assert texts(explained("p", a_node("a", labels={"disk": "hdd"}), a_pod("p", node_selector={"disk": "ssd"}))) == []


def test_label_that_moves_the_node_to_another_pool_is_no_remedy() -> None:
    owner = a_pool("other", labels={"disk": "ssd"}, disable_sharing=True)
    assert texts(explained("p", owner, a_node("a"), a_pod("p", node_selector={"disk": "ssd"}))) == []


def test_node_like_the_smallest_that_holds_the_pod_is_added_last() -> None:
    big, small = a_node("big", cpu="64", gpu=8), a_node("small", cpu="64", gpu=4)
    found = explained(
        "p", big, small, a_pod("x", gpu=8, node="big"), a_pod("y", gpu=4, node="small"), a_pod("p", gpu=4)
    )
    assert texts(found)[-1] == "add a node like small to the Pool default"


def test_borrowing_limit_is_raised_by_what_is_missing_of_each_resource() -> None:
    limit = {"nvidia.com/gpu": 4, "cpu": 1000}
    found = explained(
        "p",
        a_pool("home", borrowing_limit=limit),
        a_node("n", cpu="64", gpu=8),
        a_pod("lent", cpu="500m", gpu=3, pool="home", node="n"),
        a_pod("p", cpu="1", gpu=2, pool="home"),
    )
    assert texts(found, RemedyKind.LIMIT) == ["raise borrowingLimit of the Pool home to 1500m cpu, 5 nvidia.com/gpu"]


def test_lending_limit_of_a_pool_with_room_is_raised() -> None:
    lender = a_pool("lender", labels={"of": "lender"}, lending_limit={"nvidia.com/gpu": 1})
    found = explained(
        "p", a_pool("home"), lender, a_node("n", gpu=8, labels={"of": "lender"}), a_pod("p", gpu=2, pool="home")
    )
    assert texts(found, RemedyKind.LIMIT) == ["raise lendingLimit of the Pool lender to 2 nvidia.com/gpu"]


def test_flags_that_stop_a_loan_are_named_alone() -> None:
    room = a_node("n", labels={"of": "lender"})
    pod = a_pod("p", pool="home")
    lender = a_pool("lender", labels={"of": "lender"})
    closed = a_pool("lender", labels={"of": "lender"}, disable_sharing=True)
    for home, other, said in (
        (a_pool("home", disable_borrowing=True), lender, "set disableBorrowing of the Pool home to false"),
        (a_pool("home", borrowing_pools=()), lender, "add lender to borrowingPools of the Pool home"),
        (a_pool("home"), closed, "set disableSharing of the Pool lender to false"),
    ):
        assert texts(explained("p", home, other, room, pod)) == [said]
    assert texts(explained("p", a_pool("home", disable_borrowing=True), closed, room, pod)) == []


def test_preemption_is_switched_on_and_the_evictions_are_counted() -> None:
    home = a_pool("home", labels={"of": "home"}, disable_preemption=True, disable_borrowing=True)
    busy = a_pod("busy", gpu=8, pool="home", node="n", priority=1)
    node = a_node("n", gpu=8, labels={"of": "home"})
    found = explained("p", home, node, busy, a_pod("p", gpu=8, pool="home", priority=2))
    flag = only(found, RemedyKind.FLAG)
    assert (flag.text, flag.start.victims) == ("set disablePreemption of the Pool home to false", ("uid-busy",))
    assert found.remedies[-1] is flag  # starts at once come first


def test_pool_that_takes_no_pods_of_the_namespace_is_opened() -> None:
    home = a_pool("home", labels={"of": "home"}, allowed_namespaces={"team": "x"})
    found = explained("p", home, a_node("n", labels={"of": "home"}), a_pod("p", pool="home"))
    assert texts(found, RemedyKind.FLAG) == ["remove allowedNamespaces of the Pool home"]


def test_pods_end_on_the_node_where_fewer_are_enough() -> None:
    found = explained(
        "p",
        a_node("a", cpu="64", gpu=8),
        a_node("b", cpu="64", gpu=8),
        *(a_pod(f"a{number}", gpu=2, node="a", priority=5) for number in range(4)),
        a_pod("b1", gpu=5, node="b", priority=9),
        a_pod("b2", gpu=3, node="b", priority=9),
        a_pod("p", gpu=5, priority=5),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on b: default/b1"]


def test_of_as_many_pods_the_least_important_end() -> None:
    found = explained(
        "p",
        a_node("a", cpu="64", gpu=8),
        a_pod("high", gpu=4, node="a", priority=9),
        a_pod("low", gpu=4, node="a", priority=8),
        a_pod("p", gpu=4, priority=5),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on a: default/low"]


def test_pods_whose_room_goes_to_an_owner_that_waits_are_not_named() -> None:
    found = explained(
        "p",
        a_pool("home"),
        a_pool("lender", labels={"of": "lender"}),
        a_node("n", cpu="3", labels={"of": "lender"}),
        a_pod("big", cpu="2", pool="lender", node="n", priority=1),
        a_pod("small", cpu="1", pool="lender", node="n", priority=2),
        a_pod("owner", cpu="2", pool="lender"),
        a_pod("p", cpu="1", pool="home"),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on n: default/small"]


def test_fewer_pods_end_on_another_node_than_that_of_an_owner_that_waits() -> None:
    found = explained(
        "p",
        a_pool("home"),
        a_pool("lender", labels={"of": "lender"}),
        a_pool("other", labels={"of": "other"}),
        a_node("a", cpu="3", labels={"of": "lender"}),
        a_pod("big", cpu="2", pool="lender", node="a", priority=1),
        *(a_pod(f"half-{number}", cpu="500m", pool="lender", node="a", priority=2) for number in range(2)),
        a_pod("owner", cpu="2", pool="lender"),
        a_node("b", cpu="1", labels={"of": "other"}),
        a_pod("b1", cpu="1", pool="other", node="b", priority=9),
        a_pod("p", cpu="1", pool="home"),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on b: default/b1"]


def test_fewer_pods_end_where_evictions_do_the_rest() -> None:
    found = explained(
        "p",
        a_node("a", cpu="64", gpu=8),
        a_pod("low", gpu=4, node="a", priority=1),
        a_pod("high", gpu=2, node="a", priority=9),
        a_pod("higher", gpu=2, node="a", priority=10),
        a_node("b", cpu="64", gpu=8),
        *(a_pod(f"b{number}", gpu=2, node="b", priority=9) for number in range(4)),
        a_pod("p", gpu=6, priority=5),
    )
    ends = [(one.text, one.start.victims) for one in found.remedies if one.kind is RemedyKind.PODS_END]
    assert ends == [
        ("end these pods on a: default/low, default/high", ()),
        ("end the pod on a: default/high", ("uid-low",)),
    ]


def test_pods_that_come_back_or_keep_the_node_up_are_not_named() -> None:
    guarded = a_pod("daemon", gpu=8, node="a", guarded=True)
    critical = a_pod("system", gpu=8, node="b", priority=2_000_000_000)
    found = explained("p", a_node("a", gpu=8), a_node("b", gpu=8), guarded, critical, a_pod("p", gpu=8))
    assert texts(found, RemedyKind.PODS_END) == []


def test_pod_that_has_the_host_port_ends() -> None:
    port = HostPort("TCP", 80)
    found = explained(
        "p",
        a_node("n"),
        a_pod("other", node="n", host_ports=(port,), priority=1),
        a_pod("p", host_ports=(port,), priority=1),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on n: default/other"]


def test_pod_that_excludes_the_pod_ends() -> None:
    term = PodAffinityTerm("kubernetes.io/hostname", label_selector("x", {"app": "web"}, ()), ("default",))
    blocker = a_pod("blocker", node="n", pod_affinity=pod_affinity(anti_required=(term,)))
    node = a_node("n", cpu="64", labels={"kubernetes.io/hostname": "n"})
    found = explained("p", node, blocker, a_pod("p", labels={"app": "web"}))
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on n: default/blocker"]


def test_end_of_a_loan_makes_room_within_the_borrowing_limit() -> None:
    found = explained(
        "p",
        a_pool("home", borrowing_limit={"nvidia.com/gpu": 2}),
        a_node("n", cpu="64", gpu=8),
        a_pod("lent", gpu=2, pool="home", node="n"),
        a_pod("p", gpu=2, pool="home"),
    )
    assert texts(found, RemedyKind.PODS_END) == ["end the pod on n: default/lent"]


def test_pod_of_an_unsupported_constraint_has_no_remedy() -> None:
    found = explained("p", a_node("n", cpu="64"), a_pod("p", invalid="spec.x: wrong"))
    assert (found.verdict, texts(found)) == ("held", [])


def test_rare_type_that_a_pool_does_not_lend_is_lent() -> None:
    card = {"pool": "a", "nvidia.com/gpu.product": "NVIDIA-H200"}
    found = explained(
        "p",
        a_pool("a", labels={"pool": "a"}, rare_types=("H200",)),
        a_pool("b"),
        a_node("h", gpu=1, labels=card),
        a_pod("p", pool="b", gpu=1, gpu_types=("H200",)),
    )
    assert texts(found, RemedyKind.FLAG) == ["set lendRareTypes of the Pool a to true"]
    (refusal,) = [one for one in found.borrowing if one.pool == "a"]
    assert refusal.reason == "the nodes that fit have a rare GPU type, and its lendRareTypes is false"


def test_machine_group_that_the_pod_does_not_name_is_the_reason_and_has_no_remedy() -> None:
    found = explained("p", a_node("g", labels={MACHINE_GROUP_KEY: "vision"}), a_pod("p"))
    assert texts(found) == []
    assert [one.rule for one in found.refused] == ["MachineGroup"]
