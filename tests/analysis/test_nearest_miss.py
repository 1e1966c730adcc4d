"""The nearest miss of each rule, and the counts beside it; random clusters are in test_truth."""

from collections import Counter
from collections.abc import Mapping

from aischeduler.analysis.explanation import Missing, MissingKind, NearestMiss, Refusal
from aischeduler.analysis.lenders import missing_text
from aischeduler.analysis.nearest_miss import nearest_by_amounts, refusals
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.selectors import Operator
from aischeduler.plugins.spread_filter import Skew
from tests import seeds
from tests.build import a_node, a_pod, a_taint, a_term, expression, spread
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


APP = {"app": "foo"}


def zones(**nodes: str) -> list[Node]:
    """Return a node of each name with this value of the label zone."""
    return [a_node(name, labels={"zone": zone}) for name, zone in nodes.items()]


def on(node: str, pods: int) -> list[Pod]:
    return [a_pod(f"{node}-{number}", node=node, labels=APP, cpu="0") for number in range(pods)]


def spread_miss(pod: Pod, *objects: Node | Pod) -> Refusal:
    cluster = Session(*objects, pod).scheduler.cluster
    (found,) = refusals(cluster, pod.spec, cluster.nodes.rows_of_pool(0))
    assert found.rule == "PodTopologySpread"
    return found


def text_of(found: Refusal) -> str:
    assert found.nearest is not None
    return missing_text(found.nearest)


def test_domain_is_named_with_its_pods_the_fewest_and_max_skew() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo", itself=False),))
    found = spread_miss(pod, *zones(e="east", w="west"), *on("e", 3), *on("w", 1))
    skew = Skew("zone", "east", matching=3, with_pod=3, fewest=1, max_skew=1, min_domains=0)
    assert found.nearest == NearestMiss("e", (Missing(MissingKind.SPREAD, "zone=east", 1, skew=skew),))
    assert text_of(found) == "e: zone=east has 3 matching pods, the fewest is 1, maxSkew is 1"


def test_pod_that_its_own_selector_matches_counts_beside_those_of_the_domain() -> None:
    pod = a_pod("asker", labels=APP, topology_spread=(spread("zone", app="foo"),))
    found = spread_miss(pod, *zones(e="east", w="west"), *on("e", 1))
    assert text_of(found) == "e: zone=east has 1 matching pod (2 with this pod), the fewest is 0, maxSkew is 1"


def test_fewest_counts_as_zero_below_min_domains() -> None:
    pod = a_pod("asker", labels=APP, topology_spread=(spread("zone", app="foo", min_domains=3),))
    found = spread_miss(pod, *zones(e="east", w="west"), *on("e", 1), *on("w", 2))
    assert text_of(found) == (
        "e: zone=east has 1 matching pod (2 with this pod), the fewest counts as 0 (fewer domains than minDomains 3), "
        "maxSkew is 1"
    )


def test_domain_with_the_fewest_pods_beyond_max_skew_is_the_nearest_then_the_name_decides() -> None:
    pod = a_pod("asker", topology_spread=(spread("zone", app="foo", itself=False),))
    found = spread_miss(pod, *zones(a="1", c="2", b="3", free="4"), *on("a", 3), *on("c", 2), *on("b", 2))
    assert text_of(found) == "b: zone=3 has 2 matching pods, the fewest is 0, maxSkew is 1"
    assert [(one.name, nodes) for one, nodes in found.counts] == [("zone=1", 1), ("zone=2", 1), ("zone=3", 1)]


def test_node_without_the_topology_key_lacks_that_label() -> None:
    rules = (spread("zone", app="foo", itself=False), spread("rack", app="foo", skew=9))
    racked = [a_node(name, labels={"zone": name, "rack": name}, unschedulable=True) for name in ("east", "west")]
    other = a_node("other", labels={"zone": "east"})
    cluster = Session(*racked, other, *on("east", 2), pod := a_pod("asker", topology_spread=rules)).scheduler.cluster
    _, found = refusals(cluster, pod.spec, cluster.nodes.rows_of_pool(0))
    assert found.nodes == 1
    assert text_of(found) == (
        "other: it lacks the label rack; zone=east has 2 matching pods, the fewest is 0, maxSkew is 1"
    )


def by_hand(nodes: list[Node], pods: Mapping[str, int], pod: Pod) -> dict[str, tuple[Missing, ...]]:
    """Return what each refused node lacks, counted anew: the missing keys, then the numbers of its domains."""
    rules = pod.spec.topology_spread
    counted = [node for node in nodes if all(one.topology_key in node.labels for one in rules)]
    refused: dict[str, tuple[Missing, ...]] = {}
    for node in nodes:
        missing = [Missing(MissingKind.LABEL, one.topology_key) for one in rules if one.topology_key not in node.labels]
        for one in rules:
            key, value = one.topology_key, node.labels.get(one.topology_key, "")
            domains = Counter({other.labels[key]: 0 for other in counted})
            for other in counted:
                domains[other.labels[key]] += pods[other.name]
            few = len(domains) < one.min_domains
            fewest = 0 if few else min(domains.values())
            with_pod = domains[value] + one.selects_itself
            beyond = with_pod - fewest - one.max_skew
            if value and beyond > 0:
                least = one.min_domains if few else 0
                skew = Skew(key, value, domains[value], with_pod, fewest, one.max_skew, least)
                missing.append(Missing(MissingKind.SPREAD, f"{key}={value}", beyond, skew=skew))
        if missing:
            refused[node.name] = tuple(missing)
    return refused


def test_numbers_of_domains_equal_a_count_by_hand() -> None:
    chance = seeds.random("spread-miss")
    judged = 0
    for _ in range(150):
        labels = [{key: chance.choice("123") for key in ("zone", "rack") if chance.random() < 0.9} for _ in range(6)]
        nodes = [a_node(f"n{number}", labels=one) for number, one in enumerate(labels)]
        pods = {node.name: chance.randint(0, 3) for node in nodes}
        own = chance.random() < 0.5
        rules = tuple(
            spread(key, app="foo", skew=chance.randint(1, 2), itself=own, min_domains=chance.randint(1, 4))
            for key in chance.sample(["zone", "rack"], chance.randint(1, 2))
        )
        pod = a_pod("asker", labels=APP if own else {}, topology_spread=rules)
        bound = [one for name, number in pods.items() for one in on(name, number)]
        cluster = Session(*nodes, *bound, pod).scheduler.cluster
        found = refusals(cluster, pod.spec, cluster.nodes.rows_of_pool(0))
        truth = by_hand(nodes, pods, pod)
        assert [one.nodes for one in found] == ([len(truth)] if truth else [])
        for one in found:
            nearest = min(truth, key=lambda name: _distance(name, truth[name]))
            assert one.nearest == NearestMiss(nearest, truth[nearest])
            assert dict(one.counts) == Counter(each for missing in truth.values() for each in missing)
            judged += len(truth)
    assert judged > 300


def _distance(name: str, missing: tuple[Missing, ...]) -> tuple[int, int, str]:
    return len(missing), sum(one.amount for one in missing), name
