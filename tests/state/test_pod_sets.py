"""The pods among which a pod is spread by default, by the rules of kube-scheduler's DefaultSelector."""

from aischeduler.model.pod_set import PodSet
from aischeduler.model.selectors import LabelSelector, Operator, Requirement, label_selector
from aischeduler.state.pod_sets import PodSets
from tests.build import a_pod, spread

WEB = {"app": "web", "tier": "front", "hash": "7"}


def selecting(kind: str, name: str, namespace: str = "default", **labels: str) -> PodSet:
    return PodSet(kind, namespace, name, label_selector("spec.selector", labels, ()))


def chosen(*sets: PodSet, controller: str = "", namespace: str = "default") -> str:
    """Return the default selector of a pod, as text; empty where it has none."""
    known = PodSets()
    for one in sets:
        known.see(one)
    found = known.default_of(a_pod("p", labels=WEB, controller=controller, namespace=namespace))
    return "" if found is None else f"{found.pods.labels}{'' if found.selects_itself else ', not itself'}"


def test_all_services_that_select_the_pod_are_taken_together() -> None:
    services = (
        selecting("Service", "a", app="web"),
        selecting("Service", "b", tier="front", app="web"),
        selecting("Service", "c", app="db"),
        selecting("Service", "d", "other", hash="7"),
    )
    assert chosen(*services) == "app=web,tier=front"
    assert chosen(*services, namespace="other") == "hash=7"
    assert chosen(services[2]) == ""


def test_selector_of_the_controller_is_added() -> None:
    service, expression = selecting("Service", "a", app="web"), Requirement("hash", Operator.IN, ("7", "8"))
    for kind in ("ReplicaSet", "StatefulSet"):
        owner = PodSet(kind, "default", "web", LabelSelector((expression,)))
        assert chosen(service, owner, controller=f"{kind}/web") == "app=web,hash in (7,8)"
        assert chosen(owner, controller=f"{kind}/web") == "hash in (7,8)"
        assert chosen(service, owner, controller=f"{kind}/other") == "app=web"
        assert chosen(service, owner) == "app=web"


def test_labels_of_a_replication_controller_replace_those_of_services() -> None:
    service, owner = selecting("Service", "a", app="web"), selecting("ReplicationController", "rc", app="old", hash="7")
    assert chosen(service, owner, controller="ReplicationController/rc") == "app=old,hash=7, not itself"


def test_set_that_selects_nothing_or_everything_gives_no_selector() -> None:
    assert (
        chosen(PodSet("Service", "default", "a"), PodSet("ReplicaSet", "default", "r"), controller="ReplicaSet/r") == ""
    )
    assert chosen(selecting("ReplicaSet", "r"), controller="ReplicaSet/r") == ""


def test_pod_with_constraints_of_its_own_has_no_default_selector() -> None:
    known = PodSets()
    known.see(selecting("Service", "a", app="web"))
    rule = (spread("zone", app="web"),)
    assert known.default_of(a_pod(labels=WEB)) is not None
    assert known.default_of(a_pod(labels=WEB, topology_spread=rule)) is None
    assert known.default_of(a_pod(labels=WEB, spread_preferences=rule)) is None


def test_changed_and_deleted_sets_count_at_once() -> None:
    known, pod = PodSets(), a_pod(labels=WEB)
    service = selecting("Service", "a", app="web")
    answers = []
    for one in (service, selecting("Service", "a", tier="front"), selecting("Service", "a", tier="back")):
        known.see(one)
        found = known.default_of(pod)
        answers.append("" if found is None else str(found.pods.labels))
    known.see(service)
    known.forget(service.key)
    known.forget(service.key)
    assert (answers, known.default_of(pod), known.by_key) == (["app=web", "tier=front", ""], None, {})
    assert (known._in, known._services._found) == ({}, {})
