"""What an explanation says of tenant queues: numbers per level, who holds them, and what starts a held pod."""

from typing import Any

import pytest

from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, QuotaLevel, RemedyKind, Verdict
from aischeduler.analysis.quota_use import RULE
from aischeduler.analysis.remedy_steps import steps
from aischeduler.engine.profile import default_profile
from aischeduler.engine.self_check import digest
from aischeduler.model.events import Object, QueuesServed, Seen
from aischeduler.model.pool import Namespace
from aischeduler.model.quantity import quantity_text
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import CardRequest, ServiceType, TenantTerms, Workload
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod, replace
from tests.devices import asks, gpus, has, part_of
from tests.engine.session import Session, binds
from tests.gangs import a_gang, member
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue


class World:
    """An engine that decides about these objects, and then is asked."""

    def __init__(self, *objects: Object, settings: TenantSettings | None = None) -> None:
        self.session = Session(profile=replace(default_profile(), tenants=settings or TenantSettings()))
        for seen in objects:
            self.session.tell(Seen(seen))
        self.session.decide()

    def explain(self, name: str) -> Explanation:
        """Explain a pod, and check that the engine is as before."""
        cluster = self.session.scheduler.cluster
        before = digest(cluster)
        found = explain(cluster, cluster.records[f"uid-{name}"], self.session.now)
        assert digest(cluster) == before
        self.session.scheduler.look()
        return found


def on(pod: Any, node: str, started: int = 1) -> Any:
    return replace(pod, node_name=node, phase="Running", started_seconds=started)


def card(name: str, gpus: int, node: str = "", queue: str = "q", **fields: Any) -> Any:
    pod = in_queue(a_card_pod(name, gpus, **fields), queue)
    return on(pod, node) if node else pod


def texts(found: Explanation, kind: RemedyKind) -> list[str]:
    return [remedy.text for remedy in found.remedies if remedy.kind is kind]


def test_levels_have_the_numbers_of_each_queue_and_of_all_that_is_asked() -> None:
    world = World(
        a_queue("org", cpu="100", cards={"NVIDIA-H200": 6, "A100": 4}),
        a_queue(parent="org", cards={"H200": 8}),
        a_card_node("n", "NVIDIA-H200"),
        card("a", 1, "n"),
        card("b", 4, "n"),
        card("c", 1, "n", "org"),
        card("p", 2, cpu="3"),
    )
    found = world.explain("p")
    assert found.verdict is Verdict.HELD
    assert found.quota is not None
    held = ("default/b", 400), ("default/a", 100), ("default/c", 100)
    assert found.quota.levels == (
        QuotaLevel("q", "cpu", "cpu", 2000, 3000, None),
        QuotaLevel("q", "memory", "memory", found.quota.levels[1].used, found.quota.levels[1].asked, None),
        QuotaLevel("q", "pods", "pods", 2, 1, None),
        QuotaLevel("q", "H200", "nvidia.com/gpu", 500, 200, 800, is_card=True, concerned=True),
        QuotaLevel("org", "cpu", "cpu", 3000, 3000, 100_000),
        QuotaLevel("org", "memory", "memory", found.quota.levels[5].used, found.quota.levels[5].asked, None),
        QuotaLevel("org", "pods", "pods", 3, 1, None),
        QuotaLevel(
            "org",
            "NVIDIA-H200",
            "nvidia.com/gpu",
            600,
            200,
            600,
            is_card=True,
            refuses=True,
            concerned=True,
            holders=held,
        ),
    )


def test_every_quota_that_is_too_small_is_marked_with_who_holds_it() -> None:
    world = World(
        a_queue("org", cards={"NVIDIA-H200": 6}),
        a_queue(parent="org", cards={"H200": 6}, cpu="5", memory="2Gi"),
        a_card_node("n", "NVIDIA-H200"),
        card("a", 4, "n", cpu="4"),
        card("b", 2, "n", queue="org"),
        card("p", 4, cpu="3", memory="2Gi"),
    )
    quota = world.explain("p").quota
    assert quota is not None
    assert [(level.queue, level.name, [name for name, _ in level.holders]) for level in quota.refusing] == [
        ("q", "cpu", ["default/a"]),
        ("q", "memory", ["default/a"]),
        ("q", "H200", ["default/a"]),
        ("org", "NVIDIA-H200", ["default/a", "default/b"]),
    ]


def test_quota_is_raised_at_every_level_that_refuses_and_no_further() -> None:
    world = World(
        a_queue("org", cards={"NVIDIA-H200": 6}),
        a_queue(parent="org", cards={"H200": 6}, cpu="5"),
        a_card_node("n", "NVIDIA-H200"),
        card("a", 6, "n", cpu="4"),
        card("p", 2, cpu="3"),
    )
    (remedy,) = [remedy for remedy in world.explain("p").remedies if remedy.kind is RemedyKind.QUOTA]
    assert remedy.text == (
        "raise capability[cpu] of the Queue q to 7 (by 2) and cards[H200] of the Queue q to 8 (by 2)"
        " and cards[NVIDIA-H200] of the Queue org to 8 (by 2)"
    )
    first, second = steps(remedy, {})
    assert (first["kind"], first["name"], first["body"]) == (
        "Queue",
        "q",
        {"spec": {"capability": {"cpu": "7"}, "cards": {"H200": 8}}},
    )
    assert (second["apiVersion"], second["name"]) == ("resource.aibee.cn/v1alpha1", "org")
    world.session.tell(
        Seen(replace(a_queue("org", cards={"NVIDIA-H200": 8}), generation=2)),
        Seen(a_queue(parent="org", cards={"H200": 8}, cpu="7")),
    )
    assert binds(world.session.decide()) == {"p": "n"}


def test_quota_of_a_queue_of_volcano_is_raised_in_its_annotation_and_with_the_factor() -> None:
    queue = a_queue(cards={"H200": 1, "A100": 4}, cpu="1", source=QueueSource.VOLCANO)
    settings = TenantSettings(over_commit_milli=1500)
    world = World(queue, a_card_node("n", "NVIDIA-H200"), card("p", 2, cpu="3"), settings=settings)
    found = world.explain("p")
    (remedy,) = [remedy for remedy in found.remedies if remedy.kind is RemedyKind.QUOTA]
    assert "capability[cpu] of the Queue q to 2 (by 1)" in remedy.text
    (step,) = steps(remedy, {})
    assert step["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert step["body"] == {
        "metadata": {"annotations": {"volcano.sh/card.quota": '{"H200":2,"A100":4}'}},
        "spec": {"capability": {"cpu": "2"}},
    }


def test_least_important_pods_of_the_queue_end_and_a_gang_as_a_whole() -> None:
    gang = a_gang("g", 2)
    members = [member(card(f"g{turn}", 1, "n", priority=1), gang) for turn in range(2)]
    world = World(
        a_queue(cards={"H200": 5}),
        a_card_node("n", "NVIDIA-H200"),
        gang,
        card("free", 2, "n", "other"),
        card("kept", 3, "n", priority=9),
        *members,
        card("p", 1, priority=5),
        a_queue("other"),
    )
    found = world.explain("p")
    assert texts(found, RemedyKind.PODS_END) == ["end these pods in the Queue q: default/g0, default/g1"]


def test_pods_that_hold_different_quotas_end_together() -> None:
    world = World(
        a_queue("org", cards={"H200": 4}),
        a_queue(parent="org", cpu="2"),
        a_queue("b", parent="org"),
        a_card_node("n", "NVIDIA-H200"),
        on(in_queue(a_pod("cpu", cpu="1")), "n"),
        card("cards", 4, "n", "b", cpu=""),
        card("p", 2, cpu="2"),
    )
    assert texts(world.explain("p"), RemedyKind.PODS_END) == [
        "end these pods in the Queue org: default/cards, default/cpu"
    ]


def test_quota_is_raised_for_the_whole_workload_where_that_is_checked() -> None:
    asked = TenantTerms(card_request=(CardRequest("H200", ("H200",), 8),))
    job = Workload("Job", "default", "j", "uid-j", terms=asked)
    pod = in_queue(a_card_pod("p", 2), owner="Job/j")
    found = World(a_queue(cards={"NVIDIA-H200": 4}), job, a_card_node("n", "NVIDIA-H200"), pod).explain("p")
    assert found.verdict is Verdict.HELD
    assert texts(found, RemedyKind.QUOTA) == ["raise cards[NVIDIA-H200] of the Queue q to 8 (by 4)"]
    assert found.quota is not None
    assert [(level.name, level.asked, level.quota) for level in found.quota.refusing] == [("NVIDIA-H200", 800, 400)]


RED_ONLY: dict[str, Any] = {"allowed_namespaces": label_selector("", {"team": "red"}, ())}
OPEN = "set state of the Queue {} to Open"
NAME_IT = "Correct the annotation resource.aibee.cn/queue of the pod, or create the Queue q."


@pytest.mark.parametrize(
    ("queues", "said", "edit"),
    [
        ((a_queue("other"),), "The queue q does not exist; the pod is held.", NAME_IT),
        ((), "The queue q does not exist; the pod is held.", NAME_IT),
        (
            (a_queue(parent="up"), a_queue("up", state=QueueState.CLOSED)),
            "The queue up, which is above q, is closed; the pod is held.",
            OPEN.format("up"),
        ),
        (
            (a_queue(parent="up", state=QueueState.CLOSED, **RED_ONLY), a_queue("up", state=QueueState.DRAINING)),
            "The queue up, which is above q, is draining; the pod is held.",
            f"{OPEN.format('up')} and {OPEN.format('q')} and remove allowedNamespaces of the Queue q",
        ),
        (
            (a_queue(parent="up"), a_queue("up", state=QueueState.CLOSED, source=QueueSource.VOLCANO)),
            "The queue up, which is above q, is closed; the pod is held.",
            "It is a queue of Volcano: vcctl queue operate --action open --name up",
        ),
        (
            (a_queue(parent="uup"), a_queue("uuup")),
            "The queue q takes no pods: its parent uup does not exist.",
            "Edit spec.parent of the Queue q. Did you mean uuup?",
        ),
        (
            (a_queue(parent="r"), a_queue("r", parent="q")),
            "The queue q takes no pods: its ancestors form a cycle: q -> r -> q.",
            "Edit spec.parent of the Queue r.",
        ),
        (
            (a_queue(parent="up"), a_queue("up", invalid="spec.cards: no")),
            "The queue up is refused: spec.cards: no",
            "",
        ),
        (
            (a_queue(**RED_ONLY),),
            "The queue q takes no pods from the namespace default: its allowedNamespaces do not match.",
            "remove allowedNamespaces of the Queue q",
        ),
    ],
)
def test_other_holds_of_a_queue_say_why_and_what_to_edit(queues: tuple[TenantQueue, ...], said: str, edit: str) -> None:
    world = World(*queues, a_node("n"))
    world.session.tell(QueuesServed(served=True))
    world.session.see(in_queue(a_pod("p")))
    world.session.decide()
    found = world.explain("p")
    assert (found.verdict, found.message) == (Verdict.HELD, said)
    assert [found.hint, *(remedy.text for remedy in found.remedies)] == ([edit] if edit == found.hint else ["", edit])


def test_unknown_queue_is_corrected_where_it_is_named() -> None:
    replicas = Workload("ReplicaSet", "default", "web-1", owner="Deployment/web", terms=TenantTerms(queue="teem"))
    pods = in_queue(a_pod("p"), "", owner="ReplicaSet/web-1"), in_queue(a_pod("own"), "teem", owner="ReplicaSet/web-1")
    world = World(a_queue("team"), replicas, a_node("n"), *pods)
    by_workload, by_pod = world.explain("p"), world.explain("own")
    assert by_workload.message.endswith("Did you mean team?")
    assert "resource.aibee.cn/queue of ReplicaSet/web-1, or of what made that, or create" in by_workload.hint
    assert "resource.aibee.cn/queue of the template of ReplicaSet/web-1, or create" in by_pod.hint


def test_rows_that_only_a_quota_closes_are_a_row_of_the_funnel_and_their_quota_is_raised() -> None:
    world = World(
        a_queue(cards={"H200": 0, "A100": 8}),
        a_card_node("a", "NVIDIA-A100", 8),
        a_card_node("h", "NVIDIA-H200"),
        on(a_card_pod("busy", 8, priority=9), "a"),
        card("p", 4),
    )
    found = world.explain("p")
    assert found.verdict is Verdict.WAITS
    assert [(refusal.rule, refusal.nodes) for refusal in found.refused] == [("NodeResourcesFit", 1), (RULE, 1)]
    assert found.refused[-1].reason == "no quota is left for H200 of the queue q"
    assert texts(found, RemedyKind.QUOTA) == ["raise cards[H200] of the Queue q to 4 (by 4)"]


def test_request_is_lowered_to_what_the_quota_leaves() -> None:
    world = World(a_queue(cards={"H200": 5}), a_card_node("n", "NVIDIA-H200"), card("a", 3, "n"), card("p", 4))
    assert texts(world.explain("p"), RemedyKind.REQUEST) == ["request 2 instead of 4 nvidia.com/gpu"]


def test_raised_quota_may_start_the_pod_after_evictions() -> None:
    training = on(in_queue(a_card_pod("t", 8), "low", service=ServiceType.TRAINING), "n")
    asker = in_queue(a_card_pod("p", 8), service=ServiceType.INFERENCE)
    world = World(
        a_queue(cards={"H200": 4}, priority=9), a_queue("low"), a_card_node("n", "NVIDIA-H200"), training, asker
    )
    (remedy,) = [remedy for remedy in world.explain("p").remedies if remedy.kind is RemedyKind.QUOTA]
    assert remedy.start.victims == ("uid-t",)


RED = Namespace("default", {"team": "red"})
SPARED = TenantSettings(non_preemptible=label_selector("", {"team": "red"}, ()))
TRAINED: dict[str, Any] = {"service": ServiceType.TRAINING}


def kept(
    train: TenantQueue | None, asker: Any = ServiceType.INFERENCE, queue: str = "train", **terms: Any
) -> list[tuple[str, tuple[str, ...], int | None]]:
    """Return what is kept from a pod of the queue serve by a pod of the queue train, which started at second 1."""
    running = replace(on(in_queue(a_card_pod("t", 8), queue, **(TRAINED | terms)), "n"), placed_seconds=1)
    pod = in_queue(a_card_pod("p", 8, priority=-1), "serve", service=asker)
    queues = [queue for queue in (a_queue("serve", priority=5), train) if queue is not None]
    found = World(*queues, RED, a_card_node("n", "NVIDIA-H200"), running, pod, settings=SPARED).explain("p")
    assert bool(found.kept) == (found.verdict is Verdict.WAITS)
    return [(one.reason, one.pods, one.until_seconds) for one in found.kept]


def test_pods_that_inference_may_not_evict_are_named_with_the_rule_that_keeps_them() -> None:
    assert kept(a_queue("train")) == []
    for reason, found in (
        ("reclaimable of the queue train is false", kept(a_queue("train", reclaimable=False))),
        (
            "the priority 5 of the queue train is not below 5, that of the queue serve",
            kept(a_queue("train", priority=5)),
        ),
        ("their queue train does not exist", kept(None)),
        ("their workload was not seen yet", kept(a_queue("train"), owner="Job/j")),
        ('they say volcano.sh/preemptable: "false"', kept(a_queue("train"), preemptable=False)),
        ("they are inference, and inference evicts only training", kept(a_queue("train"), service="inference")),
        (
            "they are of no known service type, and inference evicts only training",
            kept(a_queue("train"), service="other"),
        ),
        ("they have no queue, and inference evicts only training of queues", kept(a_queue("train"), queue="")),
        (
            "they are of the same queue serve, and their pod priority is not lower",
            kept(a_queue("train"), queue="serve"),
        ),
    ):
        assert found == [(reason, ("default/t",), None)]


def test_pods_that_min_runtime_keeps_are_named_last_with_the_time_when_they_may_go() -> None:
    reason = "minRuntime of the queue train has not passed"
    assert kept(a_queue("train", min_runtime_seconds=60)) == [(reason, ("default/t",), 61)]
    ((other, _, until),) = kept(a_queue("train", min_runtime_seconds=60, reclaimable=False))
    assert (other, until) == ("reclaimable of the queue train is false", None)


def test_pods_that_training_or_an_unknown_service_may_not_evict_are_named_with_the_rule() -> None:
    ((training, _, _),) = kept(a_queue("train"), asker=ServiceType.TRAINING)
    ((unknown, _, _),) = kept(a_queue("train"), asker="")
    ((same, _, _),) = kept(a_queue("train"), asker="", queue="serve")
    assert training == "training evicts nobody"
    assert unknown == "its own service type is not known, so it evicts only from its queue serve"
    assert same == "they are of the same queue serve, and their pod priority is not lower"


def test_pod_that_holds_nothing_that_is_lacking_is_not_named_among_those_that_stay() -> None:
    queues = a_queue("train"), a_queue("serve", priority=5)
    small = on(in_queue(a_pod("small"), "train", **TRAINED), "n")
    held = on(in_queue(a_card_pod("held", 8), "serve", **TRAINED), "n")
    pod = in_queue(a_card_pod("p", 8), "serve", **TRAINED)
    found = World(*queues, a_card_node("n", "NVIDIA-H200"), small, held, pod).explain("p")
    assert [one.pods for one in found.kept] == [("default/held",)]


def test_rolling_update_in_a_full_queue_says_that_the_older_pods_hold_the_quota() -> None:
    def of(name: str, version: str) -> Any:
        return in_queue(a_pod(name), owner=f"ReplicaSet/web-{version}")

    versions = [Workload("ReplicaSet", "default", f"web-{version}", owner="Deployment/web") for version in "12"]
    world = World(*versions, a_queue(cpu="1"), a_node("n"), on(of("a", "1"), "n"), of("p", "2"))
    quota = world.explain("p").quota
    assert quota is not None
    assert quota.replaces


def test_parts_of_gpus_are_shares_of_cards_in_levels_holders_and_remedies() -> None:
    node = a_node("n", cpu="64", labels={"nvidia.com/gpu.product": "NVIDIA-H200", DELIVERY_LABEL: "koordlet"})
    there = in_queue(a_pod("there", node="n", devices=asks(75), has=has(part_of(0, 75))))
    found = World(
        a_queue(cards={"H200": 1}), node, gpus("n", 4), there, in_queue(a_pod("p", devices=asks(50)))
    ).explain("p")
    assert found.quota is not None
    (level,) = found.quota.refusing
    assert (level.name, level.used, level.asked, level.quota) == ("H200", 75, 50, 100)
    assert level.holders == (("default/there", 75),)
    assert [quantity_text(level.unit, amount) for amount in (level.used, level.asked, 100)] == ["0.75", "0.5", "1"]
    assert texts(found, RemedyKind.QUOTA) == ["raise cards[H200] of the Queue q to 2 (by 1)"]


def test_capability_in_gpus_is_raised_to_whole_ones_for_parts() -> None:
    node = a_node("n", cpu="64", labels={DELIVERY_LABEL: "koordlet"})
    there = in_queue(a_pod("there", node="n", devices=asks(75), has=has(part_of(0, 75))))
    queue = replace(a_queue(), capability={"nvidia.com/gpu": 1})
    found = World(queue, node, gpus("n", 4), there, in_queue(a_pod("p", devices=asks(50)))).explain("p")
    assert texts(found, RemedyKind.QUOTA) == ["raise capability[nvidia.com/gpu] of the Queue q to 2 (by 1)"]
