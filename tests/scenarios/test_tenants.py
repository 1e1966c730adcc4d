"""Quotas of tenant queues as users meet them: by card and by resource, and edits while pods wait and run."""

from collections import Counter

from aischeduler.model.workload import CARD_REQUEST_KEY
from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS
from tests.api_contract.world import Json, condition
from tests.gang_objects import gang_labels, indexed_job_object
from tests.queue_objects import volcano_queue_object
from tests.scenarios.gangs import job, members, pods_of_jobs, says, start_together, waiting
from tests.scenarios.stage import Stage
from tests.scenarios.tenants import A100, H200, PRODUCT, card_node, edit, in_queue, pod, queue, training, used

VOLCANO_QUEUE = "Queue.scheduling.volcano.sh"
VOLCANO_QUOTA = "volcano.sh/card.quota"
SLICE, SHARE = "nvidia.com/mig-1g.18gb", "nvidia.com/gpu.shared"


def spread(stage: Stage, *pods: str) -> Counter[str]:
    """Return how many of these pods are on each node, with those that wait under the empty name."""
    return Counter(stage.node_of(name) for name in pods)


def test_alternatives_use_up_one_card_and_then_the_next(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1, "A100": 1})
    card_node(stage, "h", H200)
    card_node(stage, "a", A100)
    for name, node in (("first", "h"), ("second", "a")):
        pod(stage, name, "q", card=f"{H200}|{A100}")
        stage.goes(**{name: node})
    pod(stage, "third", "q", card=f"{H200}|{A100}")
    stage.waits("third", "insufficient", "quota")


def test_alternatives_that_start_at_once_are_split_exactly_as_the_quotas(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 2, "A100": 1}, state="Closed")
    card_node(stage, "h", H200, 8)
    card_node(stage, "a", A100, 8)
    names = members("p", 5)
    for name in names:
        pod(stage, name, "q", card=f"{H200}|{A100}")
    stage.until_each(names, lambda name: "is closed" in stage.why(name))
    edit(stage, "q", state="Open")
    stage.until(lambda: spread(stage, *names)[""] == 2)
    stage.stays(lambda: spread(stage, *names) == {"h": 2, "a": 1, "": 2})


def test_pod_that_names_no_card_is_charged_for_the_card_of_its_node(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1})
    card_node(stage, "a", A100)
    card_node(stage, "h", H200)
    pod(stage, "first", "q")
    stage.goes(first="h")
    pod(stage, "second", "q")
    stage.waits("second", "quota")
    edit(stage, "q", cards={"H200": 1, "A100": 1})
    stage.goes(second="a")


def test_card_that_is_shared_by_time_counts_as_the_whole_card(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1})
    card_node(stage, "n", f"{H200}-SHARED", 4)
    pod(stage, "first", "q")
    stage.goes(first="n")
    pod(stage, "second", "q")
    stage.waits("second", "insufficient H200 quota: requested 1, total would be 2, but capability is 1")


def test_slices_and_shares_of_a_card_have_quotas_of_their_own(stage: Stage) -> None:
    share = f"{H200}/mps-141g*1/4"
    queue(stage, "q", cards={"H200": 1, f"{H200}/mig-1g.18gb-mixed": 1, share: 1})
    card_node(stage, "whole", H200, 1)
    stage.node("slices", labels={PRODUCT: H200})
    stage.allocatable("slices", **{SLICE: "7"})
    stage.node("shares", labels={PRODUCT: H200, "nvidia.com/gpu.memory": "144384", "nvidia.com/gpu.replicas": "4"})
    stage.allocatable("shares", **{SHARE: "4"})
    for resource, node in (("nvidia.com/gpu", "whole"), (SLICE, "slices"), (SHARE, "shares")):
        for turn in range(2):
            pod(stage, f"{node}-{turn}", "q", gpu=0, extended={resource: "1"})
        stage.until(lambda node=node: spread(stage, *members(node, 2)) == {node: 1, "": 1})  # type: ignore[misc]
    stage.stays(lambda: all(spread(stage, *members(name, 2))[""] == 1 for name in ("whole", "slices", "shares")))


def test_pod_over_quota_is_told_what_is_lacking(stage: Stage) -> None:
    queue(stage, "q", capability={"cpu": "2", "memory": "2Gi", "pods": "5"}, cards={"H200": 1})
    card_node(stage, "h", H200)
    card_node(stage, "a", A100)
    for number, (said, asked) in enumerate(
        {
            "CPU quota: requested 3, total would be 3, but capability is 2": {"cpu": "3"},
            "memory quota: requested 3Gi, total would be 3Gi, but capability is 2Gi": {"memory": "3Gi"},
            "H200 quota: requested 2, total would be 2, but capability is 1": {"gpu": 2, "card": H200},
            "A100-SXM4-80GB quota: requested 1, total would be 1, but capability is 0": {"card": A100},
        }.items()
    ):
        pod(stage, f"p-{number}", "q", **asked)  # type: ignore[arg-type]
        stage.waits(f"p-{number}", f"Queue q has insufficient {said}")


def test_pod_is_compared_only_in_what_it_requests(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1})
    card_node(stage, "h")
    pod(stage, "card", "q")
    stage.goes(card="h")
    edit(stage, "q", cards={"H200": 0}, capability={"cpu": "0"})
    stage.until(lambda: condition(stage.get("Queue", "q"), "OverQuota").get("status") == "True")
    pod(stage, "plain", "q", gpu=0, cpu="", memory="8Gi")
    for name in members("g", 2):
        pod(stage, name, "q", gpu=0, cpu="", memory="8Gi", labels=gang_labels("g", "2"))
    stage.goes(plain="h", g_0="h", g_1="h")


def test_small_amounts_add_up_exactly(stage: Stage) -> None:
    queue(stage, "q", capability={"cpu": "0.3"})
    stage.node("n")
    for name, cpu in (("tenth", "0.1"), ("fifth", "200m")):
        pod(stage, name, "q", gpu=0, cpu=cpu)
        stage.goes(**{name: "n"})
    pod(stage, "more", "q", gpu=0, cpu="1m")
    stage.waits("more", "requested 1m, total would be 301m, but capability is 300m")


def test_quota_counts_at_every_queue_above(stage: Stage) -> None:
    queue(stage, "root", cards={"H200": 2})
    queue(stage, "tenant", parent="root")
    queue(stage, "a", parent="tenant")
    queue(stage, "b", parent="root", cards={"H200": 2})
    card_node(stage, "n", H200, 8)
    for name in ("a", "b"):
        pod(stage, f"of-{name}", name)
    stage.goes(of_a="n", of_b="n")
    pod(stage, "more", "b")
    stage.waits("more", "Queue root has insufficient H200 quota: requested 1, total would be 3, but capability is 2")


def test_gang_is_checked_whole_against_the_quota(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 3})
    card_node(stage, "n", H200, 8)
    gang = members("g", 4)
    for name in gang:
        pod(stage, name, "q", labels=gang_labels("g", "4"))
    says(stage, "g-0", "insufficient H200 quota: requested 4, total would be 4, but capability is 3")
    stage.stays(lambda: waiting(stage, *gang))
    edit(stage, "q", cards={"H200": 4})
    start_together(stage, *gang)


def a_job(stage: Stage, cards: str) -> Json:
    """Return a Job of three pods of one card each, which says of itself that it needs these cards."""
    return indexed_job_object(
        "j",
        namespace=stage.own("ns"),
        pods=3,
        gang="",
        gpu=1,
        annotations=in_queue(stage, "q", annotations={CARD_REQUEST_KEY: cards}),
    )


def test_cards_of_a_workload_are_checked_as_a_sum_before_its_first_pod_starts(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 2, "A100": 1})
    card_node(stage, "h", H200, 8)
    card_node(stage, "a", A100, 8)
    pod(stage, "first", "q", card=H200)
    stage.goes(first="h")
    job(stage, a_job(stage, '{"H200|A100": 3}'))
    pods = [name for name in pods_of_jobs(stage, 4) if name != "first"]
    says(stage, pods[0], "Queue q has insufficient H200|A100 quota: requested 3, total would be 4, but capability is 3")
    stage.stays(lambda: waiting(stage, *pods))
    edit(stage, "q", cards={"H200": 2, "A100": 2})
    stage.until(lambda: spread(stage, *pods) == {"h": 1, "a": 2})


def test_cards_that_cannot_be_read_hold_the_pods_and_no_others(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 8})
    card_node(stage, "n", H200, 8)
    job(stage, a_job(stage, "eight"))
    pod(stage, "unreadable", "q", card="|")
    pod(stage, "other", "q")
    stage.goes(other="n")
    for name in pods_of_jobs(stage, 5):
        if name != "other":
            says(stage, name, "volcano.sh/card.")
    stage.stays(lambda: spread(stage, *pods_of_jobs(stage, 5)) == {"n": 1, "": 4})


def test_unreadable_card_quota_of_volcano_is_not_an_empty_one(stage: Stage) -> None:
    document = volcano_queue_object(stage.own("q"), annotations={VOLCANO_QUOTA: "8 cards"})
    stage.create(document)
    card_node(stage, "n")
    pod(stage, "card", "q")
    pod(stage, "plain", "q", gpu=0)
    stage.waits("card", "The queue q is refused", VOLCANO_QUOTA)
    stage.waits("plain", "The queue q is refused")
    stage.patch(VOLCANO_QUEUE, "q", {"metadata": {"annotations": {VOLCANO_QUOTA: f'{{"{H200}": 1}}'}}})
    stage.goes(card="n", plain="n")
    pod(stage, "more", "q")
    stage.waits("more", "insufficient NVIDIA-H200 quota")


def test_over_commit_factor_multiplies_cpu_alone_and_cards_may_take_none_of_it(stage: Stage) -> None:
    stage.restart_scheduler(overCommitFactor=1.5, cardUnlimitedCpuMemory=True)
    queue(stage, "q", capability={"cpu": "2"}, cards={"H200": 1})
    card_node(stage, "n", H200, 8)
    pod(stage, "plain", "q", gpu=0, cpu="3")
    pod(stage, "card", "q", cpu="8")
    stage.goes(plain="n", card="n")
    pod(stage, "more", "q", gpu=0)
    stage.waits("more", "insufficient CPU quota: requested 1, total would be 4, but capability is 3")
    pod(stage, "cards", "q")
    stage.waits("cards", "insufficient H200 quota: requested 1, total would be 2, but capability is 1")


def test_quota_of_pods_that_are_deleted_or_end_is_free_again(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1})
    card_node(stage, "n")
    for name in members("deleted", 3):
        pod(stage, name, "q")
        stage.goes(**{name: "n"})
        stage.delete("Pod", name)
    pod(stage, "ends", "q", annotations={RUN_SECONDS: "0.3"})
    stage.goes(ends="n")
    pod(stage, "last", "q")
    stage.goes(last="n")
    stage.until(lambda: used(stage, "q") == {"H200": 1, "pods": 1, "pending": 0})


def test_status_has_what_the_pods_of_a_queue_use_and_wait_for(stage: Stage) -> None:
    queue(stage, "root")
    queue(stage, "q", parent="root", cards={"H200": 2})
    card_node(stage, "n", H200, 8)
    for name in members("p", 3):
        pod(stage, name, "q")
    full = {"H200": 2, "pods": 2, "pending": 1}
    stage.until(lambda: [used(stage, name) for name in ("q", "root")] == [full, full])
    for name in members("p", 3):
        stage.delete("Pod", name)
    stage.until(lambda: [used(stage, name)["pods"] for name in ("q", "root")] == [0, 0])
    assert used(stage, "q") == {"H200": 0, "pods": 0, "pending": 0}


def test_raised_quota_starts_the_pod_that_it_held(stage: Stage) -> None:
    queue(stage, "q", capability={"cpu": "1"})
    stage.node("n")
    pod(stage, "first", "q", gpu=0)
    stage.goes(first="n")
    pod(stage, "second", "q", gpu=0)
    stage.waits("second", "insufficient CPU quota: requested 1, total would be 2, but capability is 1")
    edit(stage, "q", capability={"cpu": "2"})
    stage.goes(second="n")


def test_held_pod_stops_no_smaller_one_behind_it(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 2})
    card_node(stage, "n", H200, 8)
    pod(stage, "large", "q", gpu=3, priority=5)
    stage.waits("large", "requested 3, total would be 3, but capability is 2")
    pod(stage, "small", "q", gpu=2)
    stage.goes(small="n")


def test_room_goes_to_the_queue_of_higher_priority_first(stage: Stage) -> None:
    queue(stage, "high", priority=2)
    queue(stage, "low", priority=1)
    pod(stage, "first", "low", priority=10)
    pod(stage, "second", "high")
    stage.until_each(["first", "second"], lambda name: stage.why(name) != "")
    card_node(stage, "n", gpus=1)
    stage.goes(second="n")
    stage.waits("first")


def test_lowered_quota_evicts_nobody_even_by_a_restart_and_takes_nothing_new(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 2})
    card_node(stage, "n", H200, 8)
    for name in ("first", "second"):
        training(stage, name, "q")
    edit(stage, "q", cards={"H200": 0})
    stage.until(lambda: condition(stage.get("Queue", "q"), "OverQuota").get("status") == "True")
    stage.restart_scheduler()
    pod(stage, "third", "q")
    stage.waits("third", "total would be 3, but capability is 0")
    stage.evicts()


def test_pods_above_a_lowered_quota_go_after_its_time_and_no_more_than_needed(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 5}, shrinkAfter="0s")
    card_node(stage, "n", H200, 8)
    training(stage, "important", "q", gpu=2, priority=5)
    training(stage, "small", "q", gpu=1)
    training(stage, "large", "q", gpu=2)
    edit(stage, "q", cards={"H200": 3})
    stage.evicts("large")
    stage.stays(lambda: stage.victims() == ["large"])


def test_pods_of_a_queue_that_drains_go_and_new_ones_wait(stage: Stage) -> None:
    queue(stage, "root")
    queue(stage, "q", parent="root")
    card_node(stage, "n")
    training(stage, "runs", "q")
    edit(stage, "root", state="Draining", drainAfter="0s")
    stage.evicts("runs")
    pod(stage, "late", "q")
    stage.waits("late", "The queue root, which is above q, is draining")


def test_pod_of_a_closed_queue_waits_until_it_opens(stage: Stage) -> None:
    queue(stage, "root", state="Closed")
    queue(stage, "q", parent="root")
    stage.node("n")
    pod(stage, "p", "q", gpu=0)
    stage.waits("p", "is closed")
    edit(stage, "root", state="Open")
    stage.goes(p="n")
