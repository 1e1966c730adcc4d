"""The numbers in the status of a pool."""

from typing import Any

from tests.gang_objects import gang_labels
from tests.scenarios.stage import Stage


def cpu(stage: Stage, pool: str, *fields: str) -> list[str]:
    """Return the CPU in some fields of a pool's status."""
    status = stage.status(pool)
    return [status.get(field, {}).get("cpu", "") for field in fields]


def test_used_room_is_the_sum_of_own_shared_and_system(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="16")
    stage.pools("a", "b")
    stage.pod("own", pool="a", cpu="1")
    stage.pod("lent", pool="b", cpu="2")
    stage.pod("other", scheduler_name="other", node="a1", cpu="4")
    stage.runs("own", "lent", "other")
    stage.until(lambda: cpu(stage, "a", "used", "own", "shared", "system", "free") == ["7", "1", "2", "4", "9"])
    stage.until(lambda: cpu(stage, "b", "borrowed", "used") == ["2", "0"])
    assert stage.status("a")["pods"] == 3
    stage.until(lambda: stage.amount("a", "allocatable") == "16")


def test_pending_is_the_requests_in_the_queue_without_gated_pods(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="1")
    stage.pools("a", disableBorrowing=True)
    stage.pods("p1", "p2", pool="a", cpu="2")
    stage.pod("gated", pool="a", cpu="64", gates=["example.com/quota"])
    stage.until(lambda: stage.status("a").get("pendingPods") == 2)
    stage.until(lambda: stage.amount("a", "pending") == "4")


def test_pods_of_an_incomplete_gang_are_pending_without_those_that_are_gated(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="1")
    stage.pools("a", disableBorrowing=True)
    labels = gang_labels("g", "4")
    stage.pods("g-0", "g-1", pool="a", cpu="2", labels=labels)
    stage.pod("gated", pool="a", cpu="64", labels=labels, gates=["example.com/quota"])
    stage.until(lambda: stage.status("a").get("pendingPods") == 2)
    stage.until(lambda: stage.amount("a", "pending") == "4")
    stage.delete("Pod", "g-1")
    stage.until(lambda: stage.status("a").get("pendingPods") == 1)


def test_terminating_pods_count_until_they_are_gone(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("slow", pool="a", cpu="3", held=True)
    stage.runs("slow")
    stage.delete("Pod", "slow")
    stage.until(lambda: stage.status("a").get("pods") == 1)
    stage.stays(lambda: stage.amount("a", "used") == "3")
    stage.release("slow")
    stage.until(lambda: stage.status("a").get("pods") == 0 and stage.amount("a", "used") == "0")


def test_finished_pods_use_nothing(stage: Stage) -> None:
    stage.node("a1", pool="a", gpu=8)
    stage.pools("a")
    stage.pod("p", pool="a", gpu=4, annotations={"sandbox.resource.aibee.cn/run-seconds": "0.2"})
    stage.until(lambda: stage.phase("p") == "Succeeded")
    stage.until(lambda: stage.status("a").get("pods") == 0 and stage.amount("a", "free", "nvidia.com/gpu") == "8")


def test_status_equals_a_recount_after_everything_has_moved(stage: Stage) -> None:
    for pool, nodes in (("a", 2), ("b", 3)):
        for number in range(nodes):
            stage.node(f"{pool}{number}", pool=pool, cpu="4", gpu=2)
    stage.pools("a", "b")
    stage.pods(*(f"a-p{number}" for number in range(9)), pool="a", cpu="2", gpu=1)
    stage.pods(*(f"b-p{number}" for number in range(4)), pool="b", cpu="1")
    stage.until(lambda: sum("nodeName" in pod["spec"] for pod in stage.all("Pod")) >= 10)
    stage.move("b0", "a")
    stage.delete("Pod", "a-p0")
    stage.until(lambda: all(shown(stage, pool) == recount(stage, pool) for pool in ("a", "b")))


def shown(stage: Stage, pool: str) -> tuple[str, str]:
    """Return the used CPU and GPUs in the pool's status."""
    return stage.amount(pool, "used"), stage.amount(pool, "used", "nvidia.com/gpu")


def recount(stage: Stage, pool: str) -> tuple[str, str]:
    """Return the CPU and GPUs that unfinished pods on a pool's nodes request, counted from pods and nodes."""
    mine = {
        node["metadata"]["name"]
        for node in stage.all("Node")
        if node["metadata"]["labels"].get("stage.example/pool") == pool
    }
    pods: list[Any] = [pod for pod in stage.all("Pod") if pod["spec"].get("nodeName") in mine]
    requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods]
    cpus = sum(int(request["cpu"]) for request in requests)
    return str(cpus), str(sum(int(request.get("nvidia.com/gpu", 0)) for request in requests))


def test_columns_have_flags_and_numbers(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="16", gpu=8)
    stage.pools("a", disableSharing=True)
    stage.pod("p", pool="a", cpu="2", gpu=1)
    stage.runs("p")
    stage.until(lambda: stage.amount("a", "columns") == "2/16")
    status = stage.status("a")
    assert (status["columns"]["flags"], status["columns"]["gpu"], status["nodes"]) == ("p✓ b✓ s✗", "1/8", 1)
