"""Room for gangs: which gangs are lost for others, and loans of gangs from one lender or several."""

import pytest

from aischeduler.engine.deferred_work import Promise
from aischeduler.engine.lending import holds_beside_promised, note_offered_beside
from aischeduler.model.events import Seen, gone
from aischeduler.model.gang import GangSource, TopologyLevel
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.state.units import shape_of_unit
from tests.build import a_node, a_pod, a_pool, amounts, replace
from tests.engine.session import Session, binds, evictions, nominations, reports
from tests.gangs import a_gang, member, members


def running(name: str, *nodes: str, gpu: int = 0, started: int = 1, priority: int = 0) -> list[Pod]:
    """Return the pods of a gang on these nodes."""
    pods = [
        a_pod(f"{name}-{turn}", cpu="2", gpu=gpu, node=node, started=started, priority=priority)
        for turn, node in enumerate(nodes)
    ]
    return [member(pod, name) for pod in pods]


def a_session(*objects: Pod, nodes: int, gpu: int = 0, gangs: tuple[tuple[str, int], ...]) -> Session:
    session = Session(*(a_node(f"n{number}", cpu="2", gpu=gpu) for number in range(nodes)), *objects)
    session.tell(*(Seen(a_gang(name, least)) for name, least in gangs))
    session.decide()
    return session


@pytest.mark.parametrize(
    ("long", "short", "cards", "now"),
    [((4, 10), (4, 900), 4, 1000), ((8, 1), (1, 1), 8, 1000), ((8, 1010), (1, 990), 8, 37_000)],
    ids=["worked less", "fewer cards", "work until now, also of pods that started after the gang came"],
)
def test_gang_with_the_least_work_is_lost_first(
    long: tuple[int, int], short: tuple[int, int], cards: int, now: float
) -> None:
    nodes = [a_node(f"n{number}", cpu="2", gpu=cards) for number in range(4)]
    session = Session(*nodes)
    for name, on, (gpu, started) in (("long", ("n0", "n1"), long), ("short", ("n2", "n3"), short)):
        session.see(*running(name, *on, gpu=gpu, started=started))
    session.tell(*(Seen(a_gang(name, 2)) for name in ("long", "short", "new")))
    session.now = now
    session.see(*(member(a_pod(f"new-{n}", cpu="2", gpu=cards, priority=5, created=1000), "new") for n in range(2)))
    assert sorted(evictions(session.decide())) == ["short-0", "short-1"]


def test_room_is_made_in_the_rack_where_the_least_work_is_lost() -> None:
    racks = {f"{rack}-{number}": rack for rack in ("r0", "r1") for number in range(2)}
    session = Session(*(a_node(name, cpu="2", gpu=1, labels={"rack": rack}) for name, rack in racks.items()))
    session.see(
        *(
            a_pod(f"old-{node}", cpu="2", gpu=1, node=node, started=10 if rack == "r0" else 90)
            for node, rack in racks.items()
        )
    )
    session.now = 100
    session.see(*(member(a_pod(f"g-{turn}", cpu="2", gpu=1, priority=5, created=100), "g") for turn in range(2)))
    session.tell(Seen(a_gang("g", 2, topology=(TopologyLevel("rack", required=True),))))
    assert sorted(evictions(session.decide())) == ["old-r1-0", "old-r1-1"]


def three_pools(*pods: Pod, home: Pool | None = None, lender: Pool | None = None) -> Session:
    """Return pools with two nodes each: the home pool of the gang, and the lenders `a` and `b`."""
    pools = [
        home or a_pool("home", labels={"pool": "home"}),
        lender or a_pool("a", labels={"pool": "a"}),
        a_pool("b", labels={"pool": "b"}),
    ]
    nodes = [a_node(f"{pool.name}{turn}", cpu="2", labels={"pool": pool.name}) for pool in pools for turn in (0, 1)]
    return Session(*pools, *nodes, *pods)


def pools_of(found: dict[str, str]) -> list[str]:
    return sorted(node[:-1] for node in found.values())


def spanning(least: int, *, span: bool = True) -> list[Pod]:
    return members(a_gang("g", least, GangSource.LABELS, span=span), least, pool="home")


@pytest.mark.parametrize(("least", "pools"), [(3, "a home home"), (6, "a a b b home home")], ids=["one", "several"])
def test_gang_that_may_span_starts_at_home_and_at_lenders(least: int, pools: str) -> None:
    assert pools_of(binds(three_pools(*spanning(least)).decide())) == pools.split()


def test_lender_whose_limit_is_too_low_gives_no_part() -> None:
    lender = a_pool("a", labels={"pool": "a"}, lending_limit=amounts(cpu="1"))
    assert pools_of(binds(three_pools(*spanning(4), lender=lender).decide())) == ["b", "b", "home", "home"]


def test_node_that_a_home_pod_of_the_lender_waits_for_is_not_spanned() -> None:
    session = three_pools(*(a_pod(f"old-{n}", cpu="2", node=f"home{n}", pool="home") for n in (0, 1)))
    session.see(*(a_pod(f"busy-{n}", cpu="2", node=f"b{n}", pool="b") for n in (0, 1)))
    session.see(*spanning(3))
    session.decide()
    session.tell(gone(Pod, "uid-old-0"))
    assert pools_of(binds(session.decide())) == ["a", "a", "home"]


def test_room_at_a_lender_wakes_a_gang_that_may_span() -> None:
    session = three_pools(*(a_pod(f"busy-{n}", cpu="2", node=f"{n}", pool=n[:-1]) for n in ("a0", "a1", "b0", "b1")))
    session.see(*spanning(3))
    assert "preemption" in reports(session.decide())["g-0"]
    session.tell(gone(Pod, "uid-busy-b1"))
    assert pools_of(binds(session.decide())) == ["b", "home", "home"]


@pytest.mark.parametrize("offered", ["never", "by a node that goes", "by a node that changes"])
def test_gang_of_which_a_pod_fits_no_node_of_its_pool_keeps_no_room_from_borrowers(offered: str) -> None:
    lender = a_pool("lender", labels={"team": "lender"}, disable_preemption=True, disable_borrowing=True)
    session = Session(a_pool("home", labels={"team": "home"}), lender, a_node("n", cpu="4", labels={"team": "lender"}))
    gang = a_gang("g", 2, GangSource.LABELS)
    session.see(a_pod("own", cpu="1", pool="lender", node="n"))
    cards = a_node("cards", cpu="1", gpu=1, labels={"team": "lender"})
    if offered != "never":
        session.see(cards, a_pod("busy", cpu="1", gpu=1, pool="lender", node="cards"))
    for name, asked in (("head", {"cpu": "2"}), ("worker", {"cpu": "1", "gpu": 1})):
        session.see(member(a_pod(name, pool="lender", **asked), gang))
    session.see(a_pod("borrower", cpu="1", pool="home"))
    started = {"borrower": "n"}
    assert binds(session.decide()) == (started if offered == "never" else {})
    if offered == "by a node that goes":
        session.tell(gone(Node, "cards"))
    elif offered == "by a node that changes":
        session.see(a_node("cards", cpu="1", labels={"team": "lender"}))
    assert binds(session.decide(11)) == ({} if offered == "never" else started)
    assert session.scheduler.net_saves() == 0


def test_gang_whose_pods_can_change_places_starts_before_its_last_victim_is_gone() -> None:
    foreign = a_pod("foreign", cpu="2", node="n0", scheduler_name="default-scheduler")
    critical = a_pod("critical", cpu="2", node="n1", priority=2_000_000_000)
    old = [a_pod(f"old-{n}", cpu="500m", node="n1") for n in range(2)]
    last = a_pod("last", cpu="1", node="n1")
    session = Session(a_node("n0", cpu="4"), a_node("n1", cpu="4"), foreign, critical, *old, last)
    gang = a_gang("g", 2, GangSource.LABELS)
    small, large = (a_pod(name, cpu=cpu, priority=5) for name, cpu in (("a-small", "500m"), ("b-large", "2")))
    session.see(member(small, gang), member(large, gang))
    assert sorted(evictions(session.decide())) == ["last", "old-0", "old-1"]
    session.tell(gone(Pod, "uid-old-0"))
    assert binds(session.decide()) == {"a-small": "n1", "b-large": "n0"}


def test_gang_that_may_span_pools_is_woken_by_a_lender_whose_limit_is_below_the_whole() -> None:
    limit = {"cpu": 2000}
    closed = a_pool("b", labels={"pool": "b"}, lending_limit=limit, disable_sharing=True)
    session = Session(a_pool("a", labels={"pool": "a"}, lending_limit=limit), closed)
    session.see(*(a_node(f"{pool}1", cpu="2", labels={"pool": pool}) for pool in "ab"))
    gang = a_gang("g", 2, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{turn}", cpu="2"), gang) for turn in range(2)))
    assert binds(session.decide()) == {}
    session.see(replace(closed, disable_sharing=False))
    assert sorted(binds(session.decide(seconds=1)).values()) == ["a1", "b1"]


def test_gang_that_may_span_pools_is_woken_when_its_pool_may_borrow_more() -> None:
    home = a_pool("h", labels={"pool": "h"}, borrowing_limit={"cpu": 4000})
    session = Session(home, *(a_pool(name, labels={"pool": name}) for name in "abc"))
    session.see(*(a_node(f"{pool}1", cpu="2", labels={"pool": pool}) for pool in "ab"))
    session.see(a_node("c1", cpu="2", labels={"pool": "c"}, unschedulable=True))
    session.see(a_pod("old", cpu="2", pool="h", node="c1", started=1))
    gang = a_gang("g", 2, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{turn}", cpu="2", pool="h"), gang) for turn in range(2)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old"))
    assert sorted(binds(session.decide(seconds=1)).values()) == ["a1", "b1"]


def test_gang_that_may_span_pools_is_woken_by_room_at_home_beside_room_of_a_lender() -> None:
    session = Session(a_pool("h", labels={"pool": "h"}), a_pool("a", labels={"pool": "a"}))
    session.see(*(a_node(f"{pool}1", cpu="2", labels={"pool": pool}) for pool in "ha"))
    session.see(a_pod("old", cpu="2", pool="h", node="h1", started=1))
    gang = a_gang("g", 2, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{turn}", cpu="2", pool="h"), gang) for turn in range(2)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old"))
    assert sorted(binds(session.decide(seconds=1)).values()) == ["a1", "h1"]


@pytest.mark.parametrize("freed", ["a1", "h1"])
def test_gang_that_may_span_pools_is_woken_once_a_pod_of_a_lender_left_room(freed: str) -> None:
    session = Session(*(a_pool(name, labels={"pool": name}) for name in "haz"))
    sizes = {"h1": "2", "a1": "2", "z1": "3"}
    session.see(*(a_node(name, cpu=cpu, labels={"pool": name[0]}) for name, cpu in sizes.items()))
    session.see(a_pod("old", cpu="2", priority=9, pool=freed[0], node=freed, started=1))
    gang = a_gang("g", 3, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{turn}", cpu="2", pool="h"), gang) for turn in range(3)))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old"))
    session.see(a_pod("own", cpu="1", pool="z"))
    assert sorted(binds(session.decide(seconds=1)).values()) == ["a1", "h1", "z1", "z1"]


def test_room_of_a_lender_that_a_gang_was_woken_for_and_does_not_take_is_offered_again() -> None:
    session = Session(*(a_pool(name, labels={"pool": name}, disable_sharing=name == "h") for name in "ahz"))
    sizes = {"h1": "8Gi", "a1": "8Gi", "a2": "64Gi"}
    session.see(*(a_node(name, cpu="2", memory=size, labels={"pool": name[0]}) for name, size in sizes.items()))
    session.see(*(a_pod(f"old-{node}", cpu="2", pool="a", node=node, started=1) for node in ("a1", "a2")))
    gang = a_gang("g", 3, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{turn}", cpu="2", priority=5, pool="h"), gang) for turn in range(3)))
    session.see(a_pod("large", cpu="2", memory="32Gi", pool="z"), a_pod("small", pool="z"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old-a1"), gone(Pod, "uid-old-a2"))
    assert binds(session.decide()) == {"large": "a2", "small": "a1"}


def test_pod_goes_where_a_gang_frees_room_for_it_and_no_other_pod_goes() -> None:
    session = Session(*(a_pool(name, labels={"pool": name}) for name in ("home", "other")))
    session.see(*(a_node(name, cpu="2", labels={"pool": "home"}) for name in ("lent", "own")))
    gang = a_gang("g", 2, GangSource.LABELS, span=True)
    session.see(member(a_pod("g-0", pool="other", node="lent", started=1), gang))
    session.see(member(a_pod("g-1", cpu="2", pool="home", node="own", started=1), gang))
    session.see(a_pod("borrower", pool="other", node="lent", started=1), a_pod("asks", cpu="2", pool="home"))
    told = session.decide()
    assert (set(evictions(told)), nominations(told)["asks"]) == ({"g-0", "g-1"}, "own")


def test_gang_borrows_once_a_gang_of_the_lender_has_taken_the_room_that_it_claims() -> None:
    session = Session(*(a_pool(name, labels={"pool": name}) for name in ("home", "lender")))
    session.see(*(a_node(name, cpu="3", gpu=1, labels={"pool": "lender"}) for name in ("n1", "n2", "n3")))
    session.see(*(a_pod(f"old-{node}", cpu="3", pool="lender", node=node, started=1) for node in ("n1", "n2")))
    session.see(a_pod("full", cpu="3", priority=9, pool="lender", node="n3"))
    guest, owner = (a_gang(name, 2, GangSource.LABELS) for name in ("guest", "owner"))
    session.see(*(member(a_pod(f"guest-{turn}", cpu="2", pool="home"), guest) for turn in range(2)))
    assert binds(session.decide()) == {}
    session.see(*(member(a_pod(f"owner-{turn}", gpu=1, priority=5, pool="lender"), owner) for turn in range(2)))
    assert set(evictions(session.decide())) == {"old-n1", "old-n2"}
    session.tell(gone(Pod, "uid-old-n1"), gone(Pod, "uid-old-n2"))
    assert set(binds(session.decide())) == {"guest-0", "guest-1", "owner-0", "owner-1"}


def test_room_that_was_kept_for_a_gang_is_offered_to_another_gang_once_the_first_does_not_take_it() -> None:
    session = Session(*(a_node(f"n{turn}", cpu="2", gpu=2) for turn in (1, 2)), a_node("n3", cpu="1"))
    session.see(*(a_pod(f"old-{turn}", cpu="2", priority=9, node=f"n{turn}", started=1) for turn in (1, 2)))
    first, second = (a_gang(name, count, GangSource.LABELS) for name, count in (("first", 3), ("second", 2)))
    session.see(*(member(a_pod(f"first-{turn}", gpu=1, priority=5), first) for turn in range(3)))
    session.see(*(member(a_pod(f"second-{turn}", cpu=cpu), second) for turn, cpu in enumerate(("1", "2"))))
    session.see(a_pod("single", cpu="2", priority=9))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old-2"), gone(Pod, "uid-old-1"))
    assert set(binds(session.decide())) == {"single", "second-0", "second-1"}


@pytest.mark.parametrize(("asked", "again"), [(3, {0: None}), (4, {})])
def test_rows_are_offered_again_only_after_a_unit_that_kept_a_gang_from_room_by_amounts(
    asked: int, again: dict[int, None]
) -> None:
    gang = a_gang("g", asked)
    session = Session(a_node("n1", cpu="3"), *(member(a_pod(f"g-{turn}", cpu="1"), gang) for turn in range(asked)))
    cluster = session.scheduler.cluster
    unit = next(iter(cluster.units.by_name.values()))
    session.tell(Seen(a_pod("old", cpu="1", node="n1")), Seen(gang))
    session.decide()
    session.tell(gone(Pod, "uid-old"))
    promise = cluster.deferred.promised["uid-woken"] = Promise(DEFAULT_POOL, pods=1)
    assert not holds_beside_promised(cluster, DEFAULT_POOL, shape_of_unit(unit), cluster.pools.id(DEFAULT_POOL))
    note_offered_beside(cluster, DEFAULT_POOL, [0])
    assert promise.rows == again
