"""Card types and machine groups in the engine: warnings, counts, claims, loans, wake-ups."""

from typing import Any

from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import LogPoolEdit, ReportPool
from aischeduler.model.events import Seen
from aischeduler.model.gang import GangSource
from aischeduler.model.names import MACHINE_GROUP_KEY
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, ReclaimPolicy
from aischeduler.model.pool_summary import CARD_TYPES_MAX, CardCount
from aischeduler.state.pod_records import PodState
from tests.build import a_node, a_pod, a_pool, group_rule, replace
from tests.engine.session import Session, binds, evictions, nominations, reports, warnings
from tests.gangs import a_gang, member
from tests.pairs import PAIR, pair_profile

A, B = {"pool": "a"}, {"pool": "b"}
PRODUCT = "nvidia.com/gpu.product"
H200 = {**A, PRODUCT: "NVIDIA-H200"}
VISION = {**A, MACHINE_GROUP_KEY: "vision"}


def card(name: str, product: str, *, gpu: int = 1, pool: str = "a") -> Node:
    return a_node(name, gpu=gpu, labels={"pool": pool, PRODUCT: product})


def test_misspelt_type_and_group_are_warned_of_once_and_a_strange_one_never() -> None:
    node = a_node("n", labels={PRODUCT: "NVIDIA-A100-SXM4-80GB", MACHINE_GROUP_KEY: "vision"})
    session = Session(
        node,
        a_pod("wrong", gpu_types=("H200", "A10O"), machine_group="visoin"),
        a_pod("right", gpu_types=("A100",), machine_group="vision"),
        a_pod("strange", gpu_types=("MI300X",), machine_group="speech"),
    )
    said = [("wrong", "UnknownGpuType"), ("wrong", "UnknownMachineGroup")]
    assert warnings(session.decide()) == said
    session.see(a_node("m"))
    session.decide(400.0)
    assert warnings(session.said) == said


def test_cards_of_pools_are_counted_by_model_with_pods_of_every_scheduler() -> None:
    session = Session(
        a_pool("a", labels=A),
        card("n1", "NVIDIA-A100-SXM4-80GB", gpu=8),
        card("n2", "NVIDIA-A100-PCIE-40GB", gpu=4),
        card("n3", "Tesla-T4", gpu=2, pool="b"),
        card("none", "Tesla-V100", gpu=0),
        a_node("unlabelled", gpu=8, labels=A),
        a_pod("other", gpu=3, node="n1", scheduler_name="another"),
        a_pod("mine", gpu=2, node="n2", pool="a"),
        a_pod("plain", node="n3"),
    )
    counts = {summary.name: summary.cards for summary in session.scheduler.summary()}
    assert counts == {"a": (CardCount("A100", 12, 500),), "default": (CardCount("T4", 2, 0),)}


def test_types_beyond_the_limit_share_an_entry() -> None:
    nodes = (card(f"n{number:02}", f"X{number}", gpu=20 - number) for number in range(CARD_TYPES_MAX + 2))
    (summary,) = Session(*nodes).scheduler.summary()
    assert len(summary.cards) == CARD_TYPES_MAX
    assert summary.cards[0] == CardCount("X0", 20, 0)
    assert summary.cards[-1] == CardCount("other", 5 + 4 + 3, 0)


def test_status_is_reported_again_when_the_cards_of_a_node_change() -> None:
    session = Session(a_pool("a", labels=A), card("n", "Tesla-T4"))
    session.decide()
    session.see(card("n", "NVIDIA-L4"))
    session.decide(2.0)
    told = [one for one in session.said if isinstance(one, ReportPool) and one.name == "a"]
    assert [one.summary.cards for one in told] == [(CardCount("T4", 1, 0),), (CardCount("L4", 1, 0),)]


def test_edit_of_the_rules_is_logged_by_its_field() -> None:
    session = Session(a_pool("a", labels=A))
    session.decide()
    session.see(a_pool("a", labels=A, rare_types=("H200",), lend_rare_types=True, machine_groups=(group_rule("g"),)))
    session.decide(2.0)
    (edit,) = [one for one in session.said if isinstance(one, LogPoolEdit)]
    assert edit.changes == ("rareTypes changed", "lendRareTypes: false -> true", "machineGroups changed")


def test_claim_on_a_node_that_becomes_rare_ends() -> None:
    session = Session(
        a_pool("a", labels=A), a_node("h", cpu="1", labels=H200), a_pod("low", node="h", pool="a", started=1)
    )
    session.see(a_pod("high", pool="a", priority=5))
    assert nominations(session.decide()) == {"high": "h"}
    session.see(a_pool("a", labels=A, rare_types=("H200",)))
    said = session.decide(1.0)
    assert nominations(said) == {"high": ""}
    assert "had the rare GPU type H200" in reports(said)["high"]
    assert not len(session.scheduler.cluster.claims)


def test_loans_on_nodes_that_become_rare_end_and_others_stay() -> None:
    session = Session(
        a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT),
        a_node("h", labels=H200),
        a_node("n", labels=A),
        a_pod("on-rare", pool="b", node="h", started=1),
        a_pod("common", pool="b", node="n", started=2),
        a_pool("b", labels=B),
    )
    session.decide()
    session.see(a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT, rare_types=("H200",)))
    assert evictions(session.decide(1.0)) == {"on-rare": "LoanEnded"}
    assert evictions(session.said).keys() == {"on-rare"}


def test_node_that_moves_to_a_pool_where_its_type_is_rare_is_closed() -> None:
    session = Session(
        a_pool("a", labels=A, rare_types=("H200",)), a_pool("b", labels=B), card("h", "NVIDIA-H200", pool="b")
    )
    session.see(a_pod("first", pool="b"))
    assert binds(session.decide()) == {"first": "h"}
    session.see(card("h", "NVIDIA-H200", pool="a"), a_pod("second", pool="a"))
    assert "had the rare GPU type H200" in reports(session.decide())["second"]


def test_only_the_pods_that_name_a_group_of_a_changed_rule_are_tried_again() -> None:
    pool = a_pool("a", labels=A, machine_groups=(group_rule("vision", team="vision"), group_rule("speech", team="x")))
    session = Session(pool, a_pool("b", labels=B), a_node("n", labels=VISION))
    session.tell(Seen(Namespace("default", {})))
    session.see(
        a_pod("v", pool="b", machine_group="vision"),
        a_pod("s", pool="b", machine_group="speech"),
        a_pod("other", pool="b"),
    )
    session.decide()
    records = session.scheduler.cluster.records
    states = {name: records[f"uid-{name}"].state for name in ("v", "s", "other")}
    assert states == {"v": PodState.HELD, "s": PodState.HELD, "other": PodState.PARKED}
    attempts = {name: records[f"uid-{name}"].attempts for name in states}
    session.see(replace(pool, machine_groups=(pool.machine_groups[1],)))
    assert binds(session.decide(1.0)) == {"v": "n"}
    assert records["uid-s"].attempts == attempts["s"]
    session.tell(Seen(Namespace("default", {"team": "x"})))
    session.decide(1.0)
    assert records["uid-s"].state is PodState.PARKED


def test_pod_of_an_unknown_namespace_may_not_name_a_restricted_group() -> None:
    profile = replace(default_profile(), machine_groups=(group_rule("vision"),))
    session = Session(a_node("n", labels=VISION), a_pod("p", machine_group="vision"), profile=profile)
    assert reports(session.decide())["p"].startswith("The pod may not name the machine group vision")
    session.tell(Seen(Namespace("default", {})))
    assert binds(session.decide()) == {"p": "n"}


def test_rule_of_a_pool_that_comes_late_holds_pods_at_their_next_attempt() -> None:
    session = Session(a_node("n", cpu="1", labels=VISION), a_pod("first", machine_group="vision"))
    session.see(a_pod("second", machine_group="vision"))
    assert binds(session.decide()) == {"first": "n"}
    session.see(a_pool("a", machine_groups=(group_rule("vision", team="vision"),)))
    assert reports(session.decide(1.0))["second"].startswith("The pod may not name the machine group vision")


def pair(**fields: Any) -> tuple[Pod, Pod]:
    """Return two pods of pool b that start together."""
    labels = {PAIR: "x"}
    return a_pod("x-0", pool="b", labels=labels, **fields), a_pod("x-1", pool="b", labels=labels, **fields)


def test_pair_borrows_nodes_of_a_rare_type_only_where_they_are_lent() -> None:
    rare = a_pool("a", labels=A, rare_types=("H200",))
    session = Session(rare, a_pool("b", labels=B), a_node("h", cpu="2", labels=H200), profile=pair_profile())
    session.see(*pair(gpu_types=("H200",)))
    assert "rare GPU types are not lent: a" in reports(session.decide())["x-0"]
    session.see(replace(rare, lend_rare_types=True))
    assert binds(session.decide(1.0)) == {"x-0": "h", "x-1": "h"}


def test_pair_of_which_one_may_not_name_its_group_waits_whole_and_starts_whole() -> None:
    rule = group_rule("vision", team="vision")
    pool = a_pool("b", labels=B, machine_groups=(rule,))
    node = a_node("g", cpu="2", labels={**B, MACHINE_GROUP_KEY: "vision"})
    session = Session(pool, node, a_node("n", cpu="2", labels=B), profile=pair_profile())
    session.tell(Seen(Namespace("default", {})))
    plain, grouped = pair()
    session.see(plain, replace(grouped, spec=a_pod(machine_group="vision").spec))
    said = reports(session.decide())
    assert "The pod may not name the machine group vision" in said["x-0"]
    session.see(replace(pool, machine_groups=()))
    assert binds(session.decide(1.0)) == {"x-0": "n", "x-1": "g"}


def test_gang_that_spans_pools_takes_no_rare_nodes_that_are_not_lent() -> None:
    keeps = a_pool("b", labels=B, rare_types=("H200",))
    session = Session(a_pool("a", labels=A), keeps, card("a0", "NVIDIA-H200"), card("b0", "NVIDIA-H200", pool="b"))
    gang = a_gang("g", 2, GangSource.LABELS, span=True)
    session.see(*(member(a_pod(f"g-{n}", gpu=1, pool="a", gpu_types=("H200",)), gang) for n in (0, 1)))
    assert binds(session.decide()) == {}
    session.see(replace(keeps, lend_rare_types=True))
    assert sorted(binds(session.decide()).values()) == ["a0", "b0"]
