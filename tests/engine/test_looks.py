"""A look leaves nothing behind: what a proposal, a check or an explanation tries does not count after it."""

from aischeduler.analysis.what_if import question_of
from aischeduler.engine.propose import propose
from aischeduler.model.actions import Action, BindVolumes
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.proposal import Wait
from aischeduler.model.storage_objects import StorageClass
from aischeduler.model.volumes import Volume, VolumeClaim, VolumeClaimUse
from aischeduler.state.counted_pods import selected_by
from tests.affinity_terms import term
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions
from tests.gangs import a_gang, member

HOST = "kubernetes.io/hostname"
APART = term(HOST, "app=x")


def on_host(name: str, *, pool: str = "a") -> dict[str, str]:
    return {HOST: name, "pool": pool}


def nominated_gang() -> Session:
    """Return a pool whose three nodes are claimed by a gang that keeps apart by host; its victims are still there."""
    gang = a_gang("g", 3, GangSource.LABELS)
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b"))
    for name in ("n1", "n2", "n3"):
        session.see(a_node(name, cpu="2", labels=on_host(name)), a_pod(f"old-{name}", cpu="2", node=name, pool="a"))
    apart = pod_affinity(anti_required=(APART,))
    for turn in range(3):
        pod = a_pod(f"g-{turn}", cpu="2", pool="a", priority=5, labels={"app": "x"}, pod_affinity=apart)
        session.see(member(pod, gang))
    assert len(evictions(session.decide())) == 3
    return session


def claimed(session: Session) -> dict[str, int]:
    """Return the claims that count for the anti-affinity of the gang, by node."""
    nodes = session.scheduler.cluster.nodes
    count = nodes.pod_counts.of(selected_by(APART, unseen=True))
    return {nodes.names[row]: number for row, number in count.claimed.items()}


def test_look_for_a_lender_takes_no_claim_out_of_the_counts() -> None:
    session = nominated_gang()
    session.see(a_node("n4", cpu="2", labels=on_host("n4")), a_pod("guest", cpu="1", pool="b"))
    cluster = session.scheduler.cluster
    every = claimed(session)
    assert every == {"n1": 1, "n2": 1, "n3": 1}
    propose(cluster, cluster.records["uid-guest"], "b", session.now)
    assert claimed(session) == every


def test_explanation_of_a_nominated_gang_takes_no_claim_out_of_the_counts() -> None:
    session = nominated_gang()
    session.see(a_node("n4", cpu="2", labels=on_host("n4")))
    cluster = session.scheduler.cluster
    question_of(cluster, cluster.records["uid-g-0"], session.now)
    assert claimed(session) == {"n1": 1, "n2": 1, "n3": 1}


def test_room_that_a_nominated_gang_can_use_beside_its_claim_is_not_lent() -> None:
    session = nominated_gang()
    session.tell(gone(Pod, "uid-old-n1"), gone(Pod, "uid-old-n2"))
    session.see(a_node("n4", cpu="2", labels=on_host("n4")), a_pod("guest", cpu="1", pool="b"))
    cluster = session.scheduler.cluster
    found = propose(cluster, cluster.records["uid-guest"], "b", session.now)
    assert isinstance(found, Wait)
    assert found.search.blocked == ("a",)
    assert set(binds(session.decide()).values()) == {"n1", "n2", "n4"}


LOCAL = StorageClass("local", "kubernetes.io/no-provisioner", waits=True)
CLOUD = StorageClass("cloud", "csi.example", waits=True)
PAIR = a_gang("pair", 2, GangSource.LABELS)


def a_claim(name: str, of: StorageClass) -> Seen:
    claim = VolumeClaim("default", name, uid=f"uid-{name}", storage_class=of.name, request_bytes=5, version="1")
    return Seen(claim)


def using(claim: str) -> tuple[VolumeClaimUse, ...]:
    return (VolumeClaimUse("spec.volumes[0].persistentVolumeClaim", claim),)


def chosen(said: list[Action]) -> dict[str, tuple[str, str, str]]:
    """Return pod -> its node, and the volume and the node that are chosen for its claim."""
    asked = [one for one in said if isinstance(one, BindVolumes)]
    return {one.pod.name: (one.node, one.writes[0].choice.volume, one.writes[0].choice.node) for one in asked}


def two_nodes(*events: Event) -> Session:
    """Return two nodes that hold one pod each."""
    session = Session(*(a_node(name, cpu="1", labels={HOST: name}) for name in ("n1", "n2")))
    session.tell(Seen(LOCAL), Seen(CLOUD), *events)
    return session


def test_gang_that_shares_a_claim_gets_one_node_for_it() -> None:
    session = two_nodes(a_claim("data", CLOUD))
    session.see(*(member(a_pod(f"pair-{n}", claims=using("data")), PAIR) for n in (0, 1)))
    said = session.decide()
    assert chosen(said) == {}, "both pods need the node for which the volume is created, which has room for one"
    session.see(a_node("n3", cpu="2", labels={HOST: "n3"}))
    assert chosen(session.decide()) == {"pair-0": ("n3", "", "n3"), "pair-1": ("n3", "", "n3")}


def test_volume_that_was_chosen_in_a_look_is_free_after_it() -> None:
    free = Volume("disk", storage_class="local", capacity_bytes=5, available=True, version="1")
    session = two_nodes(Seen(free), *(a_claim(f"data-{n}", LOCAL) for n in (0, 1)))
    gang = a_gang("pair", 2)
    session.tell(Seen(gang))
    session.see(*(member(a_pod(f"pair-{n}", claims=using(f"data-{n}")), gang) for n in (0, 1)))
    assert chosen(session.decide()) == {}
    session.tell(gone(Pod, "uid-pair-0"), Seen(a_gang("pair", 1)))
    assert chosen(session.decide(10)) == {"pair-1": ("n1", "disk", "")}
