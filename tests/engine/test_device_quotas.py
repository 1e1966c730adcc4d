"""Parts of GPUs in quotas, limits and numbers: a part counts as its share of a card."""

import pytest

from aischeduler.model.actions import Action, ReportWaiting
from aischeduler.model.device import DeviceRequest
from aischeduler.model.events import Seen
from aischeduler.model.gang import GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import ReclaimPolicy
from aischeduler.model.resources import ResourceList
from aischeduler.model.tenant_queue import CardUse, TenantSettings
from aischeduler.state.devices import DELIVERY_LABEL
from aischeduler.state.ledger import LENDS, QUEUE
from tests.build import a_node, a_pod, a_pool, replace
from tests.devices import a_gpu, asks, devices_of, gpus, has, part_of
from tests.engine.session import Session, binds, evictions, reports
from tests.engine.test_tenant_queues import a_session, running, status_of
from tests.gangs import a_gang, member
from tests.tenants import a_queue, in_queue

H200 = "NVIDIA-H200"
SHARE = "nvidia.com/gpu/100"


def a_card(name: str, *, card: str = H200, pool: str = "") -> Node:
    """Return a node whose devices any pod may have."""
    labels = {"nvidia.com/gpu.product": card, DELIVERY_LABEL: "koordlet", "pool": pool}
    return a_node(name, cpu="64", memory="512Gi", labels=labels)


def part(name: str, asked: DeviceRequest, **fields: object) -> Pod:
    """Return a pod that asks for a part of a GPU."""
    return replace(a_pod(name, devices=asked, cpu="1"), **fields)


def reason_of(said: list[Action], pod: str) -> tuple[str, str]:
    found = [one for one in said if isinstance(one, ReportWaiting) and one.pod.name == pod][-1]
    return str(found.reason), found.message


def used(session: Session, queue: str = "q") -> int:
    """Return the hundredths of GPUs that count in a queue."""
    return sum(sums.get(SHARE, 0) for sums in session.scheduler.cluster.ledger.under(QUEUE, queue).values())


def four(asked: DeviceRequest) -> list[Pod]:
    return [in_queue(part(f"p{number}", asked, created_seconds=number)) for number in range(4)]


def test_halves_count_as_halves_of_the_card_that_a_queue_has() -> None:
    session = a_session(a_queue(cards={"H200": 1}), a_card("n"), gpus("n", 4), *four(asks(50)))
    said = session.decide()
    assert [*binds(said)] == ["p0", "p1"]
    assert reason_of(said, "p2") == (
        "InsufficientScalarQuota",
        "Queue q has insufficient H200 quota: requested 0.5, total would be 1.5, but capability is 1",
    )
    session.see(replace(four(asks(50))[0], phase="Succeeded", node_name="n"))
    assert [*binds(session.decide())] == ["p2"]


@pytest.mark.parametrize(
    ("asked", "share"),
    [
        (asks(30, ratio=60), 60),
        (asks(60, ratio=30), 60),
        (asks(0, ratio=25), 25),
        (asks(40, count=2), 80),
        (asks(100), 100),
        (asks(0, gib=20), 25),
        (asks(50, gib=20), 50),
        (asks(10, gib=63), 79),
    ],
    ids=["memory", "core", "memory alone", "of two", "whole", "bytes", "core beside bytes", "bytes, rounded up"],
)
def test_share_is_the_larger_of_core_and_memory_of_each_card(asked: DeviceRequest, share: int) -> None:
    session = a_session(a_queue(), a_card("n"), gpus("n", 2, gib=80), in_queue(part("p", asked)))
    assert [*binds(session.decide())] == ["p"]
    assert used(session) == share


def test_whole_gpus_by_count_and_parts_count_together() -> None:
    whole = a_pod("whole", devices=asks(100, vendor="nvidia"), gpu=1, created=1)
    half = part("half", asks(50), created_seconds=2)
    session = a_session(a_queue(cards={"H200": 1}), a_card("n"), gpus("n", 4), in_queue(whole), in_queue(half))
    said = session.decide()
    assert [*binds(said)] == ["whole"]
    assert "requested 0.5, total would be 1.5, but capability is 1" in reason_of(said, "half")[1]


@pytest.mark.parametrize(("quota", "started"), [(1, []), (2, ["a", "b", "c"])])
def test_gang_asks_for_its_parts_and_whole_gpus_together(quota: int, started: list[str]) -> None:
    gang = a_gang("g", 3, GangSource.LABELS)
    whole = a_pod("c", devices=asks(100, vendor="nvidia"), gpu=1)
    pods = (part("a", asks(50)), part("b", asks(50)), whole)
    session = a_session(a_queue(cards={"H200": quota}), a_card("n"), gpus("n", 4))
    session.see(*(in_queue(member(pod, gang)) for pod in pods))
    said = session.decide()
    assert sorted(binds(said)) == started
    if not started:
        assert "total would be 2, but capability is 1" in reports(said)["a"]


def test_bytes_count_by_the_smallest_card_of_such_nodes_until_the_pod_has_one() -> None:
    nodes = (a_card("small", card="NVIDIA-A100-40GB"), a_card("large", card="NVIDIA-A100-80GB"))
    devices = (gpus("small", 4, gib=40), gpus("large", 4, gib=80))
    for cards, count in (({"A100-40GB": 1}, 2), ({"A100-80GB": 1}, 4)):
        session = a_session(a_queue(cards=cards), *nodes, *devices, *four(asks(0, gib=20)))
        session.see(in_queue(part("p5", asks(0, gib=20), created_seconds=9)))
        assert len(binds(session.decide())) == count
        assert used(session) == 100


def test_bytes_count_by_the_card_that_the_pod_got() -> None:
    mixed = devices_of("n", a_gpu(0, gib=80), a_gpu(1, gib=40))
    session = a_session(a_queue(), a_card("n"), mixed, in_queue(part("p", asks(0, gib=60))))
    session.decide()
    assert used(session) == 75
    session.see(in_queue(part("q", asks(0, gib=30))))
    session.decide()
    assert used(session) == 75 + 75


def test_bytes_of_a_pod_whose_card_nobody_knows_count_as_a_whole_one_until_it_is_known() -> None:
    pod = running(in_queue(part("p", asks(0, gib=20))), "n")
    session = a_session(a_queue(), a_card("n"), gpus("n", 2, gib=80), pod)
    session.decide()
    assert used(session) == 100
    session.see(replace(pod, devices=has(replace(part_of(0, 25), id="GPU-0"))))
    assert used(session) == 25
    session.see(replace(pod, phase="Succeeded"))
    assert session.scheduler.cluster.ledger.under(QUEUE, "q") == {}


def test_capability_in_gpus_bounds_parts_beside_the_names_as_they_are_written() -> None:
    by_gpu = replace(a_queue(), capability={"nvidia.com/gpu": 1})
    by_name = replace(a_queue(), capability={"kubernetes.io/gpu": 150})
    halves = [
        in_queue(a_pod(f"p{number}", extended={"kubernetes.io/gpu": "50"}, devices=asks(50), created=number))
        for number in range(4)
    ]
    listing = a_node("n", cpu="64", labels={DELIVERY_LABEL: "koordlet"}, extended={"kubernetes.io/gpu": "400"})
    for queue, count in ((by_gpu, 2), (by_name, 3)):
        session = a_session(queue, listing, gpus("n", 4), *halves)
        said = session.decide()
        assert len(binds(said)) == count
    session = a_session(by_gpu, listing, gpus("n", 4), *halves)
    assert reason_of(session.decide(), "p2") == (
        "InsufficientScalarQuota",
        "Queue q has insufficient nvidia.com/gpu quota: requested 0.5, total would be 1.5, but capability is 1",
    )


def test_cpu_of_a_part_does_not_count_where_cards_free_it() -> None:
    settings = TenantSettings(card_unlimited_cpu_memory=True)
    queue = a_queue(cpu="1", cards={"H200": 4})
    session = a_session(queue, a_card("n"), gpus("n", 4), *four(asks(50)), settings=settings)
    assert len(binds(session.decide())) == 4


def test_number_of_gpus_of_koordinator_is_no_card_of_its_own() -> None:
    amounts = {"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-core": "100"}
    pod = a_pod("p", extended=amounts, devices=asks(50, count=2))
    session = a_session(a_queue(cards={"H200": 1}), a_card("n"), gpus("n", 2), in_queue(pod))
    assert binds(session.decide()) == {"p": "n"}
    assert used(session) == 100


def test_status_of_a_queue_shows_parts_of_cards() -> None:
    session = a_session(a_queue(cards={"H200": 1}), a_card("n"), gpus("n", 4), *four(asks(40)))
    told = status_of(session, "q")
    assert told.summary.cards == (CardUse("H200", 80, 1),)
    assert (told.summary.used[SHARE], told.summary.pending[SHARE]) == (80, 80)


def test_parts_above_a_lowered_quota_go_as_few_as_need_be() -> None:
    session = a_session(a_queue(cards={"H200": 2}), a_card("n"), gpus("n", 4), *four(asks(40)))
    assert len(binds(session.decide())) == 4
    lowered = a_queue(cards={"H200": 1}, generation=2, shrink_after_seconds=0)
    session.tell(Seen(lowered))
    over = next(one for one in status_of(session, "q").conditions if one.type == "OverQuota")
    assert over.message == "More is used than the quota says: H200 1.6 of 1."
    session.tell(Seen(replace(lowered, over_quota_since_seconds=1)))
    assert len(evictions(session.decide(30.0))) == 2


@pytest.mark.parametrize("limit", ["lending", "borrowing"])
def test_limit_in_gpus_bounds_the_parts_of_loans(limit: str) -> None:
    most: ResourceList = {"nvidia.com/gpu": 1}
    lender = a_pool("lender", labels={"pool": "lender"}, lending_limit=most if limit == "lending" else None)
    home = a_pool("home", labels={"pool": "home"}, borrowing_limit=most if limit == "borrowing" else None)
    halves = [part(f"p{number}", asks(50), pool="home", created_seconds=number) for number in range(3)]
    session = Session(lender, home, a_card("n", pool="lender"), gpus("n", 4), *halves)
    assert binds(session.decide()) == {"p0": "n", "p1": "n"}
    assert session.scheduler.cluster.ledger.of(LENDS, "lender")[SHARE] == 100


def test_gang_that_borrows_counts_the_parts_of_all_its_pods() -> None:
    gang = a_gang("g", 3, GangSource.LABELS)
    pods = [member(part(f"p{number}", asks(50), pool="home"), gang) for number in range(3)]
    nodes = (a_card("n", pool="lender"), gpus("n", 4))
    home = a_pool("home", labels={"pool": "home"})
    for most, started in ((1, 0), (2, 3)):
        lender = a_pool("lender", labels={"pool": "lender"}, lending_limit={"nvidia.com/gpu": most})
        assert len(binds(Session(lender, home, *nodes, *pods).decide())) == started


def test_loans_of_parts_end_as_few_as_a_lowered_limit_asks() -> None:
    lender = a_pool("lender", labels={"pool": "lender"}, reclaim_policy=ReclaimPolicy.EVICT)
    home = a_pool("home", labels={"pool": "home"})
    parts = [part(f"p{number}", asks(40), pool="home", created_seconds=number) for number in range(4)]
    session = Session(lender, home, a_card("n", pool="lender"), gpus("n", 4), *parts)
    assert len(binds(session.decide())) == 4
    session.see(replace(lender, lending_limit={"nvidia.com/gpu": 1}, generation=2))
    assert len(evictions(session.decide(30.0))) == 2


def test_lender_with_the_largest_idle_share_of_gpus_is_chosen_whatever_names_hold_the_others() -> None:
    pools = [a_pool(name, labels={"pool": name}) for name in ("busy", "idle", "home")]
    nodes = [a_card(name, pool=name) for name in ("busy", "idle")]
    there = part("there", asks(90), node_name="busy", devices=has(part_of(0, 90)), pool="busy")
    for asker in (part("p", asks(50), pool="home"), a_pod("p", gpu=1, devices=asks(100, vendor="nvidia"), pool="home")):
        beside = a_pod("beside", cpu="8", node="idle", pool="idle")  # of CPU the other lender has more
        session = Session(*pools, *nodes, gpus("busy", 2), gpus("idle", 2), there, beside, asker)
        assert binds(session.decide()) == {"p": "idle"}


def test_columns_of_a_pool_count_parts_of_gpus() -> None:
    pod, other = part("p", asks(50)), part("other", asks(25), scheduler_name="default-scheduler", node_name="n")
    session = Session(a_card("n"), gpus("n", 4), pod, replace(other, devices=has(part_of(3, 25))))
    session.decide()
    session.see(part("big", asks(0, gib=999)))
    session.decide()
    (summary,) = session.scheduler.summary()
    shares = {kind: getattr(summary, kind).get(SHARE, 0) for kind in ("used", "own", "system", "shared", "pending")}
    assert shares == {"used": 75, "own": 50, "system": 25, "shared": 0, "pending": 100}
    assert (summary.free["gpu"], summary.free[SHARE], summary.allocatable["gpu"]) == (3, 25, 4)
    assert [(card.type, card.total, card.used) for card in summary.cards] == [("H200", 4, "0.75")]
