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
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import CardRequest, ServiceType, TenantTerms, Workload
from tests.build import a_node, a_pod, replace
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
    assert found.quota.levels == (
        QuotaLevel("q", "cpu", "cpu", 2000, 3000, None),
        QuotaLevel("q", "memory", "memory", found.quota.levels[1].used, found.quota.levels[1].asked, None),
        QuotaLevel("q", "pods", "pods", 2, 1, None),
        QuotaLevel("q", "H200", "nvidia.com/gpu", 5, 2, 8, is_card=True, concerned=True),
        QuotaLevel("org", "cpu", "cpu", 3000, 3000, 100_000),
        QuotaLevel("org", "memory", "memory", found.quota.levels[5].used, found.quota.levels[5].asked, None),
        QuotaLevel("org", "pods", "pods", 3, 1, None),
        QuotaLevel("org", "NVIDIA-H200", "nvidia.com/gpu", 6, 2, 6, is_card=True, refuses=True, concerned=True),
    )
    assert found.quota.holders == (("default/b", 4), ("default/a", 1), ("default/c", 1))


def test_ancestor_that_refuses_too_is_marked() -> None:
    queues = a_queue("org", cards={"NVIDIA-H200": 6}), a_queue(parent="org", cards={"H200": 6})
    quota = World(*queues, a_card_node("n", "NVIDIA-H200"), card("a", 6, "n"), card("p", 2)).explain("p").quota
    assert quota is not None
    assert [(level.queue, level.name) for level in quota.refusing] == [("q", "H200"), ("org", "NVIDIA-H200")]


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


def test_quota_is_raised_for_the_whole_workload_where_that_is_checked() -> None:
    asked = TenantTerms(card_request=(CardRequest("H200", ("H200",), 8),))
    job = Workload("Job", "default", "j", "uid-j", terms=asked)
    pod = in_queue(a_card_pod("p", 2), owner="Job/j")
    found = World(a_queue(cards={"NVIDIA-H200": 4}), job, a_card_node("n", "NVIDIA-H200"), pod).explain("p")
    assert found.verdict is Verdict.HELD
    assert texts(found, RemedyKind.QUOTA) == ["raise cards[NVIDIA-H200] of the Queue q to 8 (by 4)"]


@pytest.mark.parametrize(
    ("queues", "said", "remedy"),
    [
        ((a_queue("other"),), "The queue q does not exist; the pod is held.", []),
        ((), "The queue q does not exist; the pod is held.", []),
        (
            (a_queue(parent="up"), a_queue("up", state=QueueState.CLOSED)),
            "The queue up, which is above q, is closed; the pod is held.",
            ["set state of the Queue up to Open"],
        ),
        ((a_queue(parent="up"),), "The queue q takes no pods: its parent up does not exist.", []),
        (
            (a_queue(allowed_namespaces=label_selector("", {"team": "red"}, ())),),
            "The queue q takes no pods from the namespace default: its allowedNamespaces do not match.",
            ["remove allowedNamespaces of the Queue q"],
        ),
    ],
)
def test_other_holds_of_a_queue_say_why_and_name_the_one_change_if_there_is_one(
    queues: tuple[TenantQueue, ...], said: str, remedy: list[str]
) -> None:
    world = World(*queues, a_node("n"))
    world.session.tell(QueuesServed(served=True))
    world.session.see(in_queue(a_pod("p")))
    world.session.decide()
    found = world.explain("p")
    assert (found.verdict, found.message, [other.text for other in found.remedies]) == (Verdict.HELD, said, remedy)


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


def test_rolling_update_in_a_full_queue_says_that_the_older_pods_hold_the_quota() -> None:
    def of(name: str, version: str) -> Any:
        return in_queue(a_pod(name), owner=f"ReplicaSet/web-{version}")

    versions = [Workload("ReplicaSet", "default", f"web-{version}", owner="Deployment/web") for version in "12"]
    world = World(*versions, a_queue(cpu="1"), a_node("n"), on(of("a", "1"), "n"), of("p", "2"))
    quota = world.explain("p").quota
    assert quota is not None
    assert quota.replaces
