"""The nearest miss of each rule, and the counts beside it; random clusters are in test_truth."""

from aischeduler.analysis.explanation import Missing, MissingKind, NearestMiss
from aischeduler.analysis.nearest_miss import nearest_by_amounts, refusals
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.selectors import Operator
from tests.build import a_node, a_pod, a_taint, a_term, expression
from tests.engine.session import Session


def refused(pod: Pod, *objects: Node | Pod) -> dict[str, tuple[int, NearestMiss | None]]:
    cluster = Session(*objects).scheduler.cluster
    found = refusals(cluster, pod.spec, cluster.nodes.rows_of_pool(0))
    return {one.rule: (one.nodes, one.nearest) for one in found}


def gpus(amount: int, asked: int) -> Missing:
    return Missing(MissingKind.RESOURCE, "nvidia.com/gpu", amount, asked)


def test_fewest_short_resources_come_first_then_the_smallest_share_then_the_name() -> None:
    pod = a_pod(cpu="4", gpu=8)
    two_short = a_node("a", cpu="3", gpu=7)
    far = a_node("b", cpu="64", gpu=2)
    near, as_near = a_node("d", cpu="64", gpu=6), a_node("c", cpu="64", gpu=6)
    found = refused(pod, two_short, far, near, as_near)
    assert found["NodeResourcesFit"] == (4, NearestMiss("c", (gpus(2, 8),)))


def test_pods_on_a_node_and_its_limit_of_pods_count() -> None:
    full = a_node("full", cpu="8", pods=1)
    found = refused(a_pod(cpu="1"), full, a_pod("other", cpu="1", node="full"))
    assert found["NodeResourcesFit"] == (1, NearestMiss("full", (Missing(MissingKind.RESOURCE, "pods", 1, 1),)))


def test_resource_that_no_node_has_is_missing_whole() -> None:
    found = refused(a_pod(extended={"example.com/fpga": "2"}), a_node("n"))
    missing = (Missing(MissingKind.RESOURCE, "example.com/fpga", 2, 2),)
    assert found["NodeResourcesFit"] == (1, NearestMiss("n", missing))


def test_a_node_counts_for_the_first_rule_that_refuses_it() -> None:
    pod = a_pod(gpu=1, node_selector={"disk": "ssd"})
    cordoned = a_node("a", unschedulable=True, taints=(a_taint("x"),))
    tainted = a_node("b", taints=(a_taint("x", "y"),))
    unlike = a_node("c", labels={"disk": "hdd"})
    found = refused(pod, cordoned, tainted, unlike)
    assert found == {
        "NodeUnschedulable": (1, NearestMiss("a", (Missing(MissingKind.SCHEDULABLE, "spec.unschedulable"),))),
        "TaintToleration": (1, NearestMiss("b", (Missing(MissingKind.TOLERATION, "x=y:NoSchedule"),))),
        "NodeAffinity": (1, NearestMiss("c", (Missing(MissingKind.LABEL, "disk=ssd"),))),
    }


def test_of_required_terms_the_nearest_one_counts() -> None:
    far = a_term(expression("a", Operator.EXISTS), expression("b", Operator.EXISTS))
    near = a_term(expression("zone", Operator.IN, "x", "y"))
    found = refused(a_pod(required=(far, near)), a_node("n"))
    assert found["NodeAffinity"] == (1, NearestMiss("n", (Missing(MissingKind.LABEL, "zone in (x,y)"),)))


def test_a_term_of_names_misses_the_name() -> None:
    term = a_term(fields=(expression("metadata.name", Operator.IN, "other"),))
    found = refused(a_pod(required=(term,)), a_node("n"))
    assert found["NodeAffinityNames"] == (1, NearestMiss("n", (Missing(MissingKind.NAME, "metadata.name"),)))


def test_a_taken_host_port_is_named() -> None:
    taken = HostPort("TCP", 80)
    found = refused(a_pod("p", host_ports=(taken,)), a_node("n"), a_pod("other", node="n", host_ports=(taken,)))
    assert found["NodePorts"] == (1, NearestMiss("n", (Missing(MissingKind.PORT, "TCP 80"),)))


def test_counts_say_on_how_many_nodes_each_label_is_missing() -> None:
    pod = a_pod(node_selector={"disk": "ssd", "zone": "a"})
    cluster = Session(a_node("n1", labels={"zone": "a"}), a_node("n2"), a_node("n3")).scheduler.cluster
    (found,) = refusals(cluster, pod.spec, cluster.nodes.rows_of_pool(0))
    assert [(one.name, nodes) for one, nodes in found.counts] == [("disk=ssd", 3), ("zone=a", 2)]
    assert found.nearest == NearestMiss("n1", (Missing(MissingKind.LABEL, "disk=ssd"),))


def test_node_that_fits_is_refused_by_no_rule() -> None:
    assert refused(a_pod(cpu="1"), a_node("n", cpu="4")) == {}


def test_no_rows_have_no_nearest_miss() -> None:
    cluster = Session().scheduler.cluster
    assert nearest_by_amounts(cluster.nodes, a_pod().spec, cluster.nodes.rows_of_pool(0)) is None
