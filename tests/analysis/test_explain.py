"""What an explanation says of a pod in each state."""

from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, Loan, Start, Verdict
from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.events import Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import LenderRefusal
from tests.build import a_node, a_pod, a_pool, spread


def explained(name: str, *objects: Node | Pod | Pool, decided: bool = True) -> Explanation:
    scheduler = Scheduler(default_profile(), "run")
    for thing in objects:
        match thing:
            case Node():
                scheduler.observe(Seen(thing), 0.0)
            case Pod():
                scheduler.observe(Seen(thing), 0.0)
            case Pool():
                scheduler.observe(Seen(thing), 0.0)
    if decided:
        decide_all(scheduler, 0.0)
    cluster = scheduler.cluster
    return explain(cluster, cluster.records[f"uid-{name}"], 0.0)


def test_message_and_funnel_of_a_pod_that_waits_agree() -> None:
    found = explained("p", a_node("a", gpu=2), a_node("b", unschedulable=True), a_pod("p", gpu=4))
    assert found.verdict is Verdict.WAITS
    assert found.message.startswith("0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unsch")
    assert [(one.rule, one.nodes, one.reason) for one in found.refused] == [
        ("NodeUnschedulable", 1, "node(s) were unschedulable"),
        ("NodeResourcesFit", 1, "Insufficient nvidia.com/gpu"),
    ]
    assert found.preemption == "0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def test_pods_ahead_are_counted_and_the_first_named() -> None:
    waiting = [a_pod(f"w{number}", gpu=8, created=number) for number in range(5)]
    found = explained("w4", a_node("a"), *waiting)
    assert (found.ahead, found.ahead_pods) == (4, ("default/w0", "default/w1", "default/w2"))


def test_pod_that_fits_is_said_to_start_before_and_after_a_decision() -> None:
    for decided in (False, True):
        found = explained("p", a_node("a"), a_pod("p"), decided=decided)
        assert (found.verdict, found.start, found.remedies) == (Verdict.WAITS, Start("a", "default"), ())


def test_nominated_pod_names_the_pods_that_leave() -> None:
    found = explained("p", a_node("a", gpu=8), a_pod("low", gpu=8, node="a"), a_pod("p", gpu=8, priority=1))
    assert (found.verdict, found.node, found.leaving) == (Verdict.NOMINATED, "a", ("default/low",))
    assert found.preemption == "it waits for 1 pod to leave a"


def test_pod_that_would_evict_names_the_victims() -> None:
    pods = a_pod("low", gpu=8, node="a"), a_pod("p", gpu=8, priority=1)
    found = explained("p", a_node("a", gpu=8), *pods, decided=False)
    assert found.start == Start("a", "default", ("uid-low",))
    assert (found.preemption, found.leaving) == ("it would evict 1 pod on a", ("default/low",))


def test_gated_and_held_pods_say_what_holds_them() -> None:
    gated = explained("p", a_node("a"), a_pod("p", gates=("wait",)))
    assert gated.verdict is Verdict.GATED
    assert "wait" in gated.message
    held = explained("p", a_node("a"), a_pod("p", invalid="spec.containers[0]: wrong"))
    assert (held.verdict, held.message) == (Verdict.HELD, "spec.containers[0]: wrong")


def test_bound_pod_is_ranked_among_the_nodes_that_fit_without_it() -> None:
    nodes = a_node("a", cpu="8"), a_node("b", cpu="4"), a_node("c", cpu="1")
    found = explained("p", *nodes, a_pod("p", cpu="4", node="b"))
    assert (found.verdict, found.node, found.fitting) == (Verdict.BOUND, "b", 2)
    assert [name for name, _ in found.ranking] == ["a", "b"]  # a pool without GPUs spreads: the emptier node first
    assert [(one.rule, one.nodes) for one in found.refused] == [("NodeResourcesFit", 1)]


def test_bound_pod_on_a_loan_names_both_pools() -> None:
    lender = a_pool("lender", labels={"of": "lender"})
    found = explained(
        "p", a_pool("home"), lender, a_node("a", labels={"of": "lender"}), a_pod("p", pool="home", node="a")
    )
    assert (found.pool, found.home, found.loan) == ("lender", "home", Loan("lender", "home"))


def test_pod_on_a_node_that_does_not_exist_is_in_no_pool() -> None:
    found = explained("p", a_pod("p", node="gone"))
    assert (found.verdict, found.node, found.pool, found.ranking) == (Verdict.BOUND, "gone", "", ())


def test_each_lender_has_its_reason_and_number() -> None:
    found = explained(
        "p",
        a_pool("home"),
        a_pool("closed", labels={"of": "closed"}, disable_sharing=True),
        a_pool("narrow", labels={"of": "narrow"}, lending_limit={"nvidia.com/gpu": 2}),
        a_pool("small", labels={"of": "small"}),
        a_pool("busy", labels={"of": "busy"}, disable_preemption=True, disable_borrowing=True),
        a_node("s", gpu=3, labels={"of": "small"}),
        a_node("b", gpu=4, cpu="8", labels={"of": "busy"}),
        a_pod("large", cpu="8", gpu=4, pool="busy"),
        a_pod("other", cpu="1", pool="busy", node="b"),
        a_pod("p", gpu=4, pool="home"),
    )
    assert [(one.pool, one.refusal, one.reason) for one in found.borrowing] == [
        ("busy", LenderRefusal.HOME_PODS, "1 pod of its own waits for that room"),
        ("closed", LenderRefusal.NOT_SHARING, "its disableSharing is true"),
        ("default", LenderRefusal.NO_ROOM, "it has no nodes"),
        ("narrow", LenderRefusal.LENDING_LIMIT, "it lends 0 of at most 2 nvidia.com/gpu; the pod requests 4"),
        ("small", LenderRefusal.NO_ROOM, "no node fits; s lacks 1 of 4 nvidia.com/gpu"),
    ]


def test_home_pool_that_may_not_borrow_is_the_only_reason() -> None:
    limit = {"nvidia.com/gpu": 3}
    for home, said in (
        (a_pool("home", disable_borrowing=True), "its disableBorrowing is true"),
        (a_pool("home", borrowing_limit=limit), "it borrows 0 of at most 3 nvidia.com/gpu; the pod requests 4"),
    ):
        found = explained("p", home, a_node("a", gpu=4), a_pod("p", gpu=4, pool="home"))
        assert [(one.pool, one.reason) for one in found.borrowing] == [("home", said)]


def test_lender_whose_nodes_only_a_spread_constraint_refuses_names_the_numbers() -> None:
    lender = {"team": "lender"}
    nodes = [a_node(zone, labels={**lender, "zone": zone}) for zone in ("east", "west")]
    cordoned = a_node("cordoned", labels={**lender, "zone": "west"}, unschedulable=True)
    app = [a_pod(f"app-{number}", pool="lender", node="east", labels={"app": "foo"}) for number in range(3)]
    full = a_pod("full", pool="lender", node="west", cpu="4")
    pod = a_pod("p", pool="home", cpu="1", topology_spread=(spread("zone", app="foo", itself=False),))
    found = explained(
        "p", a_pool("home", labels={"team": "home"}), a_pool("lender", labels=lender), *nodes, cordoned, *app, full, pod
    )
    assert [one.reason for one in found.borrowing if one.pool == "lender"] == [
        "no node fits; east: zone=east has 3 matching pods, the fewest is 0, maxSkew is 1"
    ]
