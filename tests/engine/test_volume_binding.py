"""Claims that wait for their first pod: which volume and node are chosen, what is written, and what is awaited."""

import pytest

from aischeduler.model.actions import Action, BindVolumes
from aischeduler.model.events import Seen, VolumesRefused, VolumesWritten, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import NodeSelectorTerm, Operator, label_selector
from aischeduler.model.storage_objects import CsiDriver, StorageCapacity, StorageClass
from aischeduler.model.volumes import ClaimRef, Volume, VolumeChoice, VolumeClaim, VolumeClaimUse
from tests.build import a_node, a_pod, a_pool, a_term, expression, replace
from tests.engine.session import Session, binds, nominations, reports
from tests.gangs import a_gang, member

LOCAL = StorageClass("local", "kubernetes.io/no-provisioner", waits=True)
CLOUD = StorageClass("cloud", "csi.example", waits=True)
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
GANG = a_gang("g", 2, GangSource.LABELS)
FAILED = 'running PreBind plugin "VolumeBinding": '


def use(name: str, number: int = 0) -> VolumeClaimUse:
    return VolumeClaimUse(f"spec.volumes[{number}].persistentVolumeClaim", name)


def a_claim(name: str = "data", *, of: str = "local", size: int = 5, **fields: object) -> VolumeClaim:
    claim = VolumeClaim("default", name, uid=f"uid-{name}", storage_class=of, request_bytes=size, version="1")
    return replace(claim, **fields)


def a_volume(name: str, *, node: str = "", size: int = 5, of: str = "local", **fields: object) -> Volume:
    """Return a volume that is free; with a `node` it can be used only there."""
    affinity = (a_term(expression("host", Operator.IN, node)),) if node else None
    return replace(Volume(name, affinity, storage_class=of, capacity_bytes=size, available=True, version="1"), **fields)


def a_session(*nodes: str, cpu: str = "4") -> Session:
    session = Session(*(a_node(name, cpu=cpu, labels={"host": name}) for name in nodes))
    session.tell(Seen(LOCAL), Seen(CLOUD))
    return session


def asked(said: list[Action]) -> dict[str, tuple[str, list[str]]]:
    """Return pod -> its node, and the chosen volumes in the order of its claims."""
    asks = [one for one in said if isinstance(one, BindVolumes) and not one.withdraw]
    return {one.pod.name: (one.node, [write.choice.volume for write in one.writes]) for one in asks}


def writes(session: Session, pod: str = "p") -> BindVolumes:
    """Return the last request to write the volumes of a pod."""
    return [one for one in session.said if isinstance(one, BindVolumes) and one.pod.name == pod][-1]


def written(session: Session, pod: str = "p", version: str = "2") -> None:
    """Let the writes for a pod succeed."""
    ask = writes(session, pod)
    session.tell(VolumesWritten(ask.pod.uid, ask.decision, (version,) * len(ask.writes)))


def bound(session: Session, claim: VolumeClaim, volume: Volume) -> None:
    """Show a claim and its volume as the volume controller leaves them."""
    taken = replace(volume, claim=ClaimRef("default", claim.name, claim.uid), available=False, version="3")
    session.tell(Seen(taken), Seen(replace(claim, volume=volume.name, bound=True, version="3")))


def test_pod_goes_where_a_free_volume_is_and_is_bound_once_its_claim_is() -> None:
    """Case V2 of kube-scheduler."""
    session = a_session("a", "b", "c")
    claim, disk = a_claim(), a_volume("disk", node="b")
    session.tell(Seen(disk), Seen(claim))
    session.see(a_pod("p", claims=(use("data"),)))
    said = session.decide()
    assert (asked(said), binds(said), reports(said)) == ({"p": ("b", ["disk"])}, {}, {})
    (write,) = writes(session).writes
    assert write.choice == VolumeChoice(("default", "data"), "uid-data", "disk", "")
    assert (write.version, write.claim_version, write.prebound) == ("1", "1", False)
    written(session)
    assert binds(session.decide(10)) == {}, "the claim is not bound yet"
    bound(session, claim, disk)
    assert binds(session.decide()) == {"p": "b"}


def test_reasons_tell_nodes_without_a_free_volume_from_a_full_node_that_has_one() -> None:
    """Case V2 of kube-scheduler, where the node of the volume is full."""
    session = a_session("a", "b", "c")
    session.tell(Seen(a_volume("disk", node="b")), Seen(a_claim()))
    session.see(a_pod("full", cpu="4", node="b"), a_pod("p", claims=(use("data"),)))
    said = session.decide()
    assert asked(said) == {}
    assert reports(said)["p"].startswith(f"0/3 nodes are available: 1 Insufficient cpu, 2 {NO_VOLUME}.")


def test_claim_that_is_bound_before_the_answer_comes_binds_nothing_until_then() -> None:
    session = a_session("a")
    claim, disk = a_claim(), a_volume("disk")
    session.tell(Seen(disk), Seen(claim))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    bound(session, claim, disk)
    assert binds(session.decide()) == {}
    written(session)
    assert binds(session.decide()) == {"p": "a"}


def test_smallest_free_volume_that_fits_is_chosen() -> None:
    session = a_session("a")
    other = ClaimRef("default", "other", "uid-other")
    session.tell(
        Seen(a_volume("too-small", size=4)),
        Seen(a_volume("large", size=9)),
        Seen(a_volume("fits", size=6)),
        Seen(a_volume("taken", claim=other)),
        Seen(a_volume("leaving", terminating=True)),
        Seen(a_volume("released", available=False)),
        Seen(a_volume("of-blocks", block=True)),
        Seen(a_volume("of-another-class", of="cloud")),
        Seen(a_volume("gold", attributes_class="gold")),
        Seen(a_claim()),
    )
    session.see(a_pod("p", claims=(use("data"),)))
    assert asked(session.decide()) == {"p": ("a", ["fits"])}


def test_modes_and_labels_of_the_volume_must_be_those_of_the_claim() -> None:
    session = a_session("a")
    ssd = label_selector("selector", {"disk": "ssd"}, ())
    session.tell(
        Seen(a_volume("plain", access_modes=("ReadWriteOnce",), labels={"disk": "ssd"})),
        Seen(a_volume("shared", access_modes=("ReadWriteMany", "ReadWriteOnce"))),
        Seen(a_volume("x", access_modes=("ReadWriteMany", "ReadWriteOnce"), labels={"disk": "ssd"}, size=7)),
        Seen(a_claim(access_modes=("ReadWriteMany",), selector=ssd)),
    )
    session.see(a_pod("p", claims=(use("data"),)))
    assert asked(session.decide()) == {"p": ("a", ["x"])}


def test_volume_that_the_user_gave_to_the_claim_is_taken_whatever_else_is_free() -> None:
    session = a_session("a", "b")
    given = a_volume("given", node="b", size=50, claim=ClaimRef("default", "data"))
    session.tell(Seen(a_volume("free", node="a")), Seen(given), Seen(a_claim()))
    session.see(a_pod("p", claims=(use("data"),)))
    assert asked(session.decide()) == {"p": ("b", ["given"])}
    assert writes(session).writes[0].prebound


def test_two_claims_of_a_pod_get_two_volumes_of_one_node() -> None:
    session = a_session("a", "b")
    session.tell(
        *(Seen(a_volume(f"disk-{n}", node=n)) for n in "ab"),
        Seen(a_volume("more", node="b", size=9)),
        Seen(a_claim("large", size=9)),
        Seen(a_claim("small", size=5)),
    )
    session.see(a_pod("p", claims=(use("large"), use("small", 1))))
    said = session.decide()
    assert asked(said) == {"p": ("b", ["disk-b", "more"])}
    assert [write.choice.claim[1] for write in writes(session).writes] == ["small", "large"]


def test_two_claims_of_one_kind_do_not_get_one_volume() -> None:
    session = a_session("a", "b")
    session.tell(Seen(a_volume("one", node="a")), *(Seen(a_claim(name)) for name in ("x", "y")))
    session.see(a_pod("p", claims=(use("x"), use("y", 1))))
    (reason,) = reports(session.decide()).values()
    assert reason.startswith(f"0/2 nodes are available: 2 {NO_VOLUME}.")
    session.tell(Seen(a_volume("everywhere")))
    assert asked(session.decide()) == {"p": ("a", ["everywhere", "one"])}


def test_second_pod_waits_for_the_only_volume_and_gets_it_once_the_first_is_gone() -> None:
    session = a_session("a")
    session.tell(Seen(a_volume("disk")), *(Seen(a_claim(name)) for name in ("x", "y")))
    session.see(a_pod("p", claims=(use("x"),)), a_pod("q", claims=(use("y"),)))
    said = session.decide()
    assert asked(said) == {"p": ("a", ["disk"])}
    assert reports(said)["q"].startswith(f"0/1 nodes are available: 1 {NO_VOLUME}.")
    session.tell(gone(Pod, "uid-p"))
    assert asked(session.decide()) == {"q": ("a", ["disk"])}


def test_pod_without_a_volume_runs_once_there_is_one_of_its_class() -> None:
    session = a_session("a")
    session.tell(Seen(a_claim()))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    attempts = sum(session.scheduler.counters.attempts.values())
    session.tell(Seen(a_volume("other", of="cloud")))
    session.decide()
    assert sum(session.scheduler.counters.attempts.values()) == attempts, "it is of no use to the pod"
    session.tell(Seen(a_volume("disk")))
    assert asked(session.decide()) == {"p": ("a", ["disk"])}


def test_new_volume_is_created_for_the_node_that_is_chosen() -> None:
    session = a_session("a", "b")
    claim = a_claim(of="cloud")
    session.tell(Seen(claim))
    session.see(a_pod("p", claims=(use("data"),), node_selector={"host": "b"}))
    assert asked(session.decide()) == {"p": ("b", [""])}
    assert writes(session).writes[0].choice == VolumeChoice(("default", "data"), "uid-data", "", "b")
    written(session)
    session.tell(Seen(replace(claim, selected_node="b", version="2")))
    assert binds(session.decide()) == {}
    bound(session, replace(claim, selected_node="b"), a_volume("new", of="cloud"))
    assert binds(session.decide()) == {"p": "b"}


def test_pods_of_one_claim_follow_the_first_to_its_node_and_are_bound_with_it() -> None:
    session = a_session("a", "b", cpu="2")
    claim = a_claim(of="cloud")
    session.tell(Seen(claim))
    session.see(*(a_pod(name, claims=(use("data"),)) for name in ("p", "q", "r")))
    said = session.decide()
    assert asked(said) == {"p": ("a", [""]), "q": ("a", [""])}
    assert reports(said)["r"].startswith(f"0/2 nodes are available: 1 Insufficient cpu, 1 {NO_VOLUME}.")
    written(session, "p")
    written(session, "q")
    bound(session, replace(claim, selected_node="a"), a_volume("new", of="cloud"))
    assert binds(session.decide()) == {"p": "a", "q": "a", "r": "b"}


def test_claim_for_which_a_node_is_selected_keeps_it() -> None:
    session = a_session("a", "b")
    session.tell(Seen(a_claim(of="cloud", selected_node="b")), Seen(a_volume("free", of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    assert asked(session.decide()) == {"p": ("b", [""])}


def test_new_volume_is_created_only_where_its_class_allows_it() -> None:
    session = a_session("a", "b")
    session.tell(Seen(StorageClass("cloud", "csi.example", True, (on_host("c"),))))
    session.tell(Seen(a_claim(of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    (reason,) = reports(session.decide()).values()
    assert reason.startswith(f"0/2 nodes are available: 2 {NO_VOLUME}.")
    session.tell(Seen(StorageClass("cloud", "csi.example", True, (on_host("b", "c"),))))
    assert asked(session.decide()) == {"p": ("b", [""])}


def on_host(*names: str) -> NodeSelectorTerm:
    return a_term(expression("host", Operator.IN, *names))


def capacity(limit: int | None, *hosts: str, name: str = "c", of: str = "cloud") -> Seen:
    where = label_selector("topology", {}, (expression("host", Operator.IN, *hosts),))
    return Seen(StorageCapacity("driver", name, of, where, limit))


def test_new_volume_is_created_only_where_its_driver_has_enough_storage() -> None:
    session = a_session("a", "b")
    session.tell(Seen(CsiDriver("csi.example", tracks_capacity=True)))
    session.tell(capacity(4, "a", name="c1"), capacity(9, "a", name="c2", of="local"), capacity(None, "b", name="c3"))
    session.tell(Seen(a_claim(of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    (reason,) = reports(session.decide()).values()
    assert reason.startswith("0/2 nodes are available: 2 node(s) did not have enough free storage.")
    session.tell(capacity(3, "a", name="c1"))
    assert session.decide() == [], "less storage wakes no pod"
    session.tell(capacity(5, "b", name="c3"))
    assert asked(session.decide()) == {"p": ("b", [""])}


def test_driver_that_stops_to_count_its_storage_lets_pods_run() -> None:
    session = a_session("a")
    session.tell(Seen(CsiDriver("csi.example", tracks_capacity=True)), Seen(a_claim(of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    session.tell(Seen(CsiDriver("csi.example")))
    assert asked(session.decide()) == {"p": ("a", [""])}


def test_refused_write_takes_the_pod_back_and_it_is_tried_again() -> None:
    session = a_session("a")
    session.tell(Seen(a_volume("disk")), Seen(a_claim()))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    first = writes(session)
    session.tell(VolumesRefused("uid-p", first.decision, "forbidden"))
    assert reports(session.decide()) == {"p": f"{FAILED}forbidden"}
    assert asked(session.decide(5)) == {"p": ("a", ["disk"])}
    session.tell(VolumesRefused("uid-p", first.decision, "too late"))
    assert session.decide() == [], "the answer is about the decision before"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (gone(VolumeClaim, "default", "data"), 'persistentvolumeclaim "data" not found'),
        (Seen(a_claim(uid="uid-of-another")), 'persistentvolumeclaim "data" not found'),
        (gone(Volume, "disk"), 'persistentvolume "disk" not found'),
        (Seen(a_volume("disk", version="4")), 'ClaimRef got reset for pv "disk"'),
        (
            Seen(a_volume("disk", node="b", claim=ClaimRef("default", "data", "uid-data"), version="4")),
            'pv "disk" node affinity doesn\'t match node "a": no matching NodeSelectorTerms',
        ),
    ],
)
def test_claim_or_volume_that_changes_in_flight_takes_the_pod_back(event: Seen, why: str) -> None:
    session = a_session("a")
    session.tell(Seen(a_volume("disk")), Seen(a_claim()))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    written(session)
    session.tell(event)
    said = session.decide(0.1)
    assert reports(said)["p"] == f"{FAILED}binding volumes: {why}"
    assert session.scheduler.assumed() == 0


def test_provisioner_that_gives_up_has_another_node_chosen() -> None:
    session = a_session("a", "b")
    claim = a_claim(of="cloud")
    session.tell(Seen(claim))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    written(session)
    session.tell(Seen(replace(claim, selected_node="a", version="2")))
    session.decide()
    session.tell(Seen(replace(claim, version="3")))
    assert reports(session.decide()) == {"p": f'{FAILED}binding volumes: provisioning failed for PVC "data"'}
    session.see(a_node("a", labels={"host": "a"}, unschedulable=True))
    assert asked(session.decide(5)) == {"p": ("b", [""])}


def test_claim_that_is_shown_as_it_was_before_the_write_is_no_failure() -> None:
    session = a_session("a")
    session.tell(Seen(a_claim(of="cloud")))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    written(session, version="5")
    session.tell(Seen(a_claim(of="cloud", version="4", access_modes=("ReadWriteOnce",))))
    assert session.decide(6) == []


def test_provisioner_that_never_answers_costs_the_pod_ten_minutes_and_its_node_is_withdrawn() -> None:
    session = a_session("a", "b")
    claim = a_claim(of="cloud")
    session.tell(Seen(claim))
    session.see(a_pod("p", claims=(use("data"),)))
    session.decide()
    written(session)
    session.tell(Seen(replace(claim, selected_node="a", version="2")))
    assert session.decide(599) == []
    said = session.decide(6)
    (withdrawn,) = [one for one in said if isinstance(one, BindVolumes)]
    assert (withdrawn.withdraw, withdrawn.node) == (True, "a")
    assert "context deadline exceeded" in reports(said)["p"]
    session.tell(Seen(replace(claim, version="3")))
    session.see(a_node("a", labels={"host": "a"}, unschedulable=True))
    assert asked(session.decide(5)) == {"p": ("b", [""])}


def test_gang_waits_whole_where_one_of_its_pods_has_no_volume() -> None:
    session = a_session("a", "b")
    session.tell(Seen(a_volume("disk-a", node="a")), *(Seen(a_claim(f"data-{n}")) for n in (0, 1)))
    session.see(*(member(a_pod(f"g-{n}", claims=(use(f"data-{n}"),)), GANG) for n in (0, 1)))
    said = session.decide()
    assert asked(said) == {}
    assert NO_VOLUME in reports(said)["g-0"]
    session.tell(Seen(a_volume("disk-b", node="b")))
    assert asked(session.decide()) == {"g-0": ("a", ["disk-a"]), "g-1": ("b", ["disk-b"])}


def a_gang_with_volumes(*, pods: int = 2) -> tuple[Session, list[VolumeClaim], list[Volume]]:
    """Return a gang of 2 whose volumes are chosen on the nodes a and b; a third pod would need none."""
    session = a_session("a", "b")
    claims, disks = [a_claim(f"data-{n}") for n in (0, 1)], [a_volume(f"disk-{n}", node=n) for n in "ab"]
    session.tell(*map(Seen, disks), *map(Seen, claims))
    uses = [(use("data-0"),), (use("data-1"),), ()]
    session.see(*(member(a_pod(f"g-{n}", claims=uses[n]), GANG) for n in range(pods)))
    assert asked(session.decide()).keys() == {"g-0", "g-1"}
    return session, claims, disks


def test_pods_of_a_gang_are_bound_together_once_the_volumes_of_all_are() -> None:
    session, claims, disks = a_gang_with_volumes(pods=3)
    for n in (0, 1):
        assert binds(session.decide(10)) == {}
        written(session, f"g-{n}")
        bound(session, claims[n], disks[n])
    assert binds(session.decide(10)).keys() == {"g-0", "g-1", "g-2"}


def test_no_pod_of_a_gang_is_bound_where_the_volume_of_another_fails() -> None:
    session, claims, disks = a_gang_with_volumes()
    written(session, "g-0")
    bound(session, claims[0], disks[0])
    assert binds(session.decide(10)) == {}
    session.tell(VolumesRefused("uid-g-1", writes(session, "g-1").decision, "no"))
    said = session.decide()
    assert binds(said) == {}
    assert reports(said)["g-1"] == f"{FAILED}no"
    assert reports(said)["g-0"] == "too few pods of default/g (labels) are left that start together"


def test_gang_whose_pod_is_gone_while_volumes_are_written_does_not_start() -> None:
    session, claims, disks = a_gang_with_volumes()
    session.tell(gone(Pod, "uid-g-1"))
    written(session, "g-0")
    bound(session, claims[0], disks[0])
    said = session.decide(10)
    assert binds(said) == {}
    assert reports(said)["g-0"].endswith("waits for more pods: 1 of at least 2 exist.")


def test_surplus_pod_of_a_gang_whose_volume_fails_stops_no_other() -> None:
    session, claims, disks = a_gang_with_volumes(pods=3)
    session.tell(VolumesRefused("uid-g-1", writes(session, "g-1").decision, "no"))
    session.decide()
    written(session, "g-0")
    bound(session, claims[0], disks[0])
    assert binds(session.decide(10)).keys() == {"g-0", "g-2"}


def test_borrower_takes_the_volume_of_a_lender_and_home_pods_get_the_room_back() -> None:
    session = a_session("a", cpu="1")
    session.see(a_pool("lender", labels={"host": "a"}), a_pool("home"))
    session.tell(Seen(a_volume("disk", node="a")), Seen(a_claim()))
    session.see(a_pod("guest", pool="home", claims=(use("data"),)))
    assert asked(session.decide()) == {"guest": ("a", ["disk"])}
    session.see(a_pod("own", pool="lender"))
    said = session.decide()
    assert binds(said) == {"own": "a"}, "a Binding that waits is taken back, not evicted"
    assert "preempted by default/own before its Binding" in reports(said)["guest"]


def test_no_pod_is_evicted_where_no_volume_can_be_found() -> None:
    session = a_session("a", "b", cpu="1")
    session.see(a_pod("low-a", node="a"), a_pod("low-b", node="b"))
    session.tell(Seen(a_volume("disk", node="b")), Seen(a_claim()))
    session.see(a_pod("high", priority=9, claims=(use("data"),)))
    assert nominations(session.decide()) == {"high": "b"}
