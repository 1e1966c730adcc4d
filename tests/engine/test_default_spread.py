"""Pods that a Service selects or a controller made, which are spread by default: choice of nodes, classes, and cost."""

from msgspec.structs import replace

from aischeduler.engine.profile import default_profile
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.selectors import label_selector
from aischeduler.model.topology_spread import HOSTNAME, ZONE, DefaultConstraint
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds

WEB = {"app": "web"}


def service(name: str = "web", **labels: str) -> Seen:
    return Seen(PodSet("Service", "default", name, label_selector("spec.selector", labels or WEB, ())))


def replica_set(name: str, **labels: str) -> Seen:
    return Seen(PodSet("ReplicaSet", "default", name, label_selector("spec.selector.matchLabels", labels, ())))


def hosts(*names: str, cpu: str = "64", zone: str = "") -> list[Node]:
    labels = {ZONE: zone} if zone else {}
    return [a_node(name, cpu=cpu, labels={HOSTNAME: name, **labels}) for name in names]


def small(name: str, node: str = "", **more: object) -> Pod:
    """Return a pod of the Service that the scores of resources hardly see."""
    return a_pod(name, cpu="10m", memory="1Mi", node=node, labels=WEB, **more)  # type: ignore[arg-type]


def two_nodes() -> Session:
    """Return a cluster in which n1 has pods of the Service, and n2 less free room."""
    here = [small(f"web-{number}", "n1") for number in range(4)]
    return Session(*hosts("n1", "n2"), *here, a_pod("other", cpu="2", memory="2Gi", node="n2"))


def test_pod_of_a_service_goes_to_the_node_with_the_fewest_pods_of_the_service() -> None:
    session = two_nodes()
    session.see(small("before"))
    assert binds(session.decide()) == {"before": "n1"}
    session.tell(service())
    session.see(small("p"), a_pod("stranger", cpu="10m", memory="1Mi", labels={"app": "db"}))
    assert binds(session.decide()) == {"p": "n2", "stranger": "n1"}
    session.tell(gone(PodSet, "Service", "default", "web"))
    session.see(small("after"))
    assert binds(session.decide()) == {"after": "n1"}


def test_pod_of_a_replica_set_is_spread_among_the_pods_that_its_set_selects() -> None:
    session = two_nodes()
    session.tell(replica_set("web-7", hash="7"), replica_set("web-8", app="web"))
    session.see(small("of-7", controller="ReplicaSet/web-7"), small("of-8", controller="ReplicaSet/web-8"))
    assert binds(session.decide()) == {"of-7": "n1", "of-8": "n2"}


def test_zone_counts_beside_the_node_and_nodes_without_a_zone_are_scored_too() -> None:
    session = Session(*hosts("a1", "a2", zone="a"), *hosts("b1", zone="b"), *hosts("bare"))
    session.tell(service())
    session.see(*(small(f"web-{number}", "a1") for number in range(6)))
    placed: list[str] = []
    for number in range(4):
        session.see(small(f"p-{number}"))
        placed += binds(session.decide()).values()
    assert placed[:2] == ["bare", "bare"], "no pods in a zone, and none on the node, then 1"
    assert sorted(placed[2:]) == ["b1", "bare"], "b1 and bare with two pods are equal"


def test_pods_that_parked_before_their_service_was_seen_are_all_bound_once_there_is_room() -> None:
    session = Session(*hosts("n1", cpu="1"), a_pod("old", cpu="1", node="n1", priority=9))
    session.see(*(a_pod(f"p-{number}", cpu="100m", labels=WEB) for number in range(6)))
    assert binds(session.decide()) == {}
    session.tell(service(), gone(Pod, "uid-old"))
    assert len(binds(session.decide(10))) == 6
    assert session.scheduler.net_saves() == 0


def test_pods_of_one_set_form_one_class_and_one_count_and_others_keep_their_spec() -> None:
    session = Session(*hosts("n1"), a_pod("on-node", node="n1", labels=WEB, controller="ReplicaSet/web-7"))
    session.tell(service(), replica_set("web-7", app="web", hash="7"))
    cluster = session.scheduler.cluster
    assert cluster.nodes.pod_counts.all() == (), "a pod that came on a node is not scored any more"
    labels = {**WEB, "hash": "7"}
    session.see(*(a_pod(f"p-{number}", labels=labels, controller="ReplicaSet/web-7") for number in range(50)))
    session.see(stranger := a_pod("stranger"))
    classes = {one.pod.spec.key for one in cluster.records.values() if one.pod.controller and not one.pod.node_name}
    assert (len(classes), len(cluster.nodes.pod_counts.all())) == (1, 1)
    assert cluster.records[stranger.uid].pod.spec is stranger.spec
    session.tell(*(gone(Pod, f"uid-p-{number}") for number in range(50)))
    assert cluster.nodes.pod_counts.all() == ()


def test_gated_and_running_pods_survive_changes_of_their_service() -> None:
    session = Session(*hosts("n1", "n2"))
    session.tell(service())
    session.see(small("gated", gates=("wait",)), small("p"))
    session.decide()
    session.tell(gone(PodSet, "Service", "default", "web"), service("other", app="web"))
    session.see(small("gated"))
    assert list(binds(session.decide())) == ["gated"]


def test_hard_default_of_a_profile_keeps_pods_waiting() -> None:
    profile = default_profile()
    evenness = PodTopologySpread((DefaultConstraint(ZONE, 1, hard=True),))
    plugins = replace(profile.plugins, cross_row=(evenness, InterPodAffinity()), cross_scores=(evenness,))
    session = Session(
        *hosts("a1", zone="a"), *hosts("b1", zone="b", cpu="0"), profile=replace(profile, plugins=plugins)
    )
    session.tell(service())
    session.see(small("p"), small("q"), a_pod("stranger", cpu="10m"))
    assert len(binds(session.decide())) == 2
    waits = next(name for name in ("p", "q") if session.scheduler.why(f"uid-{name}"))
    assert "didn't match pod topology spread constraints" in session.scheduler.why(f"uid-{waits}")
