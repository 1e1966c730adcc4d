"""Pods that use volume claims: what holds them, their message, their nodes, and their wake-ups."""

import pytest

from aischeduler.engine.agenda import CHECKS_MAX
from aischeduler.engine.profile import default_profile
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import Operator
from aischeduler.model.storage_objects import StorageClass
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.model.volumes import Volume, VolumeClaim, VolumeClaimUse
from tests.build import a_node, a_pod, a_pool, a_term, expression, replace
from tests.engine.session import Session, binds, nominations, reports, warnings

FIELD = "spec.volumes[0].persistentVolumeClaim"
DATA = VolumeClaimUse(FIELD, "data")
BOUND = VolumeClaim("default", "data", volume="pv", bound=True)
VOLUME = Volume("pv")
LEAD = f'{FIELD}: persistentvolumeclaim "data"'
UNBOUND = f"{FIELD}: pod has unbound immediate PersistentVolumeClaims"


def claim(**fields: object) -> Seen:
    return Seen(replace(VolumeClaim("default", "data"), **fields))


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ((), f"{LEAD} not found"),
        ((claim(),), UNBOUND),
        ((claim(volume="pv"), Seen(VOLUME)), UNBOUND),
        ((claim(storage_class="unknown"),), UNBOUND),
        ((claim(storage_class="now"), Seen(StorageClass("now", "csi.example"))), UNBOUND),
        ((claim(lost=True, volume="pv"),), f'{LEAD} bound to non-existent persistentvolume "pv"'),
        ((Seen(replace(BOUND, terminating=True)), Seen(VOLUME)), f"{LEAD} is being deleted"),
        ((Seen(BOUND),), f'{FIELD}: persistentvolume "pv" not found'),
        ((Seen(replace(BOUND, namespace="other")), Seen(VOLUME)), f"{LEAD} not found"),
    ],
)
def test_pod_with_a_claim_that_allows_no_node_waits_and_names_the_claim(told: tuple[Event, ...], why: str) -> None:
    """Case V1 of kube-scheduler, among others."""
    session = Session(a_node("n"))
    session.tell(*told)
    session.see(a_pod("p", claims=(DATA,)))
    said = session.decide()
    assert (binds(said), warnings(said)) == ({}, [])
    assert reports(said) == {"p": f"{why}; the pod is held."}
    assert session.scheduler.held() == {("default", ConstraintKind.VOLUME_CLAIM): 1}


def tied_to(*values: str, key: str = "zone") -> Seen:
    """Return the volume with a node affinity."""
    return Seen(replace(VOLUME, affinity=(a_term(expression(key, Operator.IN, *values)),)))


def test_pod_whose_volume_is_on_no_node_waits_and_runs_once_a_node_has_its_label() -> None:
    session = Session(a_node("a", labels={"zone": "a"}), a_node("n"))
    session.tell(Seen(BOUND), tied_to("b"))
    session.see(a_pod("p", claims=(DATA,)))
    (reason,) = reports(session.decide()).values()
    conflict = "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity."
    assert reason == f"{conflict} preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    session.see(a_node("n", labels={"zone": "b"}))
    assert binds(session.decide()) == {"p": "n"}


def test_pod_that_waits_for_its_volume_runs_once_the_volume_is_elsewhere() -> None:
    session = Session(a_node("a", labels={"zone": "a"}))
    session.tell(Seen(BOUND), tied_to("b"))
    session.see(a_pod("p", claims=(DATA,)))
    session.decide()
    session.tell(tied_to("a"))
    assert binds(session.decide()) == {"p": "a"}


def test_pod_runs_in_the_zone_that_the_labels_of_its_volume_name() -> None:
    key, older = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
    session = Session(a_node("a", labels={key: "a"}), a_node("b", labels={key: "b"}))
    session.tell(Seen(BOUND), Seen(replace(VOLUME, labels={older: "b__c"})))
    session.see(a_pod("p", cpu="1", claims=(DATA,)), a_pod("q", cpu="4", claims=(DATA,)))
    said = session.decide()
    assert binds(said) == {"p": "b"}
    assert reports(said)["q"].startswith("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had no available volu")
    session.see(a_node("without-zone"))
    assert binds(session.decide()) == {"q": "without-zone"}


def test_change_of_a_claim_wakes_only_the_pods_that_use_it() -> None:
    session = Session(a_node("n"), a_pod("p", claims=(DATA,)), a_pod("q", claims=(VolumeClaimUse(FIELD, "other"),)))
    session.see(a_pod("r", namespace="elsewhere", claims=(DATA,)))
    session.decide()
    before = sum(session.scheduler.counters.attempts.values())
    session.tell(claim(), claim())  # the second event changes nothing
    session.decide()
    assert sum(session.scheduler.counters.attempts.values()) == before + 1


def test_change_of_a_claim_with_many_waiting_pods_wakes_a_part_per_decision() -> None:
    count = 3 * CHECKS_MAX
    session = Session(a_node("n", cpu="1k", memory="1Ti", pods=1000))
    session.see(*(a_pod(f"p{number}", claims=(DATA,)) for number in range(count)))
    session.decide()
    session.tell(Seen(BOUND), Seen(VOLUME))
    session.scheduler.decide("default", session.now, 1)
    assert session.scheduler.waiting()["default"]["held"] == count - CHECKS_MAX
    assert len(binds(session.decide())) == count - 1


def test_claim_of_an_ephemeral_volume_must_belong_to_the_pod() -> None:
    use = VolumeClaimUse("spec.volumes[0].ephemeral", "p-scratch", owned=True)
    session = Session(a_node("n"), a_pod("p", claims=(use,)))
    scratch = replace(BOUND, name="p-scratch")
    session.tell(Seen(replace(scratch, controller="uid-of-another")), Seen(VOLUME))
    (reason,) = reports(session.decide()).values()
    whose = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
    assert reason == f"{use.field}: {whose}; the pod is held."
    session.tell(Seen(replace(scratch, controller="uid-p")))
    assert binds(session.decide()) == {"p": "n"}


def test_every_claim_of_a_pod_has_to_be_usable() -> None:
    second = VolumeClaimUse("spec.volumes[3].persistentVolumeClaim", "more")
    session = Session(a_node("n"))
    session.tell(Seen(BOUND), Seen(VOLUME))
    session.see(a_pod("p", claims=(DATA, second)))
    (reason,) = reports(session.decide()).values()
    assert reason.startswith(f'{second.field}: persistentvolumeclaim "more" not found')


@pytest.mark.parametrize("event", [gone(VolumeClaim, "default", "data"), gone(Volume, "pv")])
def test_nominated_pod_loses_its_room_once_its_volume_claim_holds_it(event: Event) -> None:
    pool = a_pool("a", labels={"team": "a"})
    session = Session(pool, a_node("n", cpu="1", labels={"team": "a"}), a_pod("low", pool="a", node="n"))
    session.tell(Seen(BOUND), Seen(VOLUME))
    session.see(a_pod("high", pool="a", priority=10, claims=(DATA,)))
    assert nominations(session.decide()) == {"high": "n"}
    session.tell(event)
    said = session.decide()
    assert (nominations(said), list(reports(said))) == ({"high": ""}, ["high"])
    session.see(a_pod("other", pool="a", priority=1))
    session.tell(gone(Pod, "uid-low"))
    assert binds(session.decide(30)) == {"other": "n"}


def test_parked_pod_whose_volume_claim_is_deleted_is_held_and_blocks_no_loan() -> None:
    lender = a_pool("lender", labels={"team": "lender"}, disable_preemption=True, disable_borrowing=True)
    session = Session(lender, a_pool("home"), a_node("n", cpu="1", labels={"team": "lender"}))
    session.tell(Seen(BOUND), Seen(VOLUME))
    session.see(a_pod("own", pool="lender", node="n"), a_pod("parked", pool="lender", claims=(DATA,)))
    session.see(a_pod("guest", pool="home"))
    session.decide()
    assert session.scheduler.waiting()["lender"] == {"parked": 1}
    session.tell(gone(VolumeClaim, "default", "data"))
    session.decide()
    session.tell(gone(Pod, "uid-own"))
    assert binds(session.decide(60)) == {"guest": "n"}


def test_deleted_pods_leave_nothing_behind_at_their_volume_claims() -> None:
    session = Session(a_node("n"), a_pod("p", claims=(DATA,)), a_pod("q", claims=(DATA,)))
    session.decide()
    session.tell(gone(Pod, "uid-p"), claim())
    assert list(reports(session.decide())) == ["q"]
    session.tell(gone(Pod, "uid-q"), Seen(BOUND))
    assert session.decide() == []


def test_claim_holds_the_pod_where_constraints_that_are_not_supported_are_ignored_too() -> None:
    profile = replace(default_profile(), hold_unsupported=False)
    session = Session(a_node("n"), a_pod("p", claims=(DATA,)), profile=profile)
    said = session.decide()
    assert (binds(said), warnings(said), list(reports(said))) == ({}, [], ["p"])
