"""A pod whose workload was not seen may be training, or inference: it evicts nobody until that is known."""

from aischeduler.model.events import Seen
from aischeduler.model.workload import TenantTerms, Workload
from tests.build import replace
from tests.engine.session import evictions
from tests.engine.test_tide import a_session, on
from tests.tenants import a_card_node, a_card_pod, in_queue


def test_pod_evicts_nobody_of_its_own_queue_before_its_workload_is_seen() -> None:
    session = a_session()
    session.see(a_card_node("n", "NVIDIA-H200"), on(in_queue(a_card_pod("v", 8), "batch"), "n"))
    session.see(replace(in_queue(a_card_pod("p", 8, priority=5), "batch"), owner="Job/train"))
    assert evictions(session.decide()) == {}
    session.tell(Seen(Workload("Job", "default", "train", terms=TenantTerms(service_type="training"))))
    assert evictions(session.decide()) == {}
    session.tell(Seen(Workload("Job", "default", "train")))
    assert evictions(session.decide()) == {"v": "Preempted"}
