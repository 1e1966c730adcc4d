import json

from aischeduler.kube.report import event_messages
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.model.actions import Bind, Evict, EvictionCause, ObjectRef, ReportWaiting, Warn, pod_warning
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pod import Pod
from tests.build import a_pod


def bound(pod: Pod, *, pool: str = "cpu", home: str = "cpu") -> Bind:
    return Bind(pod, "n1", pool, home, "d-1", 3)


def test_scheduled_event_of_a_loan_names_the_lender() -> None:
    note = event_messages.scheduled(bound(a_pod("p", namespace="team-a"), pool="gpu", home="cpu"))
    assert note.text == "Successfully assigned team-a/p to n1 on loan from pool gpu, which may take the room back"


def test_message_about_nodes_names_their_pool() -> None:
    def told(message: str) -> str:
        report = ReportWaiting(a_pod("p"), "cpu", "cpu", message, "d-1")
        assert event_messages.failed_scheduling(report).text == event_messages.waiting_message(report)
        return event_messages.waiting_message(report)

    assert told("0/2 nodes are available: 2 Insufficient cpu.").startswith("pool cpu: 0/2 nodes are available: 2 ")
    assert told("no nodes available to schedule pods") == "pool cpu: no nodes available to schedule pods"
    assert told("The pool cpu takes no pods from x") == "The pool cpu takes no pods from x"
    assert told("binding to node n failed: no") == "binding to node n failed: no"


def test_event_names_object_reporter_and_reason() -> None:
    note = event_messages.scheduled(bound(a_pod("p", uid="u1", namespace="team-a")))
    path, body = event_messages.event(note, 255, ReportingController("ai-scheduler", "ai-scheduler-host-1"), "T")
    assert path == b"/apis/events.k8s.io/v1/namespaces/team-a/events"
    assert json.loads(body) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.ff", "namespace": "team-a"},
        "eventTime": "T",
        "reportingController": "ai-scheduler",
        "reportingInstance": "ai-scheduler-host-1",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "Successfully assigned team-a/p to n1",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "team-a", "uid": "u1"},
    }


def test_event_about_a_pool_is_in_the_default_namespace() -> None:
    note = event_messages.warning(Warn(ObjectRef("Pool", "cpu", "u"), EventReason.UNREADABLE, "x"))
    path, body = event_messages.event(note, 1, ReportingController("s", "i" * 200), "T")
    assert path == b"/apis/events.k8s.io/v1/namespaces/default/events"
    document = json.loads(body)
    assert document["regarding"] == {
        "apiVersion": "resource.aibee.cn/v1alpha1",
        "kind": "Pool",
        "name": "cpu",
        "uid": "u",
    }
    assert len(document["reportingInstance"]) == 128


def test_event_on_an_object_with_a_long_name_has_a_name_that_is_allowed() -> None:
    _, body = event_messages.event(
        event_messages.scheduled(bound(a_pod("a" * 219 + "-" * 5 + "b"))), 255, ReportingController("s", "i"), "T"
    )
    assert json.loads(body)["metadata"]["name"] == "a" * 219 + ".ff"


def test_note_is_cut_to_1024_bytes_of_whole_characters() -> None:
    assert event_messages.truncate("a" * 1024) == "a" * 1024
    cut = event_messages.truncate("池" * 1000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("池 ...")


def test_event_of_a_pod_is_reported_by_the_scheduler_name_of_the_pod() -> None:
    pod, sender = a_pod("p", scheduler_name="batch"), ReportingController("ai-scheduler", "host-1")
    evict = Evict(pod, "n1", "cpu", "cpu", EvictionCause.LOAN_ENDED, None, "d-1")
    for note in (
        event_messages.scheduled(bound(pod)),
        event_messages.failed_scheduling(ReportWaiting(pod, "cpu", "cpu", "m", "d-1")),
        event_messages.preempted(evict),
        event_messages.warning(pod_warning(pod, EventReason.UNKNOWN_POOL, "m")),
    ):
        document = json.loads(event_messages.event(note, 1, sender, "T")[1])
        assert (document["reportingController"], document["reportingInstance"]) == ("batch", "host-1")


def test_event_of_a_preempted_pod_is_reported_by_the_scheduler_name_of_the_pod_that_gets_the_room() -> None:
    victim, winner = a_pod("v", scheduler_name="batch"), a_pod("w", scheduler_name="serving")
    note = event_messages.preempted(Evict(victim, "n1", "cpu", "cpu", EvictionCause.PREEMPTED, winner, "d-1"))
    document = json.loads(event_messages.event(note, 1, ReportingController("ai-scheduler", "host-1"), "T")[1])
    assert (document["regarding"]["name"], document["reportingController"]) == ("v", "serving")


def test_event_about_a_node_is_reported_by_the_name_of_the_daemon() -> None:
    note = event_messages.warning(Warn(ObjectRef("Node", "n1", "u"), EventReason.INVALID_NODE, "x"))
    document = json.loads(event_messages.event(note, 1, ReportingController("ai-scheduler", "host-1"), "T")[1])
    assert document["reportingController"] == "ai-scheduler"
