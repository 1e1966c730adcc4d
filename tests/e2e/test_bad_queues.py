"""Bad input of tenant queues gets an event or a condition that names the field, and harms no other queue."""

import json
from collections.abc import Iterator

import pytest

from aischeduler.model.workload import SERVICE_TYPE_KEY
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e import tide
from tests.e2e.cluster import apply, condition, create_nodes, create_pods, kubectl, pod
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, pod_object
from tests.queue_objects import queue_object, volcano_queue_crd, volcano_queue_object

QUEUE_KEY = "resource.aibee.cn/queue"
QUOTA_KEY = "volcano.sh/card.quota"
VOLCANO = "queue.scheduling.volcano.sh"
UNREADABLE = {
    "no-json": ("{RTX-4090: 8}", "must be JSON such as"),
    "negative": ('{"RTX-4090": -1}', "must be a whole number from 0 to 2147483647, not -1"),
    "fractional": ('{"RTX-4090": 1.5}', "must be a whole number from 0 to 2147483647, not 1.5"),
    "no-card": ('{"?": 1}', "is not the name of a card"),
}


@pytest.fixture
def running(control_plane: ControlPlane, clean_cluster: None, daemon: Daemon, kubelets: Part) -> Iterator[Daemon]:
    """Return the scheduler, on one node with cards, where Volcano's queues are served and one queue is in order."""
    crd = volcano_queue_crd()
    apply(control_plane, crd, queue_object("good", cards={"RTX-4090": 8}))
    kubectl(control_plane, "wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}", "--timeout=60s")
    create_nodes(control_plane, [tide.node()])
    daemon.start()
    yield daemon
    kubectl(control_plane, "delete", f"crd/{crd['metadata']['name']}")


def a_pod(name: str, queue: str, namespace: str, **annotations: str) -> Json:
    return pod_object(name, namespace=namespace, cpu="1", gpu=1, annotations={QUEUE_KEY: queue, **annotations})


def others_go_on(plane: ControlPlane, history: History, namespace: str) -> None:
    """Check that a pod of the queue that is in order starts."""
    create_pods(plane, namespace, [a_pod("other", "good", namespace)])
    history.wait_until(lambda: "other" in history.bound(namespace), "the pod of the good queue bound")


def held(plane: ControlPlane, history: History, namespace: str, name: str, reason: str) -> str:
    """Wait until a pod is held for this reason; return the message."""

    def scheduled() -> Json:
        return condition(pod(plane, namespace, name), "PodScheduled")

    history.wait_until(lambda: scheduled().get("reason") == reason, f"{name}: {reason}", lacks=scheduled)
    message: str = scheduled()["message"]
    return message


def described(plane: ControlPlane, history: History, kind: str, name: str, text: str, namespace: str = "") -> str:
    """Wait until `kubectl describe` of an object shows this text; return what it shows."""
    where = ("-n", namespace) if namespace else ()

    def shown() -> str:
        return kubectl(plane, "describe", kind, name, *where)

    history.wait_until(lambda: text in shown(), f"{text!r} in the description of {name}", lacks=shown)
    return shown()


def test_card_quota_of_volcano_that_cannot_be_read_is_named_on_the_queue_and_on_its_pods(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    apply(
        control_plane, *(volcano_queue_object(n, annotations={QUOTA_KEY: text}) for n, (text, _) in UNREADABLE.items())
    )
    create_pods(control_plane, namespace, [a_pod(f"in-{name}", name, namespace) for name in UNREADABLE])
    for name, (_, why) in UNREADABLE.items():
        told = held(control_plane, history, namespace, f"in-{name}", "QueueNotAccepted")
        assert told.startswith(f"The queue {name} is refused: metadata.annotations[{QUOTA_KEY}]")
        assert why in told
        events = described(control_plane, history, VOLCANO, name, "The queue takes no new pods.").partition("Events:")[
            2
        ]
        assert "Warning  InvalidSpec" in events
        assert why in events
    others_go_on(control_plane, history, namespace)
    kubectl(control_plane, "annotate", VOLCANO, "no-json", f'{QUOTA_KEY}={{"RTX-4090": 1}}', "--overwrite")
    history.wait_until(lambda: "in-no-json" in history.bound(namespace), "its pod bound once the quota is mended")


def test_fractional_number_of_cards_is_refused_by_kubectl_and_names_the_field(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    bad = queue_object("bad", cards={"RTX-4090": 1.5})
    applied = control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(bad))
    assert applied.returncode == 1
    assert "spec.cards.RTX-4090 in body must be of type integer" in applied.stderr
    others_go_on(control_plane, history, namespace)


def test_pods_of_a_queue_that_names_a_card_of_no_node_are_told_the_card_that_it_lacks(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    apply(control_plane, queue_object("q", cards={"RTX-4O90": 8}))
    create_pods(control_plane, namespace, [a_pod("p", "q", namespace)])
    told = held(control_plane, history, namespace, "p", "EmptyQueueCapability")
    assert told == "Queue q has insufficient RTX-4090 quota: requested 1, total would be 1, but capability is 0"
    described(control_plane, history, "aiq", "q", "RTX-4O90 0/8")
    others_go_on(control_plane, history, namespace)


def test_pods_of_a_queue_that_is_deleted_run_on_and_those_that_wait_are_held(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    apply(control_plane, queue_object("team", cards={"RTX-4090": 1}))
    create_pods(control_plane, namespace, [a_pod("runs", "team", namespace)])
    history.wait_for_bound(namespace, 1)
    create_pods(control_plane, namespace, [a_pod("waits", "team", namespace)])
    held(control_plane, history, namespace, "waits", "InsufficientScalarQuota")
    kubectl(control_plane, "delete", "aiq", "team")
    told = held(control_plane, history, namespace, "waits", "UnknownQueue")
    assert told == "The queue team does not exist; the pod is held."
    others_go_on(control_plane, history, namespace)
    assert history.bound(namespace).keys() == {"runs", "other"}
    apply(control_plane, queue_object("team", cards={"RTX-4090": 2}))
    history.wait_until(lambda: "waits" in history.bound(namespace), "the pod bound that was held")
    assert running.said("evict") == []


def test_misspelt_service_type_gets_an_event_with_the_nearest_and_holds_no_pod(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    create_pods(control_plane, namespace, [a_pod("p", "good", namespace, **{SERVICE_TYPE_KEY: "inferense"})])
    events = described(control_plane, history, "pod", "p", "Warning  UnknownServiceType", namespace)
    said = f"The service type 'inferense' (annotation {SERVICE_TYPE_KEY}) is unknown. Did you mean inference?"
    assert said in events
    history.wait_until(lambda: "p" in history.bound(namespace), "the pod bound")
    others_go_on(control_plane, history, namespace)


def test_pods_whose_workload_names_another_queue_while_they_run_count_there_and_run_on(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    job = tide.training("training-normal", **{QUEUE_KEY: "good"})
    del job["spec"]["template"]["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"]
    apply(control_plane, queue_object("small", cards={"RTX-4090": 1}))
    apply(control_plane, *tide.priority_classes(), job, namespace=namespace)
    history.wait_for_bound(namespace, 2)
    described(control_plane, history, "aiq", "good", "RTX-4090 2/8")
    kubectl(control_plane, "annotate", "job", "training-normal", f"{QUEUE_KEY}=small", "--overwrite", "-n", namespace)
    described(control_plane, history, "aiq", "small", "More is used than the quota says: RTX-4090 2 of 1.")
    described(control_plane, history, "aiq", "good", "RTX-4090 0/8")
    others_go_on(control_plane, history, namespace)
    assert running.said("evict") == []


def test_quota_that_is_lowered_to_zero_is_told_on_the_queue_and_evicts_nobody(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    apply(control_plane, queue_object("team", cards={"RTX-4090": 1}))
    create_pods(control_plane, namespace, [a_pod("runs", "team", namespace)])
    history.wait_for_bound(namespace, 1)
    lowered = json.dumps({"spec": {"cards": {"RTX-4090": 0}}})
    kubectl(control_plane, "patch", "aiq", "team", "--type=merge", "-p", lowered)
    create_pods(control_plane, namespace, [a_pod("waits", "team", namespace)])
    told = held(control_plane, history, namespace, "waits", "EmptyQueueCapability")
    assert told == "Queue team has insufficient RTX-4090 quota: requested 1, total would be 2, but capability is 0"
    described(control_plane, history, "aiq", "team", "More is used than the quota says: RTX-4090 1 of 0.")
    others_go_on(control_plane, history, namespace)
    assert history.bound(namespace).keys() == {"runs", "other"}
    assert running.said("evict") == []
